"""Reading a configuration: keys that are read, required or allowed are marked; the others are not understood."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import Factory, define, evolve, field, frozen

from moedsl.diagnostics.model import Diagnostic, error

LARGEST = 1 << 32
"""No count of a real model comes near it."""


@define
class Fields:
    """One JSON object of a configuration, which keys were understood, and what was wrong with the others.

    `path` is the dotted prefix of the object in its file (``text_config.``), empty at the top.
    """

    config: Mapping[str, Any]
    path: str = ""
    known: set[str] = field(factory=set)
    problems: list[Diagnostic] = field(factory=list)

    def refuse(self, slug: str, key: str, message: str, **more: Any) -> None:
        """Record one refusal; `values` of the diagnostic hold the field's path and its value."""
        values = {"field": self.path + key, "value": self.config.get(key)}
        self.problems.append(error(slug, f"{self.path}{key}: {message}", values=values, **more))

    def get(self, key: str) -> Any:
        """The value, None where the key is absent; the key counts as understood."""
        self.known.add(key)
        return self.config.get(key)

    def integer(self, key: str, least: int, absent: int | None, null: int | None) -> int:
        """A whole number of at least `least`; on a mistake records it and returns `least`."""
        value = self.get(key)
        stand_in = null if key in self.config else absent
        if value is None and stand_in is not None:
            return stand_in
        if value is None:
            self._nothing(key)
        elif not _is_int(value):
            self.refuse("import.wrong_type", key, f"expected a whole number, got {show(value)}")
        elif value < least:
            self.refuse("import.unsupported_value", key, f"expected {least} or more, got {show(value)}")
        elif value > LARGEST:
            self.refuse("import.unsupported_value", key, f"expected no more than {LARGEST}, got {show(value)}")
        else:
            return int(value)
        return least

    def flag(self, key: str, absent: bool | None) -> bool:
        """true or false; on a mistake records it and returns False."""
        value = self.get(key)
        if isinstance(value, bool):
            return value
        if key not in self.config and absent is not None:
            return absent
        if value is None:
            self._nothing(key)
        else:
            self.refuse("import.wrong_type", key, f"expected true or false, got {show(value)}")
        return False

    def _nothing(self, key: str) -> None:
        if key in self.config:
            self.refuse("import.wrong_type", key, "expected a value, got null")
        else:
            self.refuse("import.missing_field", key, "missing field, which has no safe default")

    def unknown(self) -> list[str]:
        """Keys with a value that nothing has understood; a leading underscore marks the library's own notes."""
        return [k for k, v in self.config.items() if k not in self.known and v is not None and not k.startswith("_")]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def show(value: Any) -> str:
    """A JSON value as a short text: ``"softmax"``, ``null``, ``[0, 0, 1, ...]``, ``{...}``."""
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(v) for v in value[:3]) + (", ...]" if len(value) > 3 else "]")
    if isinstance(value, str) and len(value) > 60:
        return f'"{value[:57]}..."'
    return json.dumps(value)


# ---------------------------------------------------------------- where a fact comes from


@frozen
class Int:
    """A whole number of the configuration. `absent` and `null` stand in for a missing key and for JSON's null."""

    key: str
    least: int = 1
    absent: int | None = None
    null: int | None = None
    note: str = ""
    """Comment to write where the number is 0."""

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def read(self, fields: Fields) -> int:
        return fields.integer(self.key, self.least, self.absent, self.null)


@frozen
class Flag:
    """true or false of the configuration."""

    key: str
    absent: bool | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

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
class Indexes:
    """A list of layer numbers."""

    key: str

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def read(self, fields: Fields) -> tuple[int, ...]:
        value = fields.get(self.key)
        if isinstance(value, list) and all(_is_int(v) and v >= 0 for v in value):
            return tuple(value)
        fields.refuse("import.wrong_type", self.key, f"expected a list of layer numbers, got {show(value)}")
        return ()


@frozen
class Alternating:
    """`layer_types` that alternate windowed and full attention, a windowed layer first; absent means so too."""

    key: str = "layer_types"
    layers: str = "num_hidden_layers"

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def read(self, fields: Fields) -> int:
        value, layers = fields.get(self.key), fields.config.get(self.layers)
        pair = ["sliding_attention", "full_attention"]
        if value is not None and not (isinstance(layers, int) and _alternates(value, pair, layers)):
            fields.refuse("import.unsupported_value", self.key, "windowed and full attention must alternate")
        return 2


def _alternates(value: Any, pair: list[str], layers: int) -> bool:
    return isinstance(value, list) and len(value) == layers and all(v == pair[i % 2] for i, v in enumerate(value))


