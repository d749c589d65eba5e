"""Rules that read one fact from a configuration, and the family of models that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import Factory, evolve, frozen

from moedsl.importer.fields import Fields, show
from moedsl.importer.layers import Alternating, Every, Indexes, Length, OneKey, Pattern


@frozen
class Int(OneKey):
    """A whole number of the configuration. `absent` and `null` stand in for a missing key and for JSON's null."""

    key: str
    least: int = 1
    absent: int | None = None
    null: int | None = None
    note: str = ""
    """Comment to write where the number is 0."""

    def read(self, fields: Fields) -> int:
        return fields.integer(self.key, self.least, self.absent, self.null)


@frozen
class Flag(OneKey):
    """true or false of the configuration."""

    key: str
    absent: bool | None = None

    def read(self, fields: Fields) -> bool:
        return fields.flag(self.key, self.absent)


@frozen
class Product:
    """The product of two numbers: so many shared experts, each so wide."""

    key: str
    width: str

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, self.width)

    def read(self, fields: Fields) -> int:
        return fields.integer(self.key, 1, None, None) * fields.integer(self.width, 1, None, None)


@frozen
class HeadDim:
    """`head_dim`, or hidden size over heads where the configuration does not say it."""

    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"

    @property
    def keys(self) -> tuple[str, ...]:
        return ("head_dim",)

    def read(self, fields: Fields) -> int:
        if fields.get("head_dim") is not None:
            return fields.integer("head_dim", 1, None, None)
        hidden, heads = fields.config.get(self.hidden), fields.config.get(self.heads)
        if not (isinstance(hidden, int) and isinstance(heads, int) and heads > 0):
            return 1  # reported where hidden size and heads are read
        if hidden % heads:
            fields.refuse("import.missing_field", "head_dim", f"absent, and {hidden} / {heads} is not a whole number")
        return max(1, hidden // heads)


@frozen
class Positions(OneKey):
    """yarn where the configuration scales its rotary embedding so, else rope, as Bridge reads it
    (models/conversion/model_bridge.py:678-685); `rope_parameters` is what newer configurations call it."""

    key: str = "rope_scaling"
    newer: str = "rope_parameters"

    def read(self, fields: Fields) -> str:
        scaling = fields.get(self.key) or fields.get(self.newer)
        if not isinstance(scaling, Mapping):
            return "rope"
        return "yarn" if "yarn" in (scaling.get("type"), scaling.get("rope_type")) else "rope"


@frozen
class Const:
    """A fact that the configuration does not say: Megatron Bridge decides it for the family, in the line cited."""

    value: bool | str | int
    bridge: str

    @property
    def keys(self) -> tuple[str, ...]:
        return ()

    def read(self, fields: Fields) -> bool | str | int:
        return self.value


@frozen
class Times(OneKey):
    """So many times another number, as Megatron-Core has it in the line cited where the configuration says nothing."""

    times: int
    key: str
    core: str

    def read(self, fields: Fields) -> int:
        return self.times * fields.integer(self.key, 1, None, None)


@frozen
class Else:
    """What the configuration says, or another rule where it says nothing."""

    said: Int
    otherwise: Const | Times

    @property
    def keys(self) -> tuple[str, ...]:
        return self.said.keys

    def settled(self, config: Mapping[str, Any]) -> Rule:
        """The one rule of the two that `config` asks for."""
        return self.otherwise if config.get(self.said.key) is None else self.said

    def read(self, fields: Fields) -> int | bool | str:
        return self.settled(fields.config).read(fields)  # type: ignore[return-value]


@frozen
class Repeated:
    """Whether one MTP layer's weights serve every depth: what the key says, else Bridge's default, the line cited."""

    key: str
    depths: str
    bridge: str
    said: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if self.said else ()

    def settled(self, config: Mapping[str, Any]) -> Repeated:
        """The same, citing the key where `config` has it."""
        return Repeated(self.key, self.depths, self.bridge, self.key in config)

    def read(self, fields: Fields) -> bool:
        repeated = fields.flag(self.key, True)
        return repeated and bool(fields.config.get(self.depths))


Rule = (
    Int | Flag | Product | HeadDim | Indexes | Alternating | Every | Positions | Const | Times | Else | Pattern | Length
    | Repeated
)  # fmt: skip


@frozen
class Only:
    """A key that may be absent, or have one of these values: any other makes a model that the facts cannot say."""

    key: str
    allowed: tuple[Any, ...]
    why: str

    def check(self, fields: Fields) -> None:
        """Record a refusal where the value is another one; true is not 1 here."""
        value = fields.get(self.key)
        if self.key in fields.config and not any(value == a and type(value) is type(a) for a in self.allowed):
            want = " or ".join(show(a) for a in self.allowed)
            fields.refuse("import.unsupported_value", self.key, f"{show(value)} is not {want}: {self.why}")


@frozen
class Family:
    """What one `model_type` means: a rule for each fact, keys with few legal values, remarks for the declaration."""

    facts: Mapping[str, Rule]
    only: tuple[Only, ...] = ()
    notes: tuple[str, ...] = ()
    vision: Mapping[str, Rule] = Factory(dict)
    """Rules for `vision_config`; the language model is then in `text_config`."""
    vision_only: tuple[Only, ...] = ()
    outer: Mapping[str, Rule] = Factory(dict)
    """Facts at the top of a configuration that has a `text_config`."""
    bridge: bool = True
    """Whether Megatron Bridge 0.6.2 has a bridge for it."""

    def settled(self, config: Mapping[str, Any]) -> Family:
        """The same, with the rules that can read several keys settled on the ones that `config` has."""
        text = config.get("text_config") if self.vision else config
        said: Mapping[str, Any] = text if isinstance(text, Mapping) else {}
        return evolve(self, facts={f: _settled(r, said) for f, r in self.facts.items()})


def _settled(rule: Rule, config: Mapping[str, Any]) -> Rule:
    return rule.settled(config) if isinstance(rule, Pattern | Length | Repeated | Every | Else) else rule
