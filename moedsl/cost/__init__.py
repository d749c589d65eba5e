"""Estimate parameters, memory and step time of layouts, for one row or for whole columns of them.

In: a model and a GPU (`facts`), and the layouts' axes as NumPy columns (`rows.Table`). Out: bytes on the fullest rank
and seconds per step, by part; memory in a low, a best and a high case. Each formula names the line of NVIDIA's code, or
the published measurement, that it follows; its constants are fitted in stdlib/calibration.

- `estimate.py` is the entry point: `Cost` prices a table of layouts, `bounds` says whether one fits.
- Memory: `parameters.py` (weights of a stage, and its profile: counts in which a price is linear), `activations.py`
  (what a layer saves for backward, by recompute and offload), `memory.py` (weights, gradients, optimizer, the peaks of
  a microbatch and of the optimizer's step, and what lies outside torch), `cases.py` (low, best and high terms).
- Time: `flops.py`, `compute.py` (kernels by kind of layer), `communication.py` (collectives, dispatch, routing skew),
  `pipeline.py` (stages, bubbles, interleaving), `step.py` (all of it as one step, and a vision encoder's part).
- Models: `blocks.py` (kinds of layer; the mixers of Mamba-2, delta nets and sparse attention), `adapters.py` (LoRA and
  its kind), `formats.py` (bytes per element in each precision).
- Runs: `goodput.py` (checkpoints and failures). `rows.py` prices each distinct row once and keeps prices.

To add a term: put its formula into the module of its physics, the axes that it reads into that module's COLUMNS, and a
published number into tests/cost. The package imports only `facts`: no rules, text or plans.
"""

from moedsl.cost.estimate import Cost as Cost
from moedsl.cost.memory import StageMemory as StageMemory
