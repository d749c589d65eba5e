"""Report the sample lengths of a fine-tuning file, in bounded memory and time.

Each JSONL line is parsed as Bridge's fine-tuning data sets do; its tokens are counted with a tokenizer or estimated
from its bytes. The report has percentiles, a histogram, how full sequences get, and the statements for a run file.
"""

from __future__ import annotations

import json
import math
import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, BinaryIO

from attrs import frozen

from moedsl.facts.fine_tuning import filled, groups
from moedsl.lang.printer import quote
from moedsl.support.text import counted, table, tokens, wrapped

TURNS = ("messages", "conversation", "conversations")
"""The keys that can hold a conversation's turns (bridge data/sft_processing.py:142)."""
PAIRS = (("input", "output"), ("prompt", "completion"))
"""The keys of a prompt and its answer; a recipe reads only the first pair (bridge data/builders/gpt_sft.py:71)."""
INSTRUCTION = "instruction"
"""Alpaca's key for the task that applies to `input`; a recipe does not read it."""
_ANSWERS = ("assistant", "gpt")
"""The roles whose turns a model is trained on (bridge data/conversation_processing.py:35)."""


@frozen
class Sample:
    """The text of one line: a prompt with its answer, or the turns of a conversation."""

    keys: tuple[str, ...]
    text: str = ""
    turns: tuple[Mapping[str, str], ...] = ()

    @property
    def is_answered(self) -> bool:
        """Whether the sample has text that a model is trained on."""
        return not self.turns or any(t["role"] in _ANSWERS for t in self.turns)


class BadLine(ValueError):
    """Raised for a line that is not a sample; has the reason and the line's number."""

    def __init__(self, reason: str, number: int = 1) -> None:
        super().__init__(reason)
        self.number, self.reason = number, reason


def read_sample(line: bytes) -> Sample:
    """Parse one line; raises BadLine."""
    if len(line) >= MOST_LINE:
        raise BadLine(f"is longer than {MOST_LINE >> 20} MiB")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise BadLine("is not JSON") from e
    if not isinstance(row, dict):
        raise BadLine("is not a JSON object")
    for keys in PAIRS:
        if all(isinstance(row.get(k), str) for k in keys):
            beside = (INSTRUCTION,) if row.get(INSTRUCTION) else ()
            return Sample((*beside, *keys), " ".join(row[k] for k in keys))
    for key in TURNS:
        if isinstance(row.get(key), list):
            if not row[key]:
                raise BadLine(f"has no turn in `{key}`")
            turns = list[Mapping[str, str]]()
            for turn in row[key]:
                found = turn if isinstance(turn, dict) else {}
                role, text = found.get("role", found.get("from")), found.get("content", found.get("value"))
                if not isinstance(role, str) or not isinstance(text, str):
                    raise BadLine("has a turn without `role` and `content`, which are texts")
                turns.append({"role": role.lower(), "content": text})
            return Sample((key,), turns=tuple(turns))
    raise BadLine(f"is no sample: its keys are {', '.join(map(str, row)) or 'none'}")


BLOCKS = 64
"""The number of parts of a large file. Their order spreads what was read over the whole file if time runs out."""
_STRIDE = 39
"""The step from one part to the next, modulo BLOCKS: near 64 over the golden ratio, which spaces them evenly."""
WHOLE = 1 << 22
"""A file of at most this many bytes is read in one part."""
MOST_LINE = 1 << 26
"""The most bytes of a line."""
EXACT = 1 << 16
"""Lengths up to this many tokens are counted exactly; longer ones are rounded to multiples of `_STEP`."""
_STEP = 1 << 8
_OFTEN = 64
"""Lines between two checks of the clock."""

Tokens = Callable[[Sample], int]


@frozen
class Measured:
    """Statistics of a file's samples."""

    counts: Counter[int]
    """The number of samples with each token count."""
    keys: Counter[tuple[str, ...]]
    """The number of samples with each set of keys."""
    share: float
    """The share of the file that was read."""
    unanswered: int = 0
    """The number of conversations without an assistant turn."""


