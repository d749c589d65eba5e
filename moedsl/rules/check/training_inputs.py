"""Check the data and the weights of a run: files of another kind, missing weights, those of another model, and a
vocabulary too small."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from moedsl.facts.families import dataset_class
from moedsl.facts.symbols import FINE_TUNES, VLM_WORDS
from moedsl.rules.check.program import Program
from moedsl.rules.ids import LetName
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, error, warning

_ID = "plan.sft_without_weights"
_TEXT = "`task {}` names no checkpoint, and Bridge fine-tunes only from a checkpoint"
_HELP = (
    'write `weights hf "ORG/NAME"`, which imports them, or `weights "PATH"` for a checkpoint',
    'or continue an earlier run: `set checkpoint.load = "PATH"`',
)
_CITES = ("bridge training/finetune.py:50", "bridge training/setup.py:185")
_FILES = (".jsonl", ".json", ".jsonl.gz", ".parquet")
_INDEXED = (".bin", ".idx")
_FOLDER = "bridge data/builders/gpt_sft.py:799"
_PREFIX = "core datasets/indexed_dataset.py:601"
_CORPUS = ("dataset.data_path", "dataset.blend", "dataset.blend_per_split")
_BLEND = "core datasets/utils.py:49"
_PRETRAINED = "checkpoint.pretrained_checkpoint"
_SOURCES = {"sft": (_PRETRAINED, "checkpoint.load"), "peft": (_PRETRAINED,)}
"""The fields that name the weights, by task; adapters need those below them (bridge training/config.py:1488)."""


def without_weights(p: Program) -> Iterator[Diagnostic]:
    """Warn if a run fine-tunes, and neither its file nor its rules name the weights."""
    if _needs_weights(p.task, _named(p)):
        yield warning(_ID, _TEXT.format(p.task), p.spans["task"], help=_help(p.task), cites=_CITES)


def frozen_at_random(p: Program) -> Iterator[Diagnostic]:
    """Warn if a run pretrains a VLM on real images with frozen parts, and names no weights for them."""
    frozen = [word for word in VLM_WORDS if word in p.vlm]
    if not frozen or p.data == "mock" or p.task in FINE_TUNES or not _named(p).isdisjoint(_SOURCES["sft"]):
        return
    text = f"`vlm {' '.join(frozen)}` freezes what no checkpoint fills: it keeps its random weights"
    cites = ("bridge training/setup.py:174", "bridge training/checkpointing.py:2292")
    yield warning("check.frozen_at_random", text, p.spans["vlm"], help=_FILLED, cites=cites)


def _named(p: Program) -> frozenset[str]:
    """The fields that a run or its rules state."""
    return frozenset({path for path, value in p.sets.items() if value is not None} | {r.name for r in p.of("derive")})


_FILLED = (
    f'write `set {_PRETRAINED} = "PATH"` with a checkpoint of Megatron, or a folder with the Hugging Face model',
    "or train these parts too",
)
_CONFIGURED = "bridge models/conversion/model_bridge.py:457"
_SHAPE = ("layers", "hidden", "heads", "query_groups", "head_dim", "experts", "expert_hidden")
"""Facts without which no checkpoint of a model is one of another."""


def of_another_model(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Refuse weights of a model of the library whose shape is not that of the run's model, and warn of any others."""
    if p.hub_weights in (None, p.model.hf):
        return
    models = (library.model(name)[0] for name in library.models)
    theirs = next((m for m in models if m is not None and m.hf == p.hub_weights), None)
    differ = [n for n in _SHAPE if theirs is not None and getattr(theirs, n) != getattr(p.model, n)]
    if theirs is not None and differ:
        has, wants = (f"{differ[0]} {getattr(m, differ[0])}" for m in (theirs, p.model))
        text = f"`{theirs.hf}` has another shape than {p.model.name}: {has}, not {wants}"
        help = f'write `weights hf "{p.model.hf}"`, or `model {theirs.name}`'
        yield error("check.weights", text, p.spans["weights"], help=help)
        return
    text = f"the recipe builds `{p.model.hf}`, with its tokenizer and rotary base, and not that of `{p.hub_weights}`"
    help = (
        f"if the two config.json differ, `moedsl models add config.json --name NAME --hf {p.hub_weights}` declares the "
        "other: its recipe builds it"
    )
    yield warning("check.other_weights", text, p.spans["weights"], help=help, cites=(_CONFIGURED,))


