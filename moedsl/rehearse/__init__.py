"""Rehearse a plan: shrink it to a few processes and train it with NVIDIA's own `pretrain()` on this machine.

Input: a plan and its model. Output: what was kept, shrunk or not rehearsed, the losses, and four checks.
docs/rehearse.md says what a rehearsal proves.

In the order of the work:

- shrink.py: makes the small run (`Rehearsal`): its policies, pipeline, meshes and widths; notes what differs from the
  plan.
- prepare.py: writes the folder of a run: rehearsal.moe with every axis pinned, the recipe.py emitted from it, and the
  small model's config.json.
- launch.py: starts the ranks: on a CPU as forks of one host (moedsl.bridge.verify.host) over gloo, on GPUs by torchrun
  over NCCL. The first rank that fails ends the others.
- worker.py: runs one rank, from the recipe to its answer, rank_N.json.
- result.py: checks the answers, and formats the result as JSON and text.
- cpu/: replaces the GPU while `pretrain()` runs on a CPU.
"""