def measure(file: BinaryIO, tokens: Tokens, seconds: float, progress: Callable[[str], None]) -> Measured:
    """Count the tokens of each sample, and stop after `seconds` even if the file is not finished; raises BadLine."""
    size = file.seek(0, os.SEEK_END)
    n = BLOCKS if size > WHOLE else 1
    # Where each part begins and ends, in bytes; the first parts of this order are always spread over the whole file
    ends = [(size * at // n, size * (at + 1) // n) for at in (i * _STRIDE % n for i in range(n))]
    counts, keys, done, unanswered = Counter[int](), Counter[tuple[str, ...]](), 0, 0
    start = reported = time.monotonic()
    for begin, end in ends:
        at = begin
        for i, (at, line) in enumerate(_lines(file, begin, end)):
            try:
                sample = read_sample(line)
            except BadLine as e:
                file.seek(0)
                before = (file.read(min(left, 1 << 20)) for left in range(at, 0, -(1 << 20)))
                raise BadLine(e.reason, 1 + sum(part.count(b"\n") for part in before)) from e
            length = tokens(sample)
            counts[length if length <= EXACT else round(length / _STEP) * _STEP] += 1
            keys[sample.keys] += 1
            unanswered += not sample.is_answered
            now = time.monotonic() if i % _OFTEN == 0 else reported
            if now - reported > 1:
                reported = now
                progress(f"{counts.total():,} samples, {(done + at - begin) / size:.0%} of the file")
            if now - start > seconds:
                return Measured(counts, keys, (done + at - begin) / size, unanswered)
        done += end - begin
    return Measured(counts, keys, 1.0, unanswered)


def _lines(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the bytes of each non-empty line that starts in a part."""
    file.seek(max(begin - 1, 0))
    if begin:
        file.readline(MOST_LINE)  # the rest of a line that starts in the part before
    while (at := file.tell()) < end:
        line = file.readline(MOST_LINE)
        if line.strip():
            yield at, line


BYTES = 4
"""UTF-8 bytes per token: a rule of thumb for English; code and other languages have fewer."""
_AROUND = 5
"""Tokens that a chat template puts around a turn: its start, the role, its end and line breaks."""
_END = 1
"""The end-of-text token that Bridge adds (bridge data/datasets/gpt_sft.py)."""


def estimated(sample: Sample) -> int:
    """Estimate a sample's tokens from its bytes, without a tokenizer."""
    if sample.turns:
        return sum(_AROUND + len(t["content"].encode()) // BYTES for t in sample.turns)
    return _END + -(-len(sample.text.encode()) // BYTES)


def of_tokenizer(name: str) -> Tokens:
    """Load a Hugging Face tokenizer by folder or name, and return its token counter; transformers' errors pass."""
    from transformers import AutoTokenizer  # imported only where a tokenizer is named

    loaded: Any = AutoTokenizer.from_pretrained(name)

    def count(sample: Sample) -> int:
        if not sample.turns:
            return _END + len(loaded(sample.text, add_special_tokens=False)["input_ids"])
        if loaded.chat_template:
            return len(loaded.apply_chat_template([*sample.turns], tokenize=True, return_dict=False))
        return sum(_AROUND + len(loaded(t["content"], add_special_tokens=False)["input_ids"]) for t in sample.turns)

    return count


_SHARES = (0.5, 0.9, 0.99)
_SEQUENCES = tuple(1 << n for n in range(11, 18))
_BAR = 40
SEQ, BATCH = 4096, 32
"""The default sequence length and batch for fine-tuning on few GPUs (stdlib/rules/batch.moe)."""
_COLUMNS = (
    "in one: the samples of a packed sequence",
    "in all: the packed sequences of the file; `batch` must not be larger",
    "packed, padded: the share of the tokens that is theirs; cut: the samples that are longer",
)


def report(m: Measured, folder: str, tokenizer: str | None, also: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report on the samples as JSON; `also` are further notes on their files."""
    total, lengths, longest = m.counts.total(), groups(m.counts), max(m.counts)
    all_tokens = sum(n * c for n, c in m.counts.items())
    sequences = _sequence(lengths, m, SEQ)["sequences"]
    batch = _batch(sequences)
    ordered = sorted(m.counts.items())
    reached = [*accumulate(c for _, c in ordered)]
    histogram = Counter[int]()  # the number of samples by length, rounded up to a power of two
    for n, count in ordered:
        histogram[1 << max(n - 1, 0).bit_length()] += count
    # Report sequence lengths up to the first that cuts no sample
    whole = next((s for s in _SEQUENCES if s >= longest), _SEQUENCES[-1])
    return {
        "version": 1, "samples": total, "tokens": all_tokens, "tokenizer": tokenizer, "read": m.share,
        "keys": {"+".join(k): c for k, c in m.keys.items()}, "mean": all_tokens / total,
        "percentiles": {f"{100 * s:g}": ordered[bisect_left(reached, s * total)][0] for s in _SHARES},
        "longest": longest, "histogram": {str(n): c for n, c in histogram.items()},
        "sequences": [_sequence(lengths, m, seq) for seq in _SEQUENCES if seq <= whole], "lengths": lengths,
        "notes": [*_notes(m), *also], "batch": batch, "epoch": math.ceil(sequences / (batch or BATCH)),
        "statement": f"data {quote(folder)} lengths=[{', '.join(map(str, lengths))}]",
    }  # fmt: skip


def text(r: dict[str, Any], name: str) -> str:
    """Format a report as text."""
    how = f"by {r['tokenizer']}" if r["tokenizer"] else "estimated at 4 bytes each: `--tokenizer` counts them"
    part = "" if r["read"] == 1 else f"; {r['read']:.0%} of the file was read, from all over it"
    shares = ", ".join(f"{n}% {v:,}" for n, v in r["percentiles"].items())
    most = max(r["histogram"].values())
    bars = [(f"{int(n):,}", f"{c:,}", "#" * -(-c * _BAR // most)) for n, c in r["histogram"].items()]
    by_sequence = [
        (tokens(s["seq"]), f"{s['samples']:.1f}", f"{s['sequences']:,}", f"{s['packed']:.0%}", f"{s['padded']:.0%}",
         f"{s['cut']:.1%}")
        for s in r["sequences"]
    ]  # fmt: skip
    batch = r["batch"] or BATCH
    lines = [
        f"{name}: {counted(r['samples'], 'sample', ',')}, {r['tokens']:,} tokens ({how}){part}",
        f"  mean {r['mean']:,.0f}, {shares}, longest {r['longest']:,}",
        "",
        *table([("up to", "samples", ""), *bars], "rrl"),
        "",
        *table([("seq", "in one", "in all", "packed", "padded", "cut"), *by_sequence]),
        "",
        *(wrapped(line, "", "  ") for line in _COLUMNS),
        *(line for note in r["notes"] for line in ("", wrapped(note, "", "  "))),
        "",
        "For the run file:",
        r["statement"],
    ]
    if r["batch"]:
        lines.append(f"batch {batch}   # the samples do not fill the default batch at {tokens(SEQ)}")
    if any("+" not in k for k in r["keys"]):
        lines.append('set dataset.preprocessing = "chat"')
    # The statement for a run's length in epochs, with the steps of one epoch
    steps = f"{counted(r['epoch'], 'step', ',')} of {counted(batch, 'sequence', ',')} at {tokens(SEQ)}"
    return "\n".join([*lines, f"# set train.num_epochs = 1   # {steps}"])


def validation_note(training: Measured, m: Measured) -> str | None:
    """Say that the validation samples may not fill a batch; None if they do.

    A batch has a sequence for each data-parallel replica, and no run has more replicas than sequences per step.
    """
    n, most = (_sequence(groups(x.counts), x, SEQ)["sequences"] for x in (m, training))
    if n >= (_batch(most) or BATCH):
        return None
    return (
        f"validation.jsonl fills {counted(n, 'sequence', ',')} of {tokens(SEQ)}: it must fill a batch of validation, "
        "which is at least one sequence on each data-parallel replica."
    )


def _notes(m: Measured) -> Iterator[str]:
    """Yield a note on each thing in the samples that a recipe does not read or train on."""
    if n := sum(c for k, c in m.keys.items() if INSTRUCTION in k):
        yield (
            f"{counted(n, 'sample', ',')} with `{INSTRUCTION}`: a recipe reads `input` and `output` alone, and so does "
            f"this page. Write `{INSTRUCTION}` and `input` into one text, `input`."
        )
    if any(k[-2:] == PAIRS[1] for k in m.keys):
        yield f"A recipe reads `input` and `output`: rename the keys of {' and '.join(PAIRS[1])}."
    talks = sum(c for k, c in m.keys.items() if k[0] in TURNS)
    if pairs := talks and m.counts.total() - talks:
        yield (
            f"{counted(talks, 'conversation', ',')} and {counted(pairs, 'pair', ',')} of texts: a run reads "
            "conversations or pairs, and fails at the first line of the other kind. Write all in one form."
        )
    if m.unanswered:
        yield (
            f"{counted(m.unanswered, 'conversation', ',')} without a turn of the assistant: a model learns nothing of "
            "them."
        )


def _batch(sequences: int) -> int | None:
    """Return the largest power of two up to `sequences`, as the batch; None if they fill the default batch."""
    return 1 << sequences.bit_length() - 1 if sequences < BATCH else None


def _sequence(lengths: list[int], m: Measured, seq: int) -> dict[str, Any]:
    packed, padded = (filled(lengths, seq, pack, 1) for pack in (True, False))
    total = m.counts.total()
    cut = sum(c for n, c in m.counts.items() if n > seq) / total
    sequences = math.ceil(total / m.share / packed.samples)
    return {
        "seq": seq, "samples": packed.samples, "sequences": sequences, "packed": packed.useful,
        "padded": padded.useful, "cut": cut,
    }  # fmt: skip
