"""Read the keys of a configuration (`Fields`), and which layers are dense, windowed, linear, or blocks of a hybrid.

`Fields` marks the keys that are read, required or allowed, and refuses the others.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from attrs import define, field, frozen

from moedsl.support.diagnostics import Diagnostic, error

LARGEST = 1 << 32
"""A count that no real model reaches."""
Value = int | bool | str | tuple[int, ...]


@define
class Fields:
    """One JSON object of a configuration, with the keys that were read and the mistakes in them.

    `path` is the dotted prefix of the object in its file (``text_config.``), empty at the top.
    """

    config: Mapping[str, Any]
    path: str = ""
    known: set[str] = field(factory=set)
    problems: list[Diagnostic] = field(factory=list)
    text: Fields | None = None
    """The language model's fields, if these are a vision tower's."""
    spelt: dict[str, str] = field(factory=dict)
    """Keys that rules read -> how the file spells them (importer/spellings.py)."""

    @property
    def layers(self) -> Any:
        """The number of layers as the configuration states it: any JSON value, or None."""
        return self.config.get("num_hidden_layers")

    def refuse(self, id: str, key: str, message: str, **more: Any) -> None:
        """Record one refusal; the diagnostic's `values` have the field's path and its value."""
        spelt = self.spelt.get(key, key)
        values = {"field": self.path + spelt.split(" ")[0], "value": self.config.get(key)}
        self.problems.append(error(id, f"{self.path}{spelt}: {message}", values=values, **more))

    def unsupported(self, key: str, message: str) -> None:
        """Refuse the value of a key."""
        self.refuse("import.unsupported_value", key, message)

    def only(self, key: str, supported: str) -> None:
        """Refuse the value of a key, and say which values are supported."""
        self.unsupported(key, f"{show(self.config.get(key))}: only {supported} supported")

    def get(self, key: str) -> Any:
        """Read a value, None if the key is absent; the key counts as read."""
        self.known.add(key)
        return self.config.get(key)

    def spell(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys as the file spells them, each once."""
        return tuple(dict.fromkeys(self.spelt.get(key, key) for key in keys))

    def present(self, *keys: str) -> tuple[str, ...]:
        """Return those of the keys that have a value."""
        return tuple(key for key in keys if self.config.get(key) is not None)

    def integer(self, key: str, least: int = 1, absent: int | None = None, null: int | None = None) -> int:
        """Read a whole number of at least `least`; on a mistake record it and return `least`."""
        value = self.get(key)
        if value is None:
            return self._stand_in(key, absent, null, least)
        if is_int(value) and least <= value <= LARGEST:
            return int(value)
        if is_int(value):
            bound = f"{least} or more" if value < least else f"no more than {LARGEST}"
            self.unsupported(key, f"expected {bound}, got {show(value)}")
        else:
            self.refuse("import.wrong_type", key, f"expected a whole number, got {show(value)}")
        return least

    def flag(self, key: str, absent: bool | None = None) -> bool:
        """Read true or false; on a mistake record it and return False."""
        value = self.get(key)
        if value is None:
            return bool(self._stand_in(key, absent, None, False))
        if not isinstance(value, bool):
            self.refuse("import.wrong_type", key, f"expected true or false, got {show(value)}")
        return value is True

    def _stand_in(self, key: str, absent: int | None, null: int | None, mistake: int) -> int:
        """Return `absent` for a missing key, `null` for JSON's null; if that is None, record it and return
        `mistake`."""
        stand_in = null if key in self.config else absent
        if stand_in is not None:
            return stand_in
        if key in self.config:
            self.refuse("import.wrong_type", key, "expected a value, got null")
        else:
            self.refuse("import.missing_field", key, "missing field, which has no safe default")
        return mistake

    def unknown(self) -> list[str]:
        """List the keys with a value that no rule has read; keys with a leading underscore are notes of the library."""
        return [k for k, v in self.config.items() if k not in self.known and v is not None and not k.startswith("_")]


