"""Print the parts of a VLM: encoder, projector and decoder, useful tokens, and what freezing saves."""

from __future__ import annotations

from moedsl.planner.model.estimate import MEMORY, Freeze, VisionNote
from moedsl.planner.model.plan import Plan
from moedsl.rules.ids import RuleId
from moedsl.support.json_form import ABSENT, Absent
from moedsl.support.text import table, wrapped


def parts_text(p: Plan) -> str:
    """Print the section `Parts` of a VLM's plan; empty for a text model."""
    e = p.estimate
    if e.parts is None:
        return ""
    rate, share = e.useful_tokens_per_s_per_gpu, 100 * e.useful_share
    head = f"Parts  {rate:,.0f} useful tokens/s/GPU: {share:.1f}% of a sequence trains the decoder, the rest is image"
    # Print GiB on a rank of the first stage, and seconds a step
    rows: list[tuple[str, ...]] = [("part", "parameters", *MEMORY, "total GiB", "s a step", "share")]
    for part in e.parts:
        sizes = (f"{getattr(part, f'{k}_gib'):.2f}" for k in (*MEMORY, "total"))
        time = (f"{part.time_s:.3f}", f"{100 * part.share:.1f}%")
        rows.append((part.part, f"{part.params / 1e9:.2f}B", *sizes, *time))
    lines = [head, *_mock(p), *table(rows), *_note(e.vision_note)]
    return "\n".join([*lines, *map(_frozen, e.freeze or ())])


def _mock(p: Plan) -> list[str]:
    """Print the rule on mock data, if it applies."""
    return [wrapped(f"data is mock: {m.result}") for m in p.measured if m.rule == RuleId.MOCK_DATA]


def _note(note: VisionNote | Absent | None) -> list[str]:
    if note is None or note is ABSENT:
        return []
    text = f"{100 * note.share:.0f}% of the step is vision: {note.because}; {note.fix}"
    return [wrapped(text)]


def _frozen(f: Freeze) -> str:
    """Print the gain from freezing a part."""
    verb = "buys" if f.frozen else "would buy"
    return f"  {f.name} {verb}: {f.effect}"
