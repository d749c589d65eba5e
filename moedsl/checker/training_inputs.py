"""What a run trains on and from, where its file leaves it open or speaks of what it has not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from moedsl.checker.program import Program
from moedsl.diagnostics.model import DROP, Diagnostic, Fix, error, warning
from moedsl.rules.ids import LetName

_ID = "plan.sft_without_weights"
_TEXT = "`task sft` names no checkpoint, and Bridge fine-tunes from one only"
_HELP = (
    'write `set checkpoint.pretrained_checkpoint = "PATH"`; AutoBridge.import_ckpt makes one of the Hugging Face model',
    'or go on from a run\'s own: `set checkpoint.load = "PATH"`',
)
_CITES = ("bridge training/finetune.py:50", "bridge training/setup.py:185")
_SOURCES = ("checkpoint.pretrained_checkpoint", "checkpoint.load")


def without_weights(p: Program) -> Iterator[Diagnostic]:
    """A warning where a run fine-tunes, and neither it nor a rule that it has says where its weights are."""
    named = {path for path, value in p.sets.items() if value is not None} | {r.name for r in p.of("derive")}
    if _lacks_weights(p.task, named):
        yield warning(_ID, _TEXT, p.spans["task"], help=_HELP, cites=_CITES)


def no_folder(p: Program) -> Iterator[Diagnostic]:
    """An error for each `set` that is of a folder of JSONL, in a run that reads none."""
    if not p.sets or (p.task == "sft" and p.data != "mock" and p.model.vision is None):
        return
    from moedsl.megatron.families import CHOICES

    for path in (path for path in p.sets if path in CHOICES):
        text = f"`{path}` is of the folder of JSONL that a text model is fine-tuned on, and this run reads none"
        drop = (Fix(f"Drop the `set` of `{path}`", DROP, p.spans[path]),)
        yield error("check.no_folder", text, p.spans[path], help='write `task sft` and `data "FOLDER"`', fixes=drop)


def small_vocabulary(p: Program, values: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """A warning where a run's real text is cut by a tokenizer that has more entries than the model; `values` are a
    layout's."""
    entries, rows = values[LetName.TOKENIZER_ENTRIES], p.model.vocab
    if p.model.vision is not None or entries <= rows:
        return
    text = f"the tokenizer of {p.model.hf} has {entries} entries and the model {rows}, which Bridge refuses"
    fits = -(-entries // values["tp"]) * values["tp"]
    help = f"write `set model.vocab_size = {fits}`, a multiple of tp; a checkpoint must have as many rows"
    cites = ("bridge recipes/moonlight/h100/moonlight_16b.py:52", "bridge training/setup.py:707")
    yield warning("plan.small_vocabulary", text, p.spans["data"], help=help, cites=cites)


def refused(name: str, task: str, fields: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """The same of a plan that is to be started, as an error: training would end once the model is built."""
    named = {path for path, value in fields.items() if value is not None}
    if _lacks_weights(task, named):
        yield error(_ID, f"run `{name}` cannot start: {_TEXT}", help=_HELP, cites=_CITES)


def _lacks_weights(task: str, named: Collection[str]) -> bool:
    return task == "sft" and not any(path in named for path in _SOURCES)
