"""Define the machine constants that the estimates need: shares of peak rates, launch times, hop times and so on.

`calibration any { ... }` (stdlib/calibration/any.moe) declares each with its unit, its range, its source and how to
measure it. `calibration NAME { ... }` states the values for one GPU generation; `moedsl calibrate` fits them to
measured runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, field, fields, frozen

from moedsl.facts.units import SCALES

UNITS: Mapping[str, float] = {
    "share": 1.0, "times": 1.0, "passes": 1.0, "tokens": 1.0, "numbers": 1.0, "bytes": 1.0,
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "days": 86400.0, "parameters/s": 1.0, "MiB": 2.0**20, **SCALES,
}  # fmt: skip
"""The units of constants, each in base units: seconds, bytes, FLOP/s, or one."""
_ALIKE = (
    {"share", "times", "passes"},
    {"s", "ms", "us", "days"},
    {"bytes", "MiB", "GiB", "TiB", "GB", "TB"},
    {"GB/s", "TB/s"},
    {"TFLOPS", "PFLOPS"},
)
"""Sets of units that measure the same quantity."""
RATIOS = ("share", "times")
"""Units whose numbers may be written in percent."""


@frozen
class Constant:
    """One declared constant; `value`, `low` and `high` are in its unit."""

    name: str
    value: float
    """The default for generations that do not state it, and the start of a fit from scratch."""
    unit: str
    low: float
    """The lower bound; outside `low` to `high` the number would mean something else."""
    high: float
    about: str
    measure: str
    """How to measure it."""
    spread: float = 0.0
    """The likely deviation from `value`, as a share of it; 0 if it is not fitted."""
    source: str = ""

    @property
    def scale(self) -> float:
        """The size of the unit in base units."""
        return UNITS[self.unit]

    @property
    def lowest(self) -> float:
        return self.low * self.scale

    @property
    def highest(self) -> float:
        return self.high * self.scale


_LIKE = {"ncclep": "hybridep"}
"""Words with another's constants until runs measure theirs: NCCL EP moves tokens by an adaptation of HybridEP's kernels
(core transformer/moe/token_dispatcher.py:1599)."""


@frozen
class Constants:
    """The constants of one GPU generation, in base units; stdlib/calibration/any.moe explains each."""

    known: Mapping[str, Constant] = field(eq=False, repr=False)

    # rates of the GPU
    gemm: float
    gemm8: float
    gemm4: float
    attention: float
    half_full: float
    stream: float
    unfused: float
    power: float
    shallow: float
    softmax: float
    scan_rate: float
    scan_stream: float
    delta_rate: float
    delta_stream: float
    attention_back: float
    attention_mla: float
    attention_mla_back: float
    scan_back: float

    # passes over memory
    permute_alltoall: float
    permute_deepep: float
    permute_hybridep: float
    cast_fp8_blockwise: float
    cast_fp8_current: float
    cast_mxfp8: float
    cast_nvfp4: float

    # the host
    host_attention: float
    host_router: float
    host_preprocess: float
    host_experts: float
    host_expert: float
    host_dense: float
    host_step: float
    host_again: float
    host_grace: float
    gaps: float
    host_mamba: float
    host_scan: float
    host_delta: float
    host_adapter: float
    host_collective: float
    host_wait: float
    launches_fp8_blockwise: float
    launches_fp8_current: float
    launches_mxfp8: float
    launches_nvfp4: float
    host_copies: float
    host_adam: float

    # messages
    dispatch: float
    dispatch_alltoall: float
    dispatch_deepep: float
    network_alltoall: float
    network_deepep: float
    network_hybridep: float
    network_ceiling: float
    ring: float
    tp_share: float
    exchange_start: float
    exchange_start_network: float
    hop_nvlink: float
    hop_network: float

    # overlap and routing
    hidden: float
    delayed: float
    window_layer: float
    window_microbatch: float
    cp_exposed: float
    dp_exposed: float
    p2p_exposed: float
    straggling: float
    skew: float
    skew_free: float

    # memory in torch's allocator
    te_workspace: float
    te_streams: float
    torch_workspace: float
    torch_threads: float
    torch_other: float
    torch_unused: float
    uneven_natural: float
    uneven_balanced: float
    dispatch_copies: float
    loss_te: float
    loss_native: float
    loss_unfused: float

    # memory outside torch
    driver: float
    context: float
    nccl_group: float
    nccl_peer: float
    deepep_channels: float
    deepep_tokens: float
    deepep_network_tokens: float
    deepep_token: float
    deepep_chunks: float
    hybridep_copies: float

    # checkpoints and failures
    node_write: float
    storage_write: float
    load_times: float
    save_start: float
    gpu_mtbf: float
    detect: float
    restart: float
    restart_doubling: float
    restart_in_job: float
    in_place: float
    local_start: float
    local_write: float

    def by(self, stem: str, words: tuple[str, ...], otherwise: float = 1.0) -> list[float]:
        """Return the constants `stem_WORD` in the order of an axis's words; `otherwise` for a word without one."""
        return [getattr(self, f"{stem}_{_LIKE.get(word, word)}", otherwise) for word in words]

    def ends(self, name: str) -> dict[str, float]:
        """Return a constant's value in each case of the memory estimate, in base units.

        A value that the generation states is known, so all cases are equal.
        """
        known, value = self.known[name], getattr(self, name)
        if value != known.value * known.scale:
            return {"low": value, "best": value, "high": value}
        return {"low": known.low * known.scale, "best": value, "high": known.high * known.scale}

    def stated(self, name: str) -> float:
        """Return a constant in its unit."""
        return getattr(self, name) / self.known[name].scale


NAMES = tuple(f.name for f in fields(Constants) if f.name != "known")


def made(known: Mapping[str, Constant], stated: Mapping[str, float]) -> Constants:
    """Build a generation's constants from the values that it states, in their units, else the declared values."""
    values = {name: stated.get(name, c.value) * c.scale for name, c in known.items()}
    return Constants(known, **values)


def fitted(c: Constants) -> dict[str, Constant]:
    """Return the constants that a fit may move, by name."""
    return {name: known for name, known in c.known.items() if known.spread}


def first_guess(c: Constants) -> Constants:
    """Return the constants as before any measured run: each that a fit may move has its declared value."""
    return evolve(c, **{name: known.value * known.scale for name, known in fitted(c).items()})


def wrong(c: Constant, before: Constant | None = None) -> Iterator[str]:
    """Yield what is wrong with a declaration; one that replaces `before` must suit the formulas written for that."""
    if c.low > c.high:
        yield f"low {c.low:g} is above high {c.high:g}"
    elif not c.low <= c.value <= c.high:
        yield f"value {c.value:g} is not between low {c.low:g} and high {c.high:g}"
    elif before is not None and not any({c.unit, before.unit} <= units for units in ({c.unit}, *_ALIKE)):
        yield f"its unit is {before.unit}, not {c.unit}"
    elif before is not None and not before.lowest <= c.lowest <= c.highest <= before.highest:
        yield f"its range must be within {before.low:g} to {before.high:g} {before.unit}"
    if c.spread > 1:
        yield f"spread {c.spread:g} is above 1: it is a share of the value"
    elif c.spread and not c.low:
        yield "low is 0, and a fit moves the logarithm of a constant with a spread"


def outside(c: Constants) -> Iterator[str]:
    """Yield a message for each constant outside its range."""
    for name, known in c.known.items():
        if not known.low <= c.stated(name) <= known.high:
            yield f"{name} {c.stated(name):g} is not between {known.low:g} and {known.high:g}: {known.about}"
