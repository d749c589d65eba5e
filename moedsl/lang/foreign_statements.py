"""Suggest statements for keywords and command-line arguments of other tools (``--tensor-model-parallel-size 4``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from moedsl.facts import axes, fields
from moedsl.facts.fields import last_name
from moedsl.facts.symbols import ABSENT_HERE, MEMORY_ELSEWHERE, PRECISIONS, WORD_ELSEWHERE
from moedsl.lang.foreign_syntax import HARDWARE, STATEMENTS, Line, line_of
from moedsl.lang.tokens import Lexeme
from moedsl.lang.tree_builder import number_value
from moedsl.support.diagnostics import Diagnostic, Instead, error
from moedsl.support.source import Source, Span

OTHER_NAMES = {
    "gbs": "batch", "bs": "batch", "bsz": "batch", "global_batch": "batch", "global_batch_size": "batch",
    "batch_size": "batch",
    "mbs": "micro_batch", "micro_batch_size": "micro_batch", "seq_len": "seq", "seq_length": "seq",
    "context": "seq", "context_length": "seq", "dtype": "precision", "dataset": "data", "fix": "pin",
    "tensor_model_parallel_size": "tp", "context_parallel_size": "cp", "pipeline_model_parallel_size": "pp",
    "expert_model_parallel_size": "ep", "expert_tensor_parallel_size": "etp",
    "learning_rate": "lr", "max_lr": "lr", "lr_scheduler": "schedule", "tensorboard": "log", "ckpt": "checkpoints",
    "virtual_pipeline_model_parallel_size": "vpp", "recompute_granularity": "recompute",
}  # fmt: skip
"""Other tools' names for our statements and axes."""
_COMPARED = {**dict.fromkeys(MEMORY_ELSEWHERE, "peak_memory"), "step": "step_time"}
_COMPARISONS = ("<", "<=", ">", ">=", "==")
_GLUED = re.compile(r"([a-z_]+?)=?([0-9]+)")
COUNTS = ("gpu", "gpus", "num_gpus", "node", "nodes", "num_nodes", "nnodes", "world_size")
DECLARATIONS = frozenset(["hardware", "model", "cluster", "calibration", "document", "rules", "profile", "run", "use"])
MOST_FIELDS = 3
"""The most Bridge fields to suggest for one name."""


def unknown_statement(source: Source, statement: int, found: Lexeme) -> Diagnostic | None:
    """Recognise ``sequence 128k``, ``lr 3e-4``, ``tokens 15T``: an unknown keyword and a value; else return None."""
    line = line_of(source, statement, found)
    if line is None or line.at != 1 or line.words[0].kind != "word":
        return None
    word, value = line.words[0], line.found
    if value.text in _COMPARISONS:
        # Recognise ``memory < 70 GB``: a condition without `require`
        name, last = line.words[0], line.words[-1]
        absent = ABSENT_HERE.get(name.text.lower())
        if absent and name.text.lower() not in _COMPARED:
            return error("parse.unexpected:statement", line.span(name, name), text=name.text, help=absent)
        right = f"require {_COMPARED.get(name.text.lower(), name.text)} {line.written(line.found, last)}"
        return line.wrong("a condition begins with `require`", name, last, right)
    if value.kind not in ("number", "string", "word") and value.text not in ("=", ":", "/", ".", "~"):
        return None
    if word.text == "use" and value.kind == "word":
        # ``use deepep``, ``use flash attention``: `use` reads files
        low = value.text.lower()
        pins = [Instead(f"write `pin {a.name}={low}`", f"pin {a.name}={low}") for a in axes.AXES if low in a.words]
        absent = ABSENT_HERE.get(low, 'give the path of a file of declarations: `use "ours.moe"`')
        return error("parse.unexpected:use", line.span(word, line.words[-1]), help=(*pins,) or (absent,))
    if word.text in (*STATEMENTS, *DECLARATIONS, *axes.PHASES):
        return None
    # ``h100 32``, ``gb200 x8``: hardware and a number without `x` between them
    if (HARDWARE.fullmatch(word.text) and value.kind == "number") or re.fullmatch(r"x[0-9]\w*", value.text):
        return None
    help = tuple(_instead(word.text, line))
    return error("parse.unexpected:statement", line.span(word, word), text=word.text, help=help)


def name_of_another_tool(word: str) -> str | None:
    """Return the name in our expressions for another tool's name; None if it has none."""
    meant = OTHER_NAMES.get(word) or _COMPARED.get(word)
    return "global_batch" if meant == "batch" else meant


def glued_pin(word: str) -> str | None:
    """Read ``TP4`` as a pin; None if the word is not an axis and a number."""
    found = _GLUED.fullmatch(word.lower())
    return f"pin {found[1]}={found[2]}" if found and found[1] in axes.PINNED else None