def is_int(value: Any) -> bool:
    """Whether a value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def show(value: Any) -> str:
    """Write a JSON value as a short text: ``"softmax"``, ``null``, ``[0, 0, 1, ...]``, ``{...}``."""
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(v) for v in value[:3]) + (", ...]" if len(value) > 3 else "]")
    if isinstance(value, str) and len(value) > 60:
        return f'"{value[:57]}..."'
    return json.dumps(value)


class Rule(ABC):
    """A rule that reads one fact: from `key`, or from several `keys`."""

    __slots__ = ()
    key: str

    def keys(self, fields: Fields) -> tuple[str, ...]:
        """Return the keys that the declaration cites: those of the rule's keys that have a value."""
        return (self.key,)

    def settled(self, fields: Fields) -> Rule:
        """Return the rule that reads this configuration: this one, or its alternative."""
        return self

    @abstractmethod
    def read(self, fields: Fields) -> Value:
        """Read the fact; on a mistake record it and return a value of its type."""


@frozen
class Indexes(Rule):
    """Read a list of layer numbers."""

    key: str

    def read(self, fields: Fields) -> tuple[int, ...]:
        value = fields.get(self.key)
        if isinstance(value, list) and all(is_int(v) and v >= 0 for v in value):
            return tuple(value)
        fields.refuse("import.wrong_type", self.key, f"expected a list of layer numbers, got {show(value)}")
        return ()


@frozen
class Windows(Rule):
    """Read n where each n-th layer has full attention and the other layers have a window.

    `always` is the n that Bridge builds for any configuration; `again` is a key that repeats the pattern: n, or one
    letter for each layer of a group.
    """

    key: str = "layer_types"
    always: int = 0
    again: str = ""

    def read(self, fields: Fields) -> int:
        kinds = fields.get(self.key)
        if kinds is None and self.always:
            return self.always
        every = full_every(kinds, fields.layers, "sliding_attention")
        if not every or (self.always and every != self.always):
            group = f"the last of each {self.always or 'group'}"
            fields.only(self.key, f"windowed layers with full attention in {group} are")
        letters = fields.get(self.again) if self.again else None
        if every and letters not in (None, every, "L" * (every - 1) + "G"):
            fields.unsupported(self.again, f"{show(letters)} contradicts {self.key}")
        return every or 2


@frozen
class Firsts(Rule):
    """Read n where the first of each n layers has full attention and the others a window; the list may include MTP
    layers."""

    key: str = "layer_types"
    ahead: str = "num_nextn_predict_layers"

    def read(self, fields: Fields) -> int:
        kinds, layers, ahead = fields.get(self.key), fields.layers, fields.config.get(self.ahead) or 0
        again = kinds[1:].index(kinds[0]) + 1 if isinstance(kinds, list) and kinds[:1] and kinds[0] in kinds[1:] else 0
        total = layers + ahead if isinstance(layers, int) and isinstance(ahead, int) else None
        if again < 2 or len(kinds) not in (layers, total) or kinds != listed_firsts(again, len(kinds)):
            fields.only(self.key, "windowed layers with full attention in the first of each group are")
        return max(again, 2)


def listed_firsts(every: int, layers: int) -> list[str]:
    """List each layer's kind: full attention for the first of each `every`, a window for the rest."""
    return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]


def full_every(kinds: Any, layers: Any, other: str) -> int:
    """Return n if a list names every layer, full attention for each n-th and `other` for the rest; else 0."""
    every = kinds.index("full_attention") + 1 if isinstance(kinds, list) and "full_attention" in kinds else 0
    regular = every > 1 and layers == len(kinds) and kinds == listed_kinds(every, len(kinds), other)
    return every if regular else 0


def listed_kinds(every: int, layers: int, other: str) -> list[str]:
    """List each layer's kind: full attention for each n-th, `other` for the rest."""
    return [other if i % every else "full_attention" for i in range(1, layers + 1)]


