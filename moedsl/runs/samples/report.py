"""Report the lengths of samples: percentiles, a histogram, what they fill of a sequence, and a run file's words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from moedsl.facts.samples import filled, groups
from moedsl.lang.printer import quote
from moedsl.runs.samples.measure import INSTRUCTION, PAIRS, TURNS, Measured
from moedsl.support.text import counted, table, tokens, wrapped

_SHARES = (0.5, 0.9, 0.99)
_SEQUENCES = tuple(1 << n for n in range(11, 18))
_BAR = 40
SEQ, BATCH = 4096, 32
"""The defaults of a run that fine-tunes on few GPUs (stdlib/rules/batch.moe)."""
_COLUMNS = (
    "in one: the samples of a packed sequence",
    "in all: the packed sequences of the file; `batch` must not be larger",
    "packed, padded: the share of the tokens that is theirs; cut: the samples that are longer",
)


def report(m: Measured, folder: str, tokenizer: str | None, also: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that is known of the samples, as JSON; `also` are notes on their files."""
    total, lengths = m.counts.total(), groups(m.counts)
    sequences = _sequence(lengths, m, SEQ)["sequences"]
    batch = _batch(sequences)
    return {
        "version": 1,
        "samples": total,
        "tokens": sum(n * c for n, c in m.counts.items()),
        "tokenizer": tokenizer,
        "read": m.share,
        "keys": {"+".join(k): c for k, c in m.keys.items()},
        "mean": sum(n * c for n, c in m.counts.items()) / total,
        "percentiles": {f"{100 * s:g}": _percentile(m.counts, s) for s in _SHARES},
        "longest": max(m.counts),
        "histogram": _histogram(m.counts),
        "sequences": [_sequence(lengths, m, seq) for seq in _useful(m.counts)],
        "lengths": lengths,
        "notes": [*_notes(m), *also],
        "batch": batch,
        "epoch": math.ceil(sequences / (batch or BATCH)),
        "statement": f"data {quote(folder)} lengths=[{', '.join(map(str, lengths))}]",
    }


def text(r: dict[str, Any], name: str) -> str:
    """Write a report for people."""
    how = f"by {r['tokenizer']}" if r["tokenizer"] else "estimated at 4 bytes each: `--tokenizer` counts them"
    part = "" if r["read"] == 1 else f"; {r['read']:.0%} of the file was read, from all over it"
    shares = ", ".join(f"{n}% {v:,}" for n, v in r["percentiles"].items())
    most = max(r["histogram"].values())
    bars = [(f"{int(n):,}", f"{c:,}", "#" * -(-c * _BAR // most)) for n, c in r["histogram"].items()]
    held = [
        (
            tokens(s["seq"]),
            f"{s['samples']:.1f}",
            f"{s['sequences']:,}",
            f"{s['packed']:.0%}",
            f"{s['padded']:.0%}",
            f"{s['cut']:.1%}",
        )
        for s in r["sequences"]
    ]
    chat = any("+" not in k for k in r["keys"])
    return "\n".join(
        [
            f"{name}: {counted(r['samples'], 'sample', ',')}, {r['tokens']:,} tokens ({how}){part}",
            f"  mean {r['mean']:,.0f}, {shares}, longest {r['longest']:,}",
            "",
            *table([("up to", "samples", ""), *bars], "rrl"),
            "",
            *table([("seq", "in one", "in all", "packed", "padded", "cut"), *held]),
            "",
            *(wrapped(line, "", "  ") for line in _COLUMNS),
            *(line for note in r["notes"] for line in ("", wrapped(note, "", "  "))),
            "",
            "For the run file:",
            r["statement"],
            *([_statement(r["batch"])] if r["batch"] else []),
            *(['set dataset.preprocessing = "chat"'] if chat else []),
            _epoch(r["epoch"], r["batch"] or BATCH),
        ]
    )


def _epoch(steps: int, batch: int) -> str:
    """Show how a run states its length in epochs, with the steps of one."""
    said = f"{counted(steps, 'step', ',')} of {counted(batch, 'sequence', ',')} at {tokens(SEQ)}"
    return f"# set train.num_epochs = 1   # {said}"


def _notes(m: Measured) -> Iterator[str]:
    """What a recipe does not read of the samples as they are."""
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


def validation_note(training: Measured, m: Measured) -> str | None:
    """Say that the samples for validation may not fill a batch: no run has more replicas than sequences of a step."""
    n, most = (_sequence(groups(x.counts), x, SEQ)["sequences"] for x in (m, training))
    if n >= (_batch(most) or BATCH):
        return None
    return (
        f"validation.jsonl fills {counted(n, 'sequence', ',')} of {tokens(SEQ)}: it must fill a batch of validation, "
        "which is at least one sequence on each data-parallel replica."
    )


def _statement(batch: int) -> str:
    return f"batch {batch}   # the samples do not fill the default batch at {tokens(SEQ)}"


def _batch(sequences: int) -> int | None:
    """The largest batch that any common number of GPUs divides, of samples that do not fill the default batch."""
    return 1 << sequences.bit_length() - 1 if sequences < BATCH else None


def _percentile(counts: Counter[int], share: float) -> int:
    left = share * counts.total()
    for n, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return n
    return max(counts)


def _histogram(counts: Counter[int]) -> dict[str, int]:
    """The number of samples up to each power of two, and above the one before."""
    found = Counter[int]()
    for n, count in counts.items():
        found[1 << max(n - 1, 0).bit_length()] += count
    return {str(n): found[n] for n in sorted(found)}


def _useful(counts: Counter[int]) -> tuple[int, ...]:
    """The sequences that are worth a look: up to the first that cuts no sample."""
    whole = next((s for s in _SEQUENCES if s >= max(counts)), _SEQUENCES[-1])
    return tuple(s for s in _SEQUENCES if s <= whole)


def _sequence(lengths: list[int], m: Measured, seq: int) -> dict[str, Any]:
    packed, padded = (filled(lengths, seq, pack, 1) for pack in (True, False))
    total = m.counts.total()
    cut = sum(c for n, c in m.counts.items() if n > seq) / total
    sequences = math.ceil(total / m.share / packed.samples)
    return {
        "seq": seq, "samples": packed.samples, "sequences": sequences, "packed": packed.useful,
        "padded": padded.useful, "cut": cut,
    }  # fmt: skip
