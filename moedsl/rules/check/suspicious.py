"""Warn of what is valid but probably not meant: a batch in tokens, weights of another model, hidden text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from moedsl.cost.parameters import unique
from moedsl.facts.axes import PRECISION
from moedsl.facts.facts import Hardware
from moedsl.facts.families import dataset_class
from moedsl.facts.symbols import BYTES, FINE_TUNES, HARDWARE, VLM_WORDS
from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import number
from moedsl.rules.library import Library
from moedsl.rules.stdlib import LetName
from moedsl.support.diagnostics import Diagnostic, Instead, error, warning
from moedsl.support.source import Span, of_stdlib
from moedsl.support.text import HIDDEN, visible

MOST_SEQUENCES = 1 << 18
"""A larger batch is probably not in sequences: DeepSeek-V3 was trained with 15,360 (arXiv:2412.19437, 4.2)."""
LEAST_BYTES = 1_000_000
"""A smaller amount of memory is probably in another unit."""
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def batch_of_tokens(p: Program) -> Iterator[Diagnostic]:
    """Warn of a batch that is probably a number of tokens."""
    if p.batch is None or p.batch <= MOST_SEQUENCES or "batch" not in p.spans:
        return
    help = "divide tokens by the sequence length"
    if 0 < p.seq <= p.batch:
        right, tokens = f"batch {p.batch // p.seq}", f"{p.batch:,} tokens in sequences of {p.seq:,}"
        help = Instead(f"if these are {tokens}, write `{right}`", right)
    yield warning("check.batch_tokens", p.spans["batch"], batch=p.batch, help=help)


def memory_in_bytes(p: Program) -> Iterator[Diagnostic]:
    """Warn if a wish of the run compares memory with a small number without a unit, or limits what the GPU has instead
    of what the layout needs."""
    compared = (e for r in p.rules if r.wish for e in ast.walk(r.expr) if isinstance(e, ast.Binary))
    for e in (e for e in compared if e.op in _COMPARISONS):
        for name, amount, below in ((e.left, e.right, ("<", "<=")), (e.right, e.left, (">", ">="))):
            if not (isinstance(name, ast.Name) and name.id in BYTES and isinstance(amount, ast.Number)):
                continue
            if amount.unit == "%":
                help = Instead(f"write `{amount.text} * memory`", f"{amount.text} * memory")
                yield warning("check.bytes:share", amount.span, name=name.id, amount=amount.text, help=help)
            if amount.unit is None and 0 < number(amount) < LEAST_BYTES:
                help = Instead(f"write `{amount.text} GB`", f"{amount.text} GB")
                yield warning("check.bytes:bytes", amount.span, name=name.id, amount=amount.text, help=help)
            if e.op in below and name.id in HARDWARE:
                help = Instead("write `peak_memory` for what a layout needs", "peak_memory")
                yield warning("check.bytes:what", name.span, name=name.id, help=help)


def rate_not_stated(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Warn if the run's own hardware states no rate for its precision."""
    pin, hw = p.pins.get("precision"), p.hardware
    word = PRECISION[pin.code] if pin else p.precision
    if word in PRECISION[1:] and hw.rate_of(word) == "bf16" and not of_stdlib(library.hardware[hw.name].span.file):
        rate = word if word in ("mxfp8", "nvfp4") else "fp8"
        at, bf16 = pin.span if pin else p.spans["precision"], hw.tflops["bf16"]
        yield warning("check.no_rate", at, hw=hw.name, word=word, bf16=bf16, rate=rate)


CAPABILITIES = {"ampere": (8.0, 9.0), "hopper": (9.0, 10.0), "blackwell": (10.0, 13.0), "rubin": (10.0, math.inf)}
"""The compute capabilities of a generation's GPUs, from the first to below the second."""


