"""What a budget of tokens takes: steps, days, GPU-hours, and what these cost."""

from __future__ import annotations

from typing import Any

from attrs import frozen

BILLION = 10**9
HOUR, DAY = 3600.0, 86400.0
"""Seconds."""
COVERS = (
    "Days and GPU-hours are those of uninterrupted steps at the estimated step time: no checkpoints, restarts, "
    "evaluation or warm-up."
)


@frozen
class Budget:
    """How many tokens a run is to see, images' tokens included, and the price of a GPU-hour where it is known."""

    tokens: int
    price: float | None = None

    def of(self, step_time: float, step_tokens: int, gpus: int) -> dict[str, Any]:
        """`steps` (whole ones), `days`, `gpu_hours` and with a price `cost`, for seconds and tokens of a step."""
        steps = -(-self.tokens // step_tokens)
        hours = steps * step_time * gpus / HOUR
        out = {"tokens": self.tokens, "steps": steps, "days": steps * step_time / DAY, "gpu_hours": hours}
        if self.price is None:
            return out
        return {**out, "price_per_gpu_hour": self.price, "cost": hours * self.price}


def per_billion(step_time: float, step_tokens: int, gpus: int) -> float:
    """GPU-hours for 10^9 tokens."""
    return BILLION / step_tokens * step_time * gpus / HOUR
