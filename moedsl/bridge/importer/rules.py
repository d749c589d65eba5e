"""Define rules that read one fact from a configuration, and the families of models that use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import Factory, frozen

from moedsl.bridge.importer.layers import Fields, Rule, Value, is_int, listed_mlps, show


@frozen
class Int(Rule):
    """Read a whole number. `absent` replaces a missing key, and `null` JSON's null."""

    key: str
    least: int = 1
    absent: int | None = None
    null: int | None = None
    note: str = ""
    """A comment for the declaration if the number is 0."""

    def read(self, fields: Fields) -> int:
        return fields.integer(self.key, self.least, self.absent, self.null)


@frozen
class OfText(Rule):
    """Read a whole number from the language model that a vision tower feeds."""

    key: str

    def read(self, fields: Fields) -> int:
        return fields.text.integer(self.key) if fields.text else 1


@frozen
class Flag(Rule):
    """Read true or false."""

    key: str
    absent: bool | None = None

    def read(self, fields: Fields) -> bool:
        return fields.flag(self.key, self.absent)


@frozen
class Product(Rule):
    """Multiply two numbers, such as shared experts and the width of each."""

    key: str
    width: str

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return (self.key, self.width)

    def read(self, fields: Fields) -> int:
        return fields.integer(self.key) * fields.integer(self.width)