def capability_of_another_arch(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Warn if a hardware's capability, which laws read, is not of the generation that sets its prices."""
    hw = p.hardware
    at = next((f.value.span for f in library.hardware[hw.name].facts if f.name.id == "capability"), None)  # type: ignore[union-attr]
    fitting = [arch for arch, (least, above) in CAPABILITIES.items() if least <= hw.capability < above]
    if at is not None and hw.arch not in fitting:
        help = f"state the arch and the capability of one GPU; {' and '.join(fitting)} may have {hw.capability:g}"
        help = help if fitting else "state those of one GPU"
        yield warning("check.capability", at, arch=hw.arch, capability=hw.capability, help=help)


BANDWIDTHS = {"hbm": (1e11, 1e14), "nvlink": (1e9, 1e13), "network": (1e8, 1e13)}
"""Range of bytes/s per GPU: from a tenth of the slowest that trains to over four times the fastest announced."""
_OTHER = {"GB/s": "TB/s", "TB/s": "GB/s"}


def bandwidth_of_no_gpu(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Warn if a bandwidth of the run's own hardware is probably in the wrong unit."""
    for fact in library.hardware[p.hardware.name].facts:
        least, most = BANDWIDTHS.get(fact.name.id, (0.0, math.inf))
        value = fact.value
        if isinstance(value, ast.Number) and value.unit in _OTHER and not least <= number(value) <= most:
            right = f"{value.text.removesuffix(value.unit).strip()} {_OTHER[value.unit]}"
            help = Instead(f"if the unit is wrong, write `{right}`", right)
            yield warning("check.bandwidth", value.span, fact=fact.name.id, hardware=p.hardware.name, help=help)


_SAVED = 'or continue an earlier run: `set checkpoint.load = "PATH"`'
_IMPORTS = 'write `weights hf "ORG/NAME"`, which imports them, or `weights "PATH"` for a checkpoint'
_HELP = {"sft": (_IMPORTS, _SAVED), "peft": (_IMPORTS,)}
_CITES = ("bridge training/finetune.py:50", "bridge training/setup.py:185")
_FILES = (".jsonl", ".json", ".jsonl.gz", ".parquet")
_INDEXED = (".bin", ".idx")
_CORPUS = ("dataset.data_path", "dataset.blend", "dataset.blend_per_split")
_PRETRAINED = "checkpoint.pretrained_checkpoint"
_SOURCES = {"sft": (_PRETRAINED, "checkpoint.load"), "peft": (_PRETRAINED,)}
"""The fields that name weights, by task; an adapter needs the weights that it adapts (bridge
training/config.py:1488)."""


def without_weights(p: Program) -> Iterator[Diagnostic]:
    """Warn if a run fine-tunes but neither its file nor its rules name the weights."""
    if p.task in _SOURCES and _named(p).isdisjoint(_SOURCES[p.task]):
        at, help = p.spans["task"], _HELP[p.task]
        yield warning("plan.sft_without_weights:plan", at, task=p.task, help=help, cites=_CITES)


def continued(p: Program) -> Iterator[Diagnostic]:
    """Warn if a run pretrains further from weights and states no learning rate, or no scale of longer positions."""
    if p.task in _SOURCES or "weights" not in p.spans:
        return
    named, at, m = _named(p), p.spans["weights"], p.model
    if "optimizer.lr" not in named:
        cites = ("bridge training/setup.py:174", "bridge recipes/utils/optimizer_utils.py")
        yield warning("check.continued_rate", at, cites=cites)
    field = "model.yarn_rotary_scaling_factor" if m.position_embedding_type == "yarn" else "model.rotary_base"
    field = "model.rotary_scaling_factor" if m.attention == "mla" else field
    if 0 < m.max_seq < p.seq and field not in named:
        yield warning("check.continued_length", at, model=m.name, longest=m.max_seq, seq=p.seq, field=field)


def import_in_one_node(p: Program, machine: Hardware) -> Iterator[Diagnostic]:
    """Warn if one node may have less host memory than the import of Hugging Face's weights, which one process does."""
    has, least = machine.node_memory or machine.host_memory, 2 * unique(p.model)  # in BF16
    if p.hub_weights is None or not 0 < has < 2 * least:
        return
    lower, upper, of_node = (f"{value / 1e12:,.2f}" for value in (least, 2 * least, has))
    told = {"hub": p.hub_weights, "gpu": p.hardware.name, "least": lower, "most": upper, "has": of_node}
    cites = ("bridge models/conversion/auto_bridge.py:1389",)
    yield warning("check.import_memory", p.spans["weights"], **told, cites=cites)


def frozen_at_random(p: Program) -> Iterator[Diagnostic]:
    """Warn if a run pretrains a VLM on real images with frozen parts but names no weights for them."""
    frozen = [word for word in VLM_WORDS if word in p.vlm]
    if not frozen or p.data == "mock" or p.task in FINE_TUNES or not _named(p).isdisjoint(_SOURCES["sft"]):
        return
    cites = ("bridge training/setup.py:174", "bridge training/checkpointing.py:2292")
    yield warning("check.frozen_at_random", p.spans["vlm"], frozen=" ".join(frozen), cites=cites)


def _named(p: Program) -> frozenset[str]:
    """Return the fields that a run or its rules set."""
    return frozenset(
        {path for path, value in p.sets.items() if value is not None} | {r.name for r in p.of("derive") if not r.is_std}
    )


_SHAPE = ("layers", "hidden", "heads", "query_groups", "head_dim", "experts", "expert_hidden")
"""Facts that differ only if a checkpoint of one model cannot load into another."""


def of_another_model(p: Program, library: Library) -> Iterator[Diagnostic]:
    """Refuse weights of a library model whose shape differs from the run's model, and warn of all other foreign
    weights."""
    if p.hub_weights in (None, p.model.hf):
        return
    models = (library.model(name)[0] for name in library.models)
    theirs = next((m for m in models if m is not None and m.hf == p.hub_weights), None)
    differ = [n for n in _SHAPE if theirs is not None and getattr(theirs, n) != getattr(p.model, n)]
    if theirs is not None and differ:
        has, wants = (f"{differ[0]} {getattr(m, differ[0])}" for m in (theirs, p.model))
        at, ours = p.spans["weights"], p.model
        yield error("check.weights:other-shape", at, hf=theirs.hf, model=ours.name, has=has, wants=wants, own=ours.hf,
                    theirs=theirs.name)  # fmt: skip
        return
    cites = ("bridge models/conversion/model_bridge.py:457",)
    yield warning("check.other_weights", p.spans["weights"], hf=p.model.hf, hub_weights=p.hub_weights, cites=cites)


def wrong_file(p: Program) -> Iterator[Diagnostic]:
    """Warn if a text model's data is not what Bridge reads: the wrong kind of file, several corpora, or none."""
    # Without `data`, the recipe uses mock data, whatever corpus is set
    path, blend = next((path for path in _CORPUS if p.sets.get(path)), None), ("core datasets/utils.py:49",)
    if p.data == "mock" and path is not None:
        yield warning("plan.mock_with_corpus", p.spans[path], path=path, cites=blend)
    dataset = dataset_class(p.model.vision is not None, p.task, p.data == "mock")
    if dataset == "GPTSFTDatasetConfig" and p.samples is not None and p.samples.source == "folder":
        folder, _, name = p.data.rpartition("/")
        if name.endswith(_FILES):  # Bridge fine-tunes on a folder
            right, cites = f'data "{folder or "."}"', ("bridge data/builders/gpt_sft.py:799",)
            yield warning("plan.not_a_folder", p.spans["data"], data=p.data, right=right, cites=cites)
    elif dataset == "GPTDatasetConfig" and p.data != "mock":  # Megatron adds two endings to one name
        paths = [word for word in p.data.split() if word.startswith("/")]
        at, cites = p.spans["data"], ("core datasets/indexed_dataset.py:601",)
        if len(paths) > 1:
            words = ", ".join(f'"{word}"' for word in p.data.split())
            known = {"data": p.data, "first": paths[0], "corpus": _CORPUS[0], "words": words}
            yield warning("plan.not_a_prefix:several", at, cites=blend, **known)
        elif p.data.endswith((*_INDEXED, *_FILES, ".txt")):
            help = f'write `data "{p.data[:-4]}"`' if p.data.endswith(_INDEXED) else None
            yield warning("plan.not_a_prefix:file", at, data=p.data, help=help, cites=cites)


def small_vocabulary(p: Program, values: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Warn if the tokenizer of a run on real text has more entries than the model; `values` are those of a layout."""
    entries, rows = values[LetName.TOKENIZER_ENTRIES], p.model.vocab
    if p.model.vision is not None or entries <= rows:
        return
    sizes = {"entries": entries, "rows": rows, "fits": -(-entries // values["tp"]) * values["tp"]}
    cites = ("bridge recipes/moonlight/h100/moonlight_16b.py:52", "bridge training/setup.py:707")
    yield warning("plan.small_vocabulary", p.spans["data"], hf=p.model.hf, cites=cites, **sizes)


def refused(name: str, task: str, fields: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Refuse to start a plan without weights: training would fail once the model is built."""
    named = {path for path, value in fields.items() if value is not None}
    if task in _SOURCES and named.isdisjoint(_SOURCES[task]):
        yield error("plan.sft_without_weights:start", run=name, task=task, help=_HELP[task], cites=_CITES)


MOST = 5
"""Maximum places in a file to show."""


def hidden(library: Library) -> Iterator[Diagnostic]:
    """Warn once for each of the user's files with invisible characters."""
    for source in library.sources.values():
        if not of_stdlib(source.name) and (found := [*HIDDEN.finditer(source.text)]):
            codes = ", ".join(sorted({visible(m[0]) for m in found}))
            places = (Span(source.name, *m.span()) for m in found[:MOST])
            yield warning("check.hidden_text", *places, codes=codes)
