"""Find the place in NVIDIA's code that raised an error, what it checks, and the statement of the run file to change.

messages.jsonl.gz lists each `raise`, `assert` and logged error of Megatron-Core, megatron.training, Megatron Bridge and
Transformer Engine with its lines in each release (tools/make_messages.py). An error is found there by its text; if it
has no text, or if several places have the same text, by the last frames of its traceback.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import re2
from attrs import frozen

from moedsl.diagnose.errors import Error, Frame
from moedsl.emit.fields import SECTIONS
from moedsl.emit.settings import decided_fields
from moedsl.facts import axes, fields
from moedsl.planner.plan import Plan
from moedsl.rules.rule import Rule

_FILE = Path(__file__).with_name("messages.jsonl.gz")
_ROOTS = {  # below site-packages
    "core": "megatron/core/", "training": "megatron/training/", "bridge": "megatron/bridge/",
    "te": "transformer_engine/",
}  # fmt: skip
PACKAGES = {
    "core": "Megatron-Core", "training": "megatron.training", "bridge": "Megatron Bridge", "te": "Transformer Engine",
}  # fmt: skip
SHORTEST = 6
"""The fewest characters of fixed text by which a message is recognised."""
PLACES = 4
"""The most places that are reported for one text."""
OTHER_NAMES = {
    "num_experts": "num_moe_experts",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "num_layers_per_virtual_pipeline_stage": "virtual_pipeline_model_parallel_size",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "bias_swiglu_fusion": "bias_activation_fusion",
    "tp_size": "tensor_model_parallel_size", "cp_size": "context_parallel_size",
    "pp_size": "pipeline_model_parallel_size", "ep_size": "expert_model_parallel_size",
    "etp_size": "expert_tensor_parallel_size", "vp_size": "virtual_pipeline_model_parallel_size",
    "mbs": "micro_batch_size", "gbs": "global_batch_size",
}  # fmt: skip
"""The field that each name stands for: arguments of Megatron-LM (training argument_utils.py:303) and variables."""
_NOT_IMPORTED = {"ImportError", "ModuleNotFoundError"}
_MACHINES = ("world_size", "data_parallel_size", "dp_size")
"""Values that follow from the number of GPUs."""
_STATEMENTS = {
    "seq": "seq N",
    "global_batch": "batch N",
    "data": "data ...",
    "adapter": "adapter ...",
    "pack": "data ...",
}
"""The statements for keywords that are not axes."""
_WORDS = {row.path: row.word for s in reversed(SECTIONS) for row in reversed(s.rows) if row.word}
"""The keyword that decides each field."""
_NAMED = re2.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|--[a-z][a-z0-9-]+|\bseq_length\b")
"""Matches a field or an argument that a text names; RE2 takes linear time for a line of any length."""


@frozen
class Message:
    """One error that NVIDIA's code can raise."""

    package: str
    file: str
    function: str
    kind: str
    """The class of the exception, or "logged"."""
    text: str
    """The message, with `{name}` for each value; may be empty."""
    names: tuple[str, ...]
    """Names of the values that the check reads or the text shows."""
    check: str
    """The condition that is asserted, or that leads to the `raise`; empty if it is long, or none is near."""
    lines: Mapping[str, tuple[int, int]]
    """The first and last line in each release of Bridge, with its Megatron-Core."""

    @property
    def literals(self) -> tuple[str, ...]:
        """The fixed parts of the text, without its values."""
        return tuple(t.strip() for t, *_ in Formatter().parse(self.text) if t.strip())

    @property
    def place(self) -> str:
        """A citation of the line in the newest release: ``core transformer/moe/router.py:295``."""
        return f"{self.package} {self.file}:{self.lines[self.release][1]}"

    @property
    def release(self) -> str:
        """The newest Bridge release that has the message."""
        return [*self.lines][-1]


@frozen
class Read:
    """A value that a check reads, and where a run file states it."""

    name: str
    path: str | None
    """The field of Bridge's configuration."""
    statement: str
    value: Any = None
    """The value in the plan; None without a plan, or if the plan leaves the value to Bridge."""


@cache
def known() -> tuple[tuple[Message, tuple[str, ...]], ...]:
    """Return every message of every release, with the fixed parts of its text."""
    with gzip.open(_FILE, "rt", encoding="utf-8") as stream:
        rows = (Message(**json.loads(line)) for line in stream)
        return tuple((m, m.literals) for m in rows)