def _instead(word: str, line: Line) -> Iterator[str]:
    """Suggest what to write instead of a statement that starts with this word."""
    # Find the statement that the word means in other tools, starts with, or resembles
    low = word.lower()
    begun = next((s for s in STATEMENTS if len(s) > 2 and low.startswith(s) and s not in ("set", "task")), None)
    meant = OTHER_NAMES.get(low) or begun or next(iter(get_close_matches(low, STATEMENTS, 1, 0.7)), None)
    value = next((w.text for w in line.words[1:] if w.text not in ("=", ":")), "...")
    if value in ("/", ".", "~"):
        value = f'"{line.source.text[line.found.start :].split()[0].rstrip(";")}"'
    if (axis := OTHER_NAMES.get(word, word)) in axes.PINNED and axis not in STATEMENTS:
        if value == "auto":
            yield f"remove it: the search chooses `{axis}` unless a run pins it"
            return
        values, what = WORD_ELSEWHERE.get(value, ((value,), "pin an axis"))
        for v in values:
            yield f"{what}: `pin {axis}={v}`"
        return
    if word in COUNTS:
        yield "write the number after the hardware: `gb200 x 8`"
        return
    if absent := ABSENT_HERE.get(f"{word}_{value}".lower()) or ABSENT_HERE.get(word.lower()):
        yield absent
        return
    if glued_pin(word):
        pins = [glued_pin(w.text) for w in line.words]
        right = " ".join(["pin", *(p.removeprefix("pin ") for p in pins if p)])
        yield f"write `{right}`"
        return
    paths = [] if meant else fields_like(word, value)
    if meant:
        yield Instead(f"did you mean `{meant}`?", meant)
    for path in paths:
        yield f"set a field of Bridge by its path: `set {path} = {value}`"
    if not meant and not paths:
        yield f"the statements are {', '.join(STATEMENTS)}; hardware has a number: `gb200 x 8`"


def fields_like(word: str, value: str) -> list[str]:
    """Return Bridge's fields with this name, else those whose name ends with it if they are few."""
    known = fields.fields(fields.versions()[-1])
    number = number_value(value)
    known = {p: f for p, f in known.items() if not p.startswith("peft.")}  # options of `adapter`
    fit = [p for p, f in known.items() if isinstance(number, str) or fields.refused(f.type, number[0]) is None]
    last = last_name(word.lower())
    exact = [p for p in fields.called(last) if p in fit]
    ends = [p for p in fit if p.endswith(f"_{last}")]
    return exact[:MOST_FIELDS] or (ends if len(ends) < MOST_FIELDS else [])


_VALUE = r"[^\s;#\"{}-][^\s;#\"{}]*"
_OPTION = re.compile(rf"--?(?P<name>[A-Za-z][\w.-]*)(?:[ \t]*=[ \t]*|[ \t]+)?(?P<value>(?<=[\s=]){_VALUE})?[ \t]*")
_OVERRIDE = re.compile(rf"(?P<name>[A-Za-z]\w*(?:\.\w+)+)[ \t]*=[ \t]*(?P<value>{_VALUE})[ \t]*")
_PIN = re.compile(rf"pin[ \t]+(?P<name>[A-Za-z]\w*(?:-\w+)+)[ \t]*[= ][ \t]*(?P<value>{_VALUE})[ \t]*")
MOST = 40
"""The most arguments to translate, as each is searched for in Bridge's fields."""


def foreign_arguments(source: Source, statement: int) -> Diagnostic | None:
    """Explain another tool's arguments at an offset and translate them; None if there are none."""
    single = _OVERRIDE.match(source.text, statement) or _PIN.match(source.text, statement)
    found, at = [single] if single else [], statement
    while not single and len(found) < MOST and (option := _OPTION.match(source.text, at)):
        found.append(option)
        at = option.end()
    if not found or source.text[found[-1].end() :][:1] not in ("", "\n", ";", "#"):
        return None
    end = found[-1].start() + len(found[-1][0].rstrip())
    right = [ours(m["name"], m["value"]) for m in found]
    span = Span(source.name, statement, end)
    said = source.text[statement:end]
    text = f"`{said if len(said) < 60 else said[:57] + '...'}` is an argument of another tool"
    unknown = [r for r in right if " " not in r or r.startswith("#")]
    if unknown:
        return error("parse.unexpected", text, span, help=tuple(r.lstrip("# ") for r in unknown))
    whole = "; ".join(right)
    return error("parse.unexpected", text, span, help=Instead(f"write `{whole}`", whole))


def ours(name: str, value: str | None) -> str:
    """Write an argument as a statement, or the reason, after `#`, why none exists."""
    known = fields.fields(fields.versions()[-1])
    low = name.replace("-", "_").lower()
    last = low.split(".")[-1]
    meant = OTHER_NAMES.get(last, last)
    if value == "auto" and meant in axes.PINNED:
        return f"# remove it: the search chooses `{meant}` unless a run pins it"
    if meant in STATEMENTS and value is not None:
        return f"{meant} {value}"
    if meant in axes.PINNED and value is not None:
        return f"pin {meant}={value}"
    if last in PRECISIONS and (value or "true").lower() in ("true", "on", "1"):
        return f"precision {last}"
    if last in ABSENT_HERE:
        return f"# {ABSENT_HERE[last]}"
    whole = (p for p in (low, low.partition(".")[2]) if p in known)  # a recipe calls itself `cfg`
    paths = [*whole] or fields_like(last, value or "true")
    if not paths:
        return "# no field of Bridge has this name; others are set by their path, as in `set optimizer.lr = 1e-4`"
    if value is None or value.lower() in ("on", "off", "true", "false"):
        return f"set {paths[0]} = {(value or 'true').lower()}"
    quote = '"' if isinstance(number_value(value), str) else ""
    return f"set {paths[0]} = {quote}{value}{quote}"
