"""Read a line of JSONL as Bridge's data sets for fine-tuning do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

TURNS = ("messages", "conversation", "conversations")
"""The keys of a conversation (bridge data/sft_processing.py:142)."""
PAIRS = (("input", "output"), ("prompt", "completion"))
"""The keys of a prompt and its answer; a recipe reads the first pair (bridge data/builders/gpt_sft.py:71)."""


INSTRUCTION = "instruction"
"""What a line of Alpaca asks of its `input`; a recipe does not read it."""
_ANSWERS = ("assistant", "gpt")
"""The roles whose turns a model learns (bridge data/conversation_processing.py:35)."""


class NotASample(ValueError):
    """A line that is no sample, with the reason."""


@frozen
class Sample:
    """The text of a line: a prompt and its answer, or the turns of a conversation."""

    keys: tuple[str, ...]
    text: str = ""
    turns: tuple[Mapping[str, str], ...] = ()

    @property
    def is_answered(self) -> bool:
        """Whether it has text that a model learns."""
        return not self.turns or any(t["role"] in _ANSWERS for t in self.turns)


def read(line: bytes) -> Sample:
    """Read one line; raises NotASample."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise NotASample("is not JSON") from e
    if not isinstance(row, dict):
        raise NotASample("is not a JSON object")
    for keys in PAIRS:
        if all(isinstance(row.get(k), str) for k in keys):
            beside = (INSTRUCTION,) if row.get(INSTRUCTION) else ()
            return Sample((*beside, *keys), " ".join(row[k] for k in keys))
    for key in TURNS:
        if isinstance(row.get(key), list):
            if not row[key]:
                raise NotASample(f"has no turn in `{key}`")
            return Sample((key,), turns=tuple(_turn(t) for t in row[key]))
    raise NotASample(f"is no sample: its keys are {', '.join(map(str, row)) or 'none'}")


def _turn(turn: Any) -> Mapping[str, str]:
    found = turn if isinstance(turn, dict) else {}
    role, text = found.get("role", found.get("from")), found.get("content", found.get("value"))
    if not isinstance(role, str) or not isinstance(text, str):
        raise NotASample("has a turn without `role` and `content`, which are texts")
    return {"role": role.lower(), "content": text}
