"""The recipe that Megatron Bridge ships for a run's model and GPUs, priced as the run is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.facts import recipes
from moedsl.support.json_form import JsonForm


@frozen
class ShippedRecipe(JsonForm):
    """A recipe of Bridge's for this model, GPU, number of GPUs and task, with this run's batch and number formats."""

    name: str
    """The function; `--like` takes it."""
    target: str
    """module:function, for lint, verify and diff."""
    layout: Mapping[str, Any]
    """Each axis that it turns on, and its pipeline layout."""
    changes: Mapping[str, Any]
    """Axes that differ from the plan, with the recipe's values."""
    written_for: Mapping[str, Any]
    """The length, batch and number formats of the recipe that differ from those of this run."""
    refused_by: str | None
    """The law that its layout breaks in this run."""
    because: str | None
    """The reason of that law."""
    step_time_s: float | None
    """Null if Megatron would refuse the layout."""
    peak_gib: float | None
    """Null if Megatron would refuse the layout."""
    verdict: str | None
    """FITS, TIGHT or DOES NOT FIT."""
    against_plan: str | None
    """The difference from the plan in words."""
    others: tuple[str, ...]
    """Further recipes for the same model, GPU, number of GPUs and task."""

    @property
    def is_benchmark(self) -> bool:
        """Whether it is one of the recipes of NVIDIA's benchmarks, which are not made to train with."""
        return recipes.of_benchmark(self.target)
