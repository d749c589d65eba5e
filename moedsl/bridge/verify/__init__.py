"""Ask the real Megatron Bridge about recipes, without a GPU: `moedsl verify`, and `lint`, `diff`, `import` with Bridge.

In goes a `Case`: a recipe.py or a function of NVIDIA's, its plan if there is one, a GPU, a number of ranks. Out comes a
`Report`: accepted, refused with NVIDIA's own message and line, or failed; values that differ from the plan, groups rank
by rank, and parameters stage by stage. Both are in cases.py. `resolve` gives the configuration, field by field.

In the parent, which imports nothing heavy:

- client.py: `verify` for paths, `Server` for cases, and what its host loads. Start here.
- host.py: one process that imports Bridge once and is forked for each case, because Megatron keeps global state. A fork
  that dies is an error for its case alone. moedsl.rehearse uses the same host.
- environments.py: wheels of older releases, and Hugging Face files without the network.

In a fork, in the order of the questions (worker.py):

- resolve.py: build the recipe, take the first step of `pretrain()`, and hold its result against the plan. configs.py
  reads a configuration, and who assigned what.
- stages.py: process groups of both meshes, and the model of each stage on the meta device.
- runtime.py: refusals that come only during training.
- stand_ins.py: what answers for the GPU, for compiled kernels and for files that are not here.
"""