@frozen
class Leading(Rule):
    """Read the number of dense layers before the layers with experts: a number, a list of all layers, or both if they
    agree."""

    key: str
    listed: str

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return fields.present(self.key, self.listed) or (self.key,)

    def read(self, fields: Fields) -> int:
        kinds, layers = fields.get(self.listed), fields.layers
        if kinds is None:
            return fields.integer(self.key, 0)
        dense = kinds.count("dense") if isinstance(kinds, list) else 0
        if not isinstance(kinds, list) or layers != len(kinds) or kinds != listed_mlps(dense, len(kinds)):
            fields.only(self.listed, f"a list of {show(layers)} layers, dense ones first, is")
        if fields.get(self.key) is not None and fields.integer(self.key, 0) != dense:
            fields.unsupported(self.key, f"contradicts {self.listed}, which has {dense}")
        return dense


def listed_mlps(dense: int, layers: int) -> list[str]:
    """List each layer's kind: `dense` ones, then `sparse` ones with experts."""
    return ["dense"] * dense + ["sparse"] * (layers - dense)


LONGEST = 9
"""More digits than the number of any real layer has."""


@frozen
class Numbers(Rule):
    """Read the number of leading dense layers from the numbers of the layers with experts: a list, or a text with
    commas."""

    key: str

    def read(self, fields: Fields) -> int:
        value, layers = fields.get(self.key), fields.layers
        stated = value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, list) else ""
        first = stated.split(",")[0]
        dense = int(first) if first.isdecimal() and len(first) < LONGEST else 0
        whole = isinstance(layers, int) and layers <= len(stated) + dense and stated == numbered(dense, layers)
        if not whole or not stated:
            fields.only(self.key, "experts in each layer after leading dense ones are")
        return dense


def numbered(dense: int, layers: int) -> str:
    """Join the numbers of the layers after `dense` leading ones with commas."""
    return ",".join(str(i) for i in range(dense, layers))


@frozen
class Zeros(Rule):
    """Read the number of leading zeros in a list of 0 and 1, one for each layer.

    With `alone`, a later 0 is refused. `number` is a second key that may state the count and has to agree.
    """

    key: str
    alone: bool = False
    number: str = ""

    def read(self, fields: Fields) -> int:
        marks, layers = fields.get(self.key), fields.layers
        if not isinstance(marks, list) or len(marks) != layers or not all(is_int(v) and v in (0, 1) for v in marks):
            fields.refuse("import.wrong_type", self.key, f"expected {show(layers)} of 0 and 1, got {show(marks)}")
            return 0
        leading = (*marks, 1).index(1)
        if self.alone and marks != leading_zeros(leading, len(marks)):
            fields.unsupported(self.key, f"{show(marks)}: only leading layers can be 0")
        if self.number and fields.integer(self.number, 0, leading, leading) != leading:
            fields.unsupported(self.number, f"contradicts {self.key}, which has {leading}")
        return leading


def leading_zeros(zeros: int, layers: int) -> list[int]:
    """Mark every layer: 0 for the leading ones, 1 for the rest."""
    return [0] * zeros + [1] * (layers - zeros)


@frozen
class Marked(Rule):
    """Read n where each n-th layer has full attention, from a list with 0 for full attention and 1 for a window.

    Leading layers may have full attention too.
    """

    key: str

    def read(self, fields: Fields) -> int:
        marks = fields.get(self.key)
        leading = Zeros(self.key).read(fields)
        later = marks[leading:] if isinstance(marks, list) else []
        every = later.index(0) + leading + 1 if 0 in later else 0
        if every < 2 or marks != marked_windows(every, leading, len(marks)):
            fields.only(self.key, "full attention in leading layers and the last of each group is")
        return max(every, 2)


def marked_windows(every: int, leading: int, layers: int) -> list[int]:
    """Mark every layer: 0 for full attention, 1 for a window."""
    return [int(i > leading and i % every > 0) for i in range(1, layers + 1)]


@frozen
class Sharing(Rule):
    """Read n where each n-th layer has its own indexer, after leading layers that each have one.

    A list of all layers must agree with n and the number of leading layers.
    """

    key: str = "index_topk_freq"
    leading: str = "index_skip_topk_offset"
    listed: str = "indexer_types"

    def read(self, fields: Fields) -> int:
        every, leading = fields.integer(self.key, 1, 1), fields.integer(self.leading, 0, 0)
        kinds = fields.get(self.listed)
        whole = isinstance(kinds, list) and len(kinds) == fields.layers
        if kinds is not None and not (whole and kinds == listed_indexers(every, leading, len(kinds))):
            fields.unsupported(self.listed, f"{show(kinds)} contradicts {self.key}: {every}")
        return every