@frozen
class HeadDim(Rule):
    """Read `head_dim`; by default it is the hidden size divided by the heads."""

    key: str = "head_dim"

    def read(self, fields: Fields) -> int:
        if fields.get(self.key) is not None:
            return fields.integer(self.key)
        hidden, heads = fields.config.get("hidden_size"), fields.config.get("num_attention_heads")
        if not (isinstance(hidden, int) and isinstance(heads, int) and heads > 0):
            return 1  # reported where hidden size and heads are read
        if hidden % heads:
            fields.refuse("import.missing_field", self.key, f"absent, and {hidden} / {heads} is not a whole number")
        return max(1, hidden // heads)


@frozen
class Positions(Rule):
    """Read `yarn` if the configuration scales its rotary embedding with YaRN, else `rope`, as Bridge does
    (models/conversion/model_bridge.py:678-685).

    Newer configurations call the key `rope_parameters`.
    """

    key: str = "rope_scaling"
    newer: str = "rope_parameters"

    def read(self, fields: Fields) -> str:
        scaling = fields.get(self.key) or fields.get(self.newer)
        if not isinstance(scaling, Mapping):
            return "rope"
        return "yarn" if "yarn" in (scaling.get("type"), scaling.get("rope_type")) else "rope"


@frozen
class Given(Rule):
    """Read whether a key has a number; null switches the feature off."""

    key: str

    def read(self, fields: Fields) -> bool:
        value = fields.get(self.key)
        if value is not None and not (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
            fields.refuse("import.wrong_type", self.key, f"expected a number above 0 or null, got {show(value)}")
        return value is not None


@frozen
class Const(Rule):
    """Return the value that Megatron Bridge gives a fact of the family, in the cited line."""

    value: bool | str | int
    bridge: str

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return ()

    def read(self, fields: Fields) -> bool | str | int:
        return self.value


@frozen
class Times(Rule):
    """Multiply another number by `times`, which is Megatron-Core's default in the cited line."""

    times: int
    key: str
    core: str

    def read(self, fields: Fields) -> int:
        return self.times * fields.integer(self.key)


@frozen
class Else(Rule):
    """Read a key, or apply another rule if it is absent."""

    stated: Int | Flag
    otherwise: Const | Times

    def settled(self, fields: Fields) -> Rule:
        return self.stated if fields.present(self.stated.key) else self.otherwise

    def read(self, fields: Fields) -> Value:
        return self.settled(fields).read(fields)


@frozen
class OfWindows(Rule):
    """Read a number of the windowed layers from the object that states their shape.

    Without this object, Megatron Bridge takes another number, in the cited line.
    """

    inner: str
    otherwise: Const
    key: str = "attention_other_setting"
    kind: str = "sliding_attention"

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return (f"{self.key}.{self.inner}",)

    def settled(self, fields: Fields) -> Rule:
        return self if fields.present(self.key) else self.otherwise

    def read(self, fields: Fields) -> int:
        shape = fields.get(self.key)
        if not isinstance(shape, Mapping) or shape.get("attention_type") != self.kind:
            fields.unsupported(self.key, f"expected the shape of {self.kind}")
            return 1
        inside = Fields(shape, f"{fields.path}{self.key}.", problems=fields.problems)
        return inside.integer(self.inner, 1, int(self.otherwise.value))


@frozen
class Repeated(Rule):
    """Read whether one MTP layer's weights serve every depth: from the key, else Bridge's default in the cited line."""

    key: str
    depths: str
    bridge: str

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return (self.key,) if self.key in fields.config else ()

    def read(self, fields: Fields) -> bool:
        repeated = fields.flag(self.key, True)
        return repeated and bool(fields.config.get(self.depths))


@frozen
class OfMtp(Rule):
    """Return true if there are MTP layers: Megatron Bridge then sets this fact, in the cited line."""

    depths: str
    bridge: str

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return ()

    def read(self, fields: Fields) -> bool:
        return bool(fields.config.get(self.depths))


@frozen
class Only:
    """A key that may be absent or have an `allowed` value; the facts cannot express any other model."""

    key: str
    allowed: tuple[Any, ...]
    why: str

    def check(self, fields: Fields) -> None:
        """Refuse any other value; true does not equal 1 here."""
        value = fields.get(self.key)
        if self.key in fields.config and not any(value == a and type(value) is type(a) for a in self.allowed):
            want = " or ".join(show(a) for a in self.allowed)
            fields.unsupported(self.key, f"{show(value)} is not {want}: {self.why}")


@frozen
class Alike:
    """A key that may be absent or must equal `other`, from which alone Bridge builds the model."""

    key: str
    other: str

    def check(self, fields: Fields) -> None:
        """Refuse a value that differs from the other key's."""
        value = fields.get(self.key)
        if value is not None and value != fields.get(self.other):
            other = f"{self.other} is {show(fields.get(self.other))}"
            fields.unsupported(self.key, f"{show(value)}, but {other}, which Megatron Bridge builds")


@frozen
class Unbuilt:
    """A key of a part that Bridge does not build, so that any value is accepted."""

    key: str

    def check(self, fields: Fields) -> None:
        """Mark the key as read."""
        fields.get(self.key)


@frozen
class Inside:
    """A number inside an object that must equal the key `other`; if it is absent, Bridge takes `otherwise`."""

    key: str
    inner: str
    other: str
    otherwise: int

    def check(self, fields: Fields) -> None:
        """Refuse a value that differs from the other key's."""
        shape = fields.get(self.key)
        value = shape.get(self.inner, self.otherwise) if isinstance(shape, Mapping) else self.otherwise
        if value != fields.get(self.other):
            pair = f"{self.inner} is {show(value)}, and {self.other} {show(fields.get(self.other))}"
            fields.unsupported(self.key, f"{pair}: they must be alike")


@frozen
class LastLayer:
    """A key that may be absent, or names the model's last layer by its number or as -1."""

    key: str

    def check(self, fields: Fields) -> None:
        """Refuse any other layer."""
        value, layers = fields.get(self.key), fields.layers
        if value not in (None, -1) and not (isinstance(layers, int) and value == layers - 1):
            fields.unsupported(self.key, f"{show(value)} is not the last of {show(layers)} layers")


@frozen
class Dense:
    """A list of all layers' kinds that must agree with the number of leading dense layers, which alone Bridge reads."""

    key: str
    number: str
    absent: int = 0

    def check(self, fields: Fields) -> None:
        """Refuse a list with other dense layers than the leading ones."""
        kinds, dense = fields.get(self.key), fields.config.get(self.number, self.absent)
        if kinds is not None and kinds != listed_mlps(dense if is_int(dense) else 0, fields.layers or 0):
            fields.unsupported(self.key, f"{show(kinds)} contradicts {self.number}: {show(dense)}, which Bridge reads")


Check = Only | Alike | Unbuilt | Inside | LastLayer | Dense


@frozen
class Family:
    """One `model_type`: a rule for each fact, checks of other keys, and remarks for the declaration."""

    facts: Mapping[str, Rule]
    only: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    vision: Mapping[str, Rule] = Factory(dict)
    """Rules for `vision_config`; the language model is in `text_config` then."""
    vision_only: tuple[Check, ...] = ()
    outer: Mapping[str, Rule] = Factory(dict)
    """Facts at the top level of a configuration with a `text_config`."""
    language: tuple[Check, ...] = ()
    """Checks of the top level, if Bridge's recipes train only the language model in `text_config`."""
    bridge: bool = True
    """Whether Megatron Bridge 0.6.2 has a bridge for the family."""