@frozen
class Every:
    """One layer in so many has full attention, the others linear attention: a number, a list of the layers' kinds, or
    both.

    Hugging Face's classes make the list of the number, the last of each so many layers full
    (Qwen3NextConfig.__post_init__), and newer ones write the list alone.
    """

    key: str = "full_attention_interval"
    listed: str = "layer_types"
    layers: str = "num_hidden_layers"
    keys: tuple[str, ...] = ("full_attention_interval", "layer_types")

    def settled(self, config: Mapping[str, Any]) -> Every:
        """The same, citing the keys that `config` has."""
        said = tuple(key for key in (self.key, self.listed) if config.get(key) is not None)
        return evolve(self, keys=said or self.keys)

    def read(self, fields: Fields) -> int:
        said, kinds = fields.get(self.key), fields.get(self.listed)
        if said is None and kinds is None:
            fields.refuse("import.missing_field", self.key, f"missing, and {self.listed} too: one of them is needed")
        every = None if said is None else fields.integer(self.key, 2, None, None)
        listed = None if kinds is None else self._listed(kinds, fields)
        if every and listed and every != listed:
            fields.refuse("import.unsupported_value", self.key, f"{every}, but {self.listed} has one in {listed}")
        return every or listed or 2

    def _listed(self, kinds: Any, fields: Fields) -> int:
        """The number that a list means; 0 after a refusal."""
        layers = fields.config.get(self.layers)
        every = kinds.index("full_attention") + 1 if isinstance(kinds, list) and "full_attention" in kinds else 0
        if every > 1 and layers == len(kinds) and kinds == _mostly_linear(every, len(kinds)):
            return every
        why = f"{show(kinds)}: only a list of {show(layers)} kinds that has linear_attention, but for full_attention"
        fields.refuse("import.unsupported_value", self.listed, f"{why} in the last of each group, is supported")
        return 0


def _mostly_linear(every: int, layers: int) -> list[str]:
    return ["linear_attention" if i % every else "full_attention" for i in range(1, layers + 1)]


@frozen
class Positions:
    """yarn where the configuration scales its rotary embedding so, else rope, as Bridge reads it
    (models/conversion/model_bridge.py:678-685); `rope_parameters` is what newer configurations call it."""

    key: str = "rope_scaling"
    newer: str = "rope_parameters"

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

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
class Times:
    """So many times another number, as Megatron-Core has it in the line cited where the configuration says nothing."""

    times: int
    key: str
    core: str

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

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


LETTERS: Mapping[str, str] = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}
"""Megatron's letter for each kind of block that a configuration lists."""


@frozen
class Pattern:
    """A hybrid's blocks as Megatron's letters: a word of letters, or a list of the blocks' kinds.

    Hugging Face's class reads either and writes the list (NemotronHConfig.__post_init__). `depths` is the key without
    which there are none of these blocks.
    """

    word: str
    listed: str
    depths: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.word, self.listed)

    def settled(self, config: Mapping[str, Any]) -> Pattern:
        """The same, citing the one key that `config` has."""
        both = (self.word, self.listed)
        said = [key for key in both if config.get(key) is not None]
        return self if len(said) != 1 else Pattern(said[0], said[0], self.depths)

    def read(self, fields: Fields) -> str:
        read = {key: _letters(fields, key) for key in self.keys}
        said = {key: letters for key, letters in read.items() if letters is not None}
        if self.depths and not fields.config.get(self.depths):
            return ""
        if not said:
            fields.refuse("import.missing_field", self.word, f"missing, and {self.listed} too: one of them is needed")
        if len(set(said.values())) > 1:
            fields.refuse("import.unsupported_value", self.word, f"contradicts {self.listed}")
        return next(iter(said.values()), "")


def _letters(fields: Fields, key: str) -> str | None:
    """The letters that one key says; "" after a refusal, None where it says nothing."""
    value = fields.get(key)
    if value is None:
        return None
    kinds = [LETTERS.get(v) if isinstance(v, str) else None for v in value] if isinstance(value, list) else None
    letters = value if kinds is None else "".join(k or "?" for k in kinds)
    if not isinstance(letters, str) or not letters:
        fields.refuse("import.wrong_type", key, f"expected a pattern of blocks, got {show(value)}")
        return ""
    strange = sorted({v for v in value if v not in (LETTERS.values() if kinds is None else LETTERS)}, key=str)
    if strange:
        known = ", ".join(LETTERS.values() if kinds is None else LETTERS)
        said = ", ".join(show(v) for v in strange)
        fields.refuse("import.unsupported_value", key, f"{said}: only blocks of {known} are supported")
    return "" if strange else letters


@frozen
class Length:
    """How many blocks a pattern has; a number that says so too must agree."""

    pattern: Pattern
    count: str = "num_hidden_layers"

    @property
    def keys(self) -> tuple[str, ...]:
        return self.pattern.keys

    def settled(self, config: Mapping[str, Any]) -> Length:
        """The same, citing the one key that `config` has."""
        return Length(self.pattern.settled(config), self.count)

    def read(self, fields: Fields) -> int:
        letters = self.pattern.read(fields)
        if fields.get(self.count) is None or not letters:
            return max(1, len(letters))
        said = fields.integer(self.count, 1, None, None)
        if said != len(letters):
            fields.refuse("import.unsupported_value", self.count, f"{said}, but the pattern has {len(letters)} blocks")
        return said


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
    Int
    | Flag
    | Product
    | HeadDim
    | Indexes
    | Alternating
    | Every
    | Positions
    | Const
    | Times
    | Else
    | Pattern
    | Length
    | Repeated
)


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
