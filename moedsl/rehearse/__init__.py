"""Rehearse a plan: shrink it to a few processes and train it with NVIDIA's own `pretrain()` on this machine.

In goes a plan and its model. Out comes a result: what was kept, shrunk or not rehearsed, the losses, and four checks.
docs/rehearse.md says what a rehearsal proves.

In the order of the work:

- shrink.py: the small run (`Rehearsal`) with its policies. sizes.py chooses its pipeline, meshes and widths. Both note
  what differs from the plan.
- prepare.py: the folder of a run: rehearsal.moe with every axis pinned, the recipe.py that the emitter makes of it,
  and the small model's config.json.
- launch.py: the ranks. On a CPU forks of one host (moedsl.bridge.verify.host) over gloo, on GPUs torchrun over NCCL.
  The first rank that fails ends the others.
- worker.py: one rank, from the recipe to its answer, rank_N.json.
- result.py: the checks of the answers, and the result as JSON and text.
- cpu/: what replaces the GPU while `pretrain()` runs on a CPU.
"""
