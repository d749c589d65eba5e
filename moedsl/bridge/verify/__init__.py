"""Ask the real Megatron Bridge about recipes, without a GPU: `moedsl verify`, and `lint`, `diff`, `import` with Bridge.

The input is a `Case`: a recipe.py or a function of NVIDIA's, its plan if there is one, a GPU and a number of ranks. The
output is a `Report`: accepted, refused with NVIDIA's own message and line, or failed; values that differ from the plan,
process groups rank by rank, and parameters stage by stage. Both are in cases.py. `resolve` gives the configuration,
field by field.

The parent process imports nothing heavy:

- client.py: `verify` for paths, `Server` for cases, and what its host loads. Start here.
- host.py: one process that imports Bridge once and is forked for each case, because Megatron keeps global state. A fork
  that dies is an error for its case alone. moedsl.rehearse uses the same host.
- environments.py: wheels of older releases, and Hugging Face files without the network.

A fork asks these modules, in the order of worker.py:

- resolve.py: builds the recipe, runs the first step of `pretrain()`, and compares the result with the plan. configs.py
  reads a configuration, and which line assigned each field.
- stages.py: makes the process groups of both meshes, and the model of each stage on the meta device.
- runtime.py: finds refusals that come only during training.
- stand_ins.py: replaces the GPU, compiled kernels and files that are not here.
"""
