"""A checked run, with every name resolved and every value typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from moedsl.facts.facts import Hardware, Model, Site
from moedsl.facts.fine_tuning import Adapter, Samples
from moedsl.facts.recipes import LIKE
from moedsl.rules.rule import Effects, Let, Rule, Rules, of_rules
from moedsl.support.source import Span


@frozen
class Pin:
    """A value that the user fixed, encoded as in a column, with its location in the text."""

    axis: str
    code: int
    span: Span

    @property
    def by(self) -> str:
        """Return what pins it, in words."""
        return f"`{self.span.file}`" if self.span.file.startswith(LIKE) else "the run file"


@frozen
class Allow:
    rule: str
    because: str | None
    span: Span


@frozen
class Variant:
    """One value of an isolation: its label, and the code of each axis (or seq, batch or gpus) that it fixes."""

    label: str
    codes: Mapping[str, int]


@frozen
class Isolation:
    """The axis that a run varies while all else stays equal. A single variant's program has only that variant."""

    axis: str
    variants: tuple[Variant, ...]
    span: Span


@frozen
class Program:
    """One run, with every name resolved and every value typed."""

    name: str
    model: Model
    hardware: Hardware
    gpus: int | None
    seq: int
    batch: int | None
    phase: str
    task: str
    routing: str
    data: str
    """mock, the path of real data, or its name on Hugging Face."""
    samples: Samples | None
    """How fine-tuning reads the samples of a text; None for other runs."""
    vlm: frozenset[str]
    adapter: Adapter | None
    """The adapter that `task peft` trains; None for other tasks."""
    precision: str
    """A value of the precision axis, fp8, or auto."""
    pins: Mapping[str, Pin]
    pipeline_layout: str | None
    rules: Rules = field(converter=Rules.of)
    allows: Mapping[str, Allow]
    sweep: tuple[str, tuple[int, ...]] | None
    sets: Mapping[str, Any]
    target: str
    hub_weights: str | None = None
    """The Hugging Face model whose weights are imported before the run; None if nothing is imported."""
    spans: Mapping[str, Span] = field(factory=dict)
    """The location of each statement, by the name that the statement fixes."""
    isolate: Isolation | None = None
    versions: Mapping[str, int] = field(factory=dict)
    """The versions that the run states, by name in expressions: torch_version, te_version."""
    batch_near: int | None = None
    """The number of `batch near N`, from which the solver may move `batch`."""
    batch_gpus: int | None = None
    """The number of GPUs that sets the default batch if several numbers are compared, so that the experiment stays the
    same."""
    risk: str = "none"
    """oom allows layouts that fit only by the best estimate of their memory; none does not."""
    workflow: str | None = None
    """The run of which this is a phase; None without a workflow."""
    length: Mapping[str, int] = field(factory=dict)
    """How long the run trains, as stated by `for`, by the name that rules read."""
    site: Site = field(factory=Site)
    """The storage and failures that the file's cluster states."""

    def of(self, kind: str) -> tuple[Rule, ...]:
        return self.rules.by_kind.get(kind, ())

    @property
    def effects(self) -> Effects:
        """The effects of the run's changes; where it drops tokens, those that hold then."""
        return of_rules(self.of("effect")).of_run(self.sets)

    def named(self, kind: str, name: str) -> tuple[Rule, ...]:
        """Return the rules of a kind for one name, the user's own before the stdlib's."""
        return self.rules.by_name.get((kind, name), ())

    @property
    def lets(self) -> tuple[Let, ...]:
        """Return the last `let` of each name, in the order of the names."""
        return self.rules.lets
