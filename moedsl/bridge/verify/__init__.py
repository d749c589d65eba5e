"""Ask the real Megatron Bridge about recipes, without a GPU: `moedsl verify`, and `lint`, `diff`, `import` with Bridge.

In goes a `Case` (cases.py): a recipe.py or a function of NVIDIA's, its plan if there is one, a GPU, a number of ranks.
Out comes a `Report` (report.py): accepted, refused with NVIDIA's own message and line, or failed; values that differ
from the plan, groups rank by rank, and parameters stage by stage. `resolve` gives the configuration, field by field.

In the parent, which imports nothing heavy:

- client.py: `verify` for paths, `Server` for cases. Start here.
- host.py: one process that imports Bridge once and is forked for each case, because Megatron keeps global state. A fork
  that dies is an error for its case alone. moedsl.rehearse uses the same host.
- environments.py and hub.py: wheels of older releases, and Hugging Face files without the network.

In a fork, in the order of the questions (worker.py):

- preload.py: what the host imports, and the task of a fork.
- resolve.py: build the recipe. configs.py: read it, and who assigned what.
- update.py: the first step of `pretrain()`, and its result against the plan (expected.py).
- groups.py: process groups of both meshes. runtime.py: refusals that come only during training.
- stages.py: the model of each stage on the meta device.
- gpu.py and stand_ins.py: what answers for the GPU, for compiled kernels and for files that are not here.
"""
