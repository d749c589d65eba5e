"""Define the calibrated constants of the step time: what a generation of GPUs reaches of its peaks.

Each has a meaning, and a range outside which it would mean something else. `moedsl calibrate` fits them to measured
runs; `calibration NAME { ... }` states them (stdlib/calibration).
"""

from __future__ import annotations

from typing import Any

import attrs

from moedsl.schema.frozen import frozen


@frozen
class Range:
    """The range of a constant; `spread` is its likely distance from the first guess, as a share of it."""

    low: float
    high: float
    guess: float
    spread: float
    doc: str


def _constant(low: float, high: float, guess: float, doc: str, spread: float = 0.25) -> Any:
    return attrs.field(metadata={"range": Range(low, high, guess, spread, doc)})


@frozen
class Constants:
    """The constants of one generation; `watts` is the power limit at which the shares are stated, and not fitted."""

    watts: float
    gemm: float = _constant(0.40, 0.85, 0.62, "share of the dense BF16 peak that a large matrix product reaches")
    gemm8: float = _constant(0.30, 0.85, 0.60, "the same for the 8-bit peak, without quantisation")
    gemm4: float = _constant(0.20, 0.70, 0.40, "the same for the 4-bit peak")
    attention: float = _constant(
        0.25, 0.75, 0.50, "share of the BF16 peak that fused attention reaches with heads of 128, forward and backward"
    )
    half_full: float = _constant(
        32, 1024, 192, "tokens for each expert at which a grouped product reaches half its rate", 0.5
    )
    stream: float = _constant(0.30, 0.90, 0.50, "share of the HBM bandwidth that passes over memory reach")
    unfused: float = _constant(
        1.0, 5.0, 2.0, "passes of expert activation and casts without the fused kernel, divided by those with it", 0.4
    )
    power: float = _constant(0.01, 1.0, 0.9, "how far the sustained clock follows the power limit: rate ~ watts^power")
    dispatch: float = _constant(0.30, 0.95, 0.75, "share of the NVLink bandwidth that HybridEP's all-to-all reaches")
    ring: float = _constant(0.40, 0.95, 0.75, "share of each bandwidth that NCCL's ring collectives reach")
    hidden: float = _constant(0.30, 0.95, 0.70, "share of expert communication that the 1F1B overlap hides")
    skew: float = _constant(
        1.0, 1.5, 1.25, "time of the fullest rank's experts under natural routing, divided by balanced", 0.1
    )


def ranges() -> dict[str, Range]:
    """The calibrated constants by name."""
    return {f.name: f.metadata["range"] for f in attrs.fields(Constants) if "range" in f.metadata}


def first_guess(watts: float) -> Constants:
    """The first guess, before any run is known."""
    return Constants(watts, **{name: r.guess for name, r in ranges().items()})


def outside(c: Constants) -> list[str]:
    """Write which constants are outside their range."""
    return [
        f"{name} {getattr(c, name):g} is not between {r.low:g} and {r.high:g}: {r.doc}"
        for name, r in ranges().items()
        if not r.low <= getattr(c, name) <= r.high
    ]