def find(e: Error) -> list[Message]:
    """Find the places that may have raised an error, the best first: by its text, else by its traceback's frames."""
    of_frames = list(_of_frames(e.frames))
    text = re.sub(r"\s+", " ", e.text).strip()
    best, found = 0, list[Message]()
    for m, literals in known():
        size = sum(map(len, literals))
        if size < max(best, SHORTEST) or not _has(text, literals):
            continue
        # a log may show a subclass or an alias of the class that the code names
        if (
            m.kind != e.kind
            and e.kind not in ("", "logged")
            and not (m.kind.endswith("Error") != e.kind.endswith("Error") or {m.kind, e.kind} <= _NOT_IMPORTED)
        ):
            continue
        if size > best:
            best, found = size, []
        found.append(m)
    if not found:
        return [m for m in of_frames if m.kind == e.kind and (not m.literals or _has(text, m.literals))][:PLACES]
    files = {of_frame(f) for f in e.frames}
    agreeing = [m for m in found if m in of_frames] or [m for m in found if (m.package, m.file) in files]
    return (agreeing or sorted(found, key=lambda m: (m.kind != e.kind, m.place)))[:PLACES]


def _has(text: str, literals: tuple[str, ...]) -> bool:
    """Whether a text contains all fixed parts in this order; False if there are none."""
    at = 0
    for part in literals:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return bool(literals)


def of_frame(frame: Frame) -> tuple[str, str] | None:
    """Return the package of a frame in NVIDIA's code, and the file's path in it; None for a frame in other code."""
    for package, root in _ROOTS.items():
        before, found, file = frame.file.rpartition(root)
        if found and (not before or before.endswith("/")):
            return package, file
    return None


def _of_frames(frames: tuple[Frame, ...]) -> Iterator[Message]:
    """Yield the messages at the last frame in NVIDIA's code: by the check in its source, else by its line number."""
    last = next(((f, *p) for f in reversed(frames) if (p := of_frame(f))), None)
    if last is None:
        return
    frame, package, file = last
    function = frame.function.rpartition(".")[2].replace("<module>", "")
    near = [m for m, _ in known() if (m.package, m.file, m.function.rpartition(".")[2]) == (package, file, function)]
    code = _bare(frame.code)
    checked = [m for m in near if m.check and code.startswith("assert ") and _bare(m.check) in code]
    yield from checked or (m for m in near if any(a <= frame.line <= b for a, b in m.lines.values()))


def _bare(code: str) -> str:
    """Normalise source for comparison: drop prefixes such as `self.config.`, and unify quotes and blanks."""
    code = re.sub(r"\b(?:(?:self|config|args|cfg|model_config|transformer_config|model_cfg|cls)\.)+", "", code)
    return re.sub(r"\s+", " ", code.replace('"', "'")).strip()


def reads(m: Message | None, e: Error, plan: Plan | None = None) -> list[Read]:
    """List the settings that a check reads or its text names; those in the text come first."""
    code = e.frames[-1].code if m is None and e.frames else ""
    named = [w.removeprefix("--").replace("-", "_") for w in _NAMED.findall(f"{e.text} {m.text if m else ''} {code}")]
    values = decided_fields(plan) if plan else {}
    out: dict[str, Read] = {}
    for name in [*named, *(m.names if m else ())]:
        made = _read(name, values, plan)
        if made is not None:
            out.setdefault(made.statement, made)
    return list(out.values())


def _read(name: str, values: Mapping[str, Any], plan: Plan | None) -> Read | None:
    if name in _MACHINES:
        return Read(name, None, "the number of GPUs", plan.gpus if plan else None)
    path = fields_by_name().get(OTHER_NAMES.get(name, name))
    if path is None:
        return None
    word = _WORDS.get(path)
    if word is None:
        return Read(name, path, f"set {path} = ...", values.get(path))
    statement = f"pin {word}=..." if word in axes.BY_NAME else _STATEMENTS.get(word, f"set {path} = ...")
    return Read(name, path, statement, values.get(path))


@cache
def fields_by_name() -> Mapping[str, str]:
    """Map each field name to its path; the model's field takes precedence over other sections'."""
    out: dict[str, str] = {}
    for path in fields.field_names():
        section, _, name = path.partition(".")
        if name not in out or section in ("model", "ddp"):
            out[name] = path
    # leave out names that code often uses for something else than a field
    return {n: p for n, p in out.items() if "_" in n or n in ("precision", "recompute", "bf16", "fp16", "fp8", "fp4")}


def stating(rules: Iterable[Rule], places: Iterable[Message]) -> list[str]:
    """Return the ids of rules that state what messages check: rules that cite the lines or the line right before."""
    cited: set[str] = set()
    for m in places:
        first, last = m.lines[m.release]
        whose = ("core", f"training/{m.file}") if m.package == "training" else (m.package, m.file)
        cited |= {f"{w} {f}:{n}" for w, f in (whose, (m.package, m.file)) for n in range(first - 1, last + 1)}
    return [r.id for r in rules if r.kind != "symptom" and not cited.isdisjoint(r.cites)]
