"""Measure a file of samples in bounded memory and time: the number of samples by their length in tokens.

A line of JSONL is read as Bridge's data sets for fine-tuning do; its tokens are counted with a tokenizer, or by bytes.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

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


def read_sample(line: bytes) -> Sample:
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


BLOCKS = 64
"""A file is read in as many parts, in an order that makes one which is not read to the end be read all over."""
_STRIDE = 39
"""Parts from one to the next: the golden ratio of 64, which leaves the gaps alike."""
WHOLE = 1 << 22
"""A file of as many bytes has one part."""
MOST_LINE = 1 << 26
"""Bytes of a line."""
EXACT = 1 << 16
"""Lengths up to this are counted one by one, longer ones in steps."""
_STEP = 1 << 8
_OFTEN = 64
"""Lines between two looks at the clock."""

Tokens = Callable[[Sample], int]


class BadLine(ValueError):
    """A line that is no sample: its number, and the reason."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number, self.reason = number, reason


@frozen
class Measured:
    """The samples of a file."""

    counts: Counter[int]
    """The number of samples by their tokens."""
    keys: Counter[tuple[str, ...]]
    """The number of samples by the keys that were read."""
    share: float
    """The part of the file that was read."""
    unanswered: int = 0
    """The conversations without a turn of the assistant."""


def measure(file: BinaryIO, tokens: Tokens, seconds: float, progress: Callable[[str], None]) -> Measured:
    """Count the tokens of each sample; of a file that takes longer, of as many as the time allows. Raises BadLine."""
    size = file.seek(0, os.SEEK_END)
    ends = _blocks(size)
    counts, keys, done, unanswered = Counter[int](), Counter[tuple[str, ...]](), 0, 0
    start = told = time.monotonic()
    for begin, end in ends:
        at = begin
        for i, (at, line) in enumerate(_lines(file, begin, end)):
            try:
                sample = read_sample(line)
            except NotASample as e:
                raise BadLine(_number(file, at), str(e)) from e
            n = tokens(sample)
            counts[n if n <= EXACT else round(n / _STEP) * _STEP] += 1
            keys[sample.keys] += 1
            unanswered += not sample.is_answered
            now = time.monotonic() if i % _OFTEN == 0 else told
            if now - told > 1:
                told = now
                progress(f"{counts.total():,} samples, {(done + at - begin) / size:.0%} of the file")
            if now - start > seconds:
                return Measured(counts, keys, (done + at - begin) / size, unanswered)
        done += end - begin
    return Measured(counts, keys, 1.0, unanswered)


def _blocks(size: int) -> list[tuple[int, int]]:
    """The first and last byte of each part, in an order whose every beginning lies all over the file."""
    n = BLOCKS if size > WHOLE else 1
    return [(size * at // n, size * (at + 1) // n) for at in (i * _STRIDE % n for i in range(n))]


def _lines(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines that start in a part, with their positions; empty ones are none."""
    file.seek(max(begin - 1, 0))
    if begin:
        file.readline(MOST_LINE)  # the end of the line that the part before has
    while (at := file.tell()) < end:
        line = file.readline(MOST_LINE)
        if len(line) == MOST_LINE:
            raise BadLine(_number(file, at), f"is longer than {MOST_LINE >> 20} MiB")
        if line.strip():
            yield at, line


def _number(file: BinaryIO, at: int) -> int:
    """The number of the line at a position."""
    file.seek(0)
    number = 1
    while (left := at - file.tell()) > 0:
        number += file.read(min(left, 1 << 20)).count(b"\n")
    return number


BYTES = 4
"""Bytes of UTF-8 for a token: a rule of thumb for English; code and other languages have fewer."""
_AROUND = 5
"""Tokens that a chat template puts around a turn: its start, the role, its end and line breaks."""
_END = 1
"""Bridge adds the end of the text (bridge data/datasets/gpt_sft.py)."""


def estimated(sample: Sample) -> int:
    """Count by bytes, without a tokenizer."""
    if sample.turns:
        return sum(_AROUND + len(t["content"].encode()) // BYTES for t in sample.turns)
    return _END + -(-len(sample.text.encode()) // BYTES)


def of_tokenizer(name: str) -> Tokens:
    """Load a tokenizer of Hugging Face, by its folder or name; raises what transformers raises."""
    from transformers import AutoTokenizer  # imported only where a tokenizer is named

    loaded: Any = AutoTokenizer.from_pretrained(name)

    def count(sample: Sample) -> int:
        if not sample.turns:
            return _END + len(loaded(sample.text, add_special_tokens=False)["input_ids"])
        if loaded.chat_template:
            return len(loaded.apply_chat_template([*sample.turns], tokenize=True, return_dict=False))
        return sum(_AROUND + len(loaded(t["content"], add_special_tokens=False)["input_ids"]) for t in sample.turns)

    return count