def listed_indexers(every: int, leading: int, layers: int) -> list[str]:
    """List each layer's kind: `full` with an indexer, `shared` with the keys that an earlier layer selected."""
    return ["shared" if max(i - max(leading, 1), 0) % every else "full" for i in range(1, layers + 1)]


@frozen
class Every(Rule):
    """Read n where each n-th layer has full attention and the others linear attention: a number, a list of kinds, or
    both.

    Hugging Face's classes make the list from the number, with full attention in the last layer of each group
    (Qwen3NextConfig.__post_init__); newer classes write only the list.
    """

    key: str = "full_attention_interval"
    listed: str = "layer_types"

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return fields.present(self.key, self.listed) or (self.key, self.listed)

    def read(self, fields: Fields) -> int:
        number, kinds = fields.get(self.key), fields.get(self.listed)
        if number is None and kinds is None:
            fields.refuse("import.missing_field", self.key, f"missing, and {self.listed} too: one of them is needed")
        every = None if number is None else fields.integer(self.key, 2)
        listed = full_every(kinds, fields.layers, "linear_attention")
        if kinds is not None and not listed:
            linear = f"a list of {show(fields.layers)} kinds that has linear_attention"
            fields.only(self.listed, f"{linear}, but for full_attention in the last of each group, is")
        if every and listed and every != listed:
            fields.unsupported(self.key, f"{every}, but {self.listed} has one in {listed}")
        return every or listed or 2


LETTERS: Mapping[str, str] = {
    "mamba": "M",
    "attention": "*",
    "moe": "E",
    "mlp": "-",
    "linear_attention": "M",
    "full_attention": "*",
}
"""Megatron's letter for each kind of block that a configuration lists; transformers 5.24 has other names for two."""


@frozen
class Pattern(Rule):
    """Read a hybrid's blocks as Megatron's letters, from a string of letters or a list of kinds.

    Hugging Face's class reads either and writes the list (NemotronHConfig.__post_init__). If the key `depths` has no
    value, the blocks do not exist, and the pattern is empty.
    """

    word: str
    listed: str
    depths: str = ""

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return fields.present(self.word, self.listed) or (self.word, self.listed)

    def read(self, fields: Fields) -> str:
        letters = list[str]()  # of each key that there is; "" after a refusal
        for key in (self.word, self.listed):
            if (value := fields.get(key)) is None:
                continue
            known = [*(LETTERS.values() if isinstance(value, str) else LETTERS)]
            if not isinstance(value, str | list) or not value:
                fields.refuse("import.wrong_type", key, f"expected a pattern of blocks, got {show(value)}")
                letters.append("")
            elif strange := sorted({show(v) for v in value if v not in known}):
                fields.unsupported(key, f"{', '.join(strange)}: only blocks of {', '.join(known)} are supported")
                letters.append("")
            else:
                letters.append(value if isinstance(value, str) else "".join(LETTERS[kind] for kind in value))
        if self.depths and not fields.config.get(self.depths):
            return ""
        if not letters:
            fields.refuse("import.missing_field", self.word, f"missing, and {self.listed} too: one of them is needed")
        if len(set(letters)) > 1:
            fields.unsupported(self.word, f"contradicts {self.listed}")
        return next(iter(letters), "")


@frozen
class Length(Rule):
    """Count the blocks of a pattern; a number in the configuration must agree."""

    pattern: Pattern
    count: str = "num_hidden_layers"

    def keys(self, fields: Fields) -> tuple[str, ...]:
        return self.pattern.keys(fields)

    def read(self, fields: Fields) -> int:
        letters = self.pattern.read(fields)
        if fields.get(self.count) is None or not letters:
            return max(1, len(letters))
        stated = fields.integer(self.count)
        if stated != len(letters):
            fields.unsupported(self.count, f"{stated}, but the pattern has {len(letters)} blocks")
        return stated
