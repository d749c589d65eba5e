"""Find the place in NVIDIA's code that raised an error, what it checks, and the statement of the run file to change.

messages.jsonl.gz lists each `raise`, `assert` and logged error of Megatron-Core, megatron.training, Megatron Bridge and
Transformer Engine with its lines in each release (tools/make_messages.py). An error is found there by its text; by the
last frames of its traceback if it has no text, or if several places have that one.
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
"""The fewest letters of fixed text that name a message without its class."""
PLACES = 4
"""The most places of one text that are told."""
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
"""Arguments of Megatron-LM (training argument_utils.py:303) and variables that hold a field of another name."""
_NOT_IMPORTED = {"ImportError", "ModuleNotFoundError"}
_MACHINES = ("world_size", "data_parallel_size", "dp_size")
"""What follows from the number of GPUs."""
_STATEMENTS = {
    "seq": "seq N",
    "global_batch": "batch N",
    "data": "data ...",
    "adapter": "adapter ...",
    "pack": "data ...",
}
"""Statements of the words that are no axes."""
_WORDS = {row.path: row.word for s in reversed(SECTIONS) for row in reversed(s.rows) if row.word}
"""The keyword that decides each field."""
_NAMED = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|--[a-z][a-z0-9-]+|\bseq_length\b")
"""A field or an argument that a text names."""


@frozen
class Message:
    """One error that NVIDIA's code can raise."""

    package: str
    file: str
    function: str
    kind: str
    """The class of the exception, or "logged"."""
    text: str
    """With `{name}` for a value; may be empty."""
    names: tuple[str, ...]
    """The values that its check reads or its text shows."""
    check: str
    """The relation that was asserted, or that raised; empty if it is long, or no condition is near."""
    lines: Mapping[str, tuple[int, int]]
    """The first and last line in each release of Bridge, with its Megatron-Core."""

    @property
    def literals(self) -> tuple[str, ...]:
        """The fixed parts of its text."""
        return tuple(t.strip() for t, *_ in Formatter().parse(self.text) if t.strip())

    @property
    def place(self) -> str:
        """As a citation of the newest release that has it: ``core transformer/moe/router.py:295``."""
        return f"{self.package} {self.file}:{self.lines[self.release][1]}"

    @property
    def release(self) -> str:
        """The newest release of Bridge that has it."""
        return [*self.lines][-1]


@frozen
class Read:
    """A value that a check reads, and where a run file states it."""

    name: str
    path: str | None
    """The field of Bridge's configuration."""
    statement: str
    value: Any = None
    """In the plan; None without a plan, or if the plan leaves it to Bridge."""


@cache
def known() -> tuple[tuple[Message, tuple[str, ...]], ...]:
    """Every message of every release with the fixed parts of its text."""
    with gzip.open(_FILE, "rt", encoding="utf-8") as stream:
        rows = (Message(**json.loads(line)) for line in stream)
        return tuple((m, m.literals) for m in rows)


def find(e: Error) -> list[Message]:
    """The places that may have raised an error, the best first: those whose text it has, else that of its frames."""
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
    """Whether a text has fixed parts in their order."""
    at = 0
    for part in literals:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return bool(literals)


def of_frame(frame: Frame) -> tuple[str, str] | None:
    """The package and the file below it of a frame in NVIDIA's code; None for another one."""
    for package, root in _ROOTS.items():
        before, found, file = frame.file.rpartition(root)
        if found and (not before or before.endswith("/")):
            return package, file
    return None


def _of_frames(frames: tuple[Frame, ...]) -> Iterator[Message]:
    """The messages at the last frame of NVIDIA's code: those whose check its source has, else those of its line."""
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
    """Source without the objects that hold its values, and with one kind of quotes and of blanks."""
    code = re.sub(r"\b(?:(?:self|config|args|cfg|model_config|transformer_config|model_cfg|cls)\.)+", "", code)
    return re.sub(r"\s+", " ", code.replace('"', "'")).strip()


def reads(m: Message | None, e: Error, plan: Plan | None = None) -> list[Read]:
    """The settings that a check reads or its text names, those in the text first."""
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
    """The field that a name means: the model's before those of other sections."""
    out: dict[str, str] = {}
    for path in fields.field_names():
        section, _, name = path.partition(".")
        if name not in out or section in ("model", "ddp"):
            out[name] = path
    # names that code uses for much else than a field
    return {n: p for n, p in out.items() if "_" in n or n in ("precision", "recompute", "bf16", "fp16", "fp8", "fp4")}


def stating(rules: Iterable[Rule], places: Iterable[Message]) -> list[str]:
    """The rules that state what messages check: they cite its lines, or the one right before."""
    cited: set[str] = set()
    for m in places:
        first, last = m.lines[m.release]
        whose = ("core", f"training/{m.file}") if m.package == "training" else (m.package, m.file)
        cited |= {f"{w} {f}:{n}" for w, f in (whose, (m.package, m.file)) for n in range(first - 1, last + 1)}
    return [r.id for r in rules if r.kind != "symptom" and not cited.isdisjoint(r.cites)]