def wrong_file(p: Program) -> Iterator[Diagnostic]:
    """Warn if the data of a text model is not what Bridge reads: a file, several corpora, or none."""
    # Warn if a run without `data` sets the path of a corpus: the recipe is that of a run on mock data
    path = next((path for path in _CORPUS if p.sets.get(path)), None)
    if p.data == "mock" and path is not None:
        text = (
            f"`{path}` names a corpus, and without `data` the run is for mock data: 50 steps, no validation, no saves"
        )
        help = f'add `data "PATH"` with one of its prefixes; `{path}` then replaces that path'
        yield warning("plan.mock_with_corpus", text, p.spans[path], help=help, cites=(_BLEND,))
    dataset = dataset_class(p.model.vision is not None, p.task, p.data == "mock")
    if dataset == "GPTSFTDatasetConfig":
        yield from _not_a_folder(p)
    elif dataset == "GPTDatasetConfig":
        yield from _not_a_prefix(p)


def _not_a_prefix(p: Program) -> Iterator[Diagnostic]:
    """Warn if a run pretrains on one file, because Megatron adds two endings to what the run names, or on several."""
    paths = [word for word in p.data.split() if word.startswith("/")]
    if len(paths) > 1:
        text = f"`{p.data}` looks like several corpora, and `data` names one"
        words = ", ".join(f'"{word}"' for word in p.data.split())
        help = f'write `data "{paths[0]}"`, and `set {_CORPUS[0]} = [{words}]`'
        yield warning("plan.not_a_prefix", text, p.spans["data"], help=help, cites=(_BLEND,))
        return
    text = f"`{p.data}` looks like a file, and Megatron pretrains on the prefix of a `.bin` and an `.idx` file"
    help = None
    if p.data.endswith(_INDEXED):
        help = f'write `data "{p.data[:-4]}"`'
    elif p.data.endswith((*_FILES, ".txt")):
        help = (
            "tokenise it with Megatron's `tools/preprocess_data.py`, and write the prefix of the files that this makes"
        )
    if help is not None:
        yield warning("plan.not_a_prefix", text, p.spans["data"], help=help, cites=(_PREFIX,))


def _not_a_folder(p: Program) -> Iterator[Diagnostic]:
    """Warn if a run fine-tunes on what looks like one file: Bridge reads a folder."""
    folder, _, name = p.data.rpartition("/")
    if p.samples is not None and p.samples.source == "folder" and name.endswith(_FILES):
        text = f"`{p.data}` looks like a file, and Bridge fine-tunes on a folder with `training.jsonl`"
        right = f'data "{folder or "."}"'
        help = f"name the file `training.jsonl`, add a `validation.jsonl` to its folder, and write `{right}`"
        yield warning("plan.not_a_folder", text, p.spans["data"], help=help, cites=(_FOLDER,))


def small_vocabulary(p: Program, values: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Warn if the tokenizer of a run on real text has more entries than the model; `values` are a layout's."""
    entries, rows = values[LetName.TOKENIZER_ENTRIES], p.model.vocab
    if p.model.vision is not None or entries <= rows:
        return
    text = f"the tokenizer of {p.model.hf} has {entries} entries and the model {rows}, which Bridge refuses"
    fits = -(-entries // values["tp"]) * values["tp"]
    help = f"write `set model.vocab_size = {fits}`, a multiple of tp; a checkpoint must have as many rows"
    cites = ("bridge recipes/moonlight/h100/moonlight_16b.py:52", "bridge training/setup.py:707")
    yield warning("plan.small_vocabulary", text, p.spans["data"], help=help, cites=cites)


def refused(name: str, task: str, fields: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Refuse to start a plan without weights: training would end after the model is built."""
    named = {path for path, value in fields.items() if value is not None}
    if _needs_weights(task, named):
        yield error(_ID, f"run `{name}` cannot start: {_TEXT.format(task)}", help=_help(task), cites=_CITES)


def _help(task: str) -> tuple[str, ...]:
    return _HELP[: len(_SOURCES[task])]


def _needs_weights(task: str, named: Collection[str]) -> bool:
    return task in _SOURCES and not any(path in named for path in _SOURCES[task])
