"""Read the arguments of a Megatron-LM run from a script, a command line, a YAML recipe or a log.

Each source gives words with their lines; `parsed` reads them as Megatron-LM's parser would, by the table of its
arguments (facts/megatron_arguments.json). Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from attrs import field, frozen

from moedsl.bridge.lint.facts import Argument
from moedsl.bridge.megatron_lm import shell
from moedsl.bridge.megatron_lm.expansion import Piece, Word
from moedsl.facts import megatron_arguments
from moedsl.facts.megatron_arguments import by_flag


@frozen
class Call:
    """What a Megatron-LM run is called with."""

    file: str
    line: int
    """The line of the command."""
    arguments: tuple[Argument, ...]
    environment: Mapping[str, Word] = field(factory=dict)
    world: int | None = None
    gpu: str | None = None
    unread: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(factory=dict)
    """The values of a log that are no arguments: Megatron-LM makes them from the arguments."""

    @property
    def given(self) -> dict[str, Argument]:
        """The arguments by name; the last of several counts, as in argparse."""
        return {a.dest: a for a in self.arguments if a.dest and not a.holes and not a.wrong}

    def values(self) -> dict[str, Any]:
        """Return every argument's value, with Megatron-LM's defaults."""
        return {dest: entries[0].default for dest, entries in table().items()} | {
            dest: a.value for dest, a in self.given.items()
        }


@cache
def table() -> Mapping[str, Sequence[megatron_arguments.Argument]]:
    """Return the arguments by name; several flags may share one."""
    out: dict[str, list[megatron_arguments.Argument]] = {}
    for a in megatron_arguments.arguments():
        out.setdefault(a.dest, []).append(a)
    return out


def of_script(text: str, file: str, given: Mapping[str, str]) -> Call | None:
    """Find the run that a script starts; None if no command in it has arguments of Megatron-LM."""
    script = shell.read(text, given)
    found = [(c, *_run(c.words)) for c in script.commands]
    counted = [(sum(w.text.partition("=")[0] in by_flag() for w in args), c, head, args) for c, head, args in found]
    count, command, head, args = max(counted, key=lambda x: x[0], default=(0, None, (), ()))
    if command is None or count < 3:
        return None
    others = sorted({c.line for n, c, _, a in counted if n >= 3 and [w.text for w in a] != [w.text for w in args]})
    several = (f"the runs on lines {', '.join(map(str, others))} were not read",) if others else ()
    values = {n: w.text for n, w in script.variables.items() if not w.holes}
    world, gpu = _machines([w.text for w in head], values)
    return Call(file, command.line, parsed(args), command.environment, world, gpu, (*script.unread, *several))


def of_command(words: Iterable[str]) -> Call | None:
    """Read the words of a command line."""
    head, args = _run(tuple(Word((Piece(w, 1),)) for w in words))
    if not any(w.text.partition("=")[0] in by_flag() for w in args):
        return None
    world, gpu = _machines([w.text for w in head], {})
    return Call("<command line>", 1, parsed(args), {}, world, gpu)


_ENDS = re.compile(r"&&|\|\||[;|&]|\d?>.*|<.*")


def _run(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """Split a command into its launcher and the program's arguments, which follow a word that ends in `.py`."""
    if words and words[0].text in ("echo", "printf", "eval"):
        return words, ()
    at = next((i for i, w in enumerate(words) if w.text.endswith(".py")), None)
    at = at if at is not None else next((i for i, w in enumerate(words) if w.text in by_flag()), len(words)) - 1
    end = next((i for i, w in enumerate(words) if i > at and _ENDS.fullmatch(w.text)), len(words))
    return words[: at + 1], words[at + 1 : end]


def _machines(head: list[str], values: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Return the number of GPUs, and their type: by torchrun's options, those of srun and sbatch, or mpirun's."""
    options: dict[str, str] = {}
    for word, after in zip(head, [*head[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        options[name.replace("_", "-")] = value if equals else after
    slurm = dict(values) | shell.slurm_variables(head)
    gpu, tasks = slurm.get("SLURM_GPU_TYPE"), slurm.get("SLURM_NTASKS")
    nodes = options.get("--nnodes", "1").rpartition(":")[2]
    if "--nproc-per-node" in options:
        ranks = options["--nproc-per-node"]
        return (int(nodes) * int(ranks) if nodes.isdigit() and ranks.isdigit() else None), gpu
    counted = next((options[n] for n in ("-np", "--np") if n in options), None)
    known = counted or tasks or values.get("WORLD_SIZE", "")
    return (int(known) if known.isdigit() else None), gpu


def parsed(words: Sequence[Word]) -> tuple[Argument, ...]:
    """Read words as Megatron-LM's parser does, without abbreviations."""
    out: list[Argument] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, own = word.text.partition("=")
        if word.holes and not (name.startswith("-") and equals):
            out.append(Argument(word.text, None, None, word.line, word.holes))
            continue
        found = by_flag().get(name)
        count = found.nargs if found else "*"
        values: list[Word] = []
        if equals:
            values = [Word((Piece(own, word.line, True, word.holes),))]
        elif found is None or found.action == "value":
            most = count if isinstance(count, int) else 1 if count in (None, "?") else len(words)
            while at < len(words) and len(values) < most and not _is_flag(words[at].text):
                values.append(words[at])
                at += 1
        out.append(_argument(name, found, values, word.line))
    return tuple(out)


def _is_flag(text: str) -> bool:
    return text.startswith("-") and not re.fullmatch(r"-\d+\.?\d*(e-?\d+)?|-\.\d+|-", text)


def _argument(flag: str, found: megatron_arguments.Argument | None, words: list[Word], line: int) -> Argument:
    holes = tuple(dict.fromkeys(n for w in words for n in w.holes))
    texts = [w.text for w in words]
    if found is None:
        return Argument(flag, None, " ".join(texts) or None, line, holes)
    dest, entry = found.dest, found
    if entry.action != "value":
        value = entry.action == "true" or (entry.action == "either" and not flag.startswith("--no-"))
        return Argument(flag, dest, value, line, (), f"it takes no value, and has {texts[0]}" if texts else "")
    several = entry.nargs in ("*", "+") or isinstance(entry.nargs, int)
    if holes:
        return Argument(flag, dest, " ".join(texts), line, holes)
    if not texts and entry.nargs not in ("*", "?"):
        return Argument(flag, dest, None, line, (), "it needs a value")
    try:
        values = [_value(text, entry) for text in texts]
    except ValueError as wrong:
        return Argument(flag, dest, " ".join(texts), line, (), str(wrong))
    return Argument(flag, dest, values if several else next(iter(values), None), line)


def _value(text: str, entry: megatron_arguments.Argument) -> Any:
    """Convert a text as argparse does; raises ValueError with the reason."""
    kind, choices = entry.type, entry.choices
    try:
        value: Any = int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        raise ValueError(f"`{text}` is no {'whole number' if kind == 'int' else 'number'}") from None
    if kind == "pattern":
        value = pattern(text)
    if kind == "bool":
        value = bool(text)  # argparse's bool: every text but the empty one
    if "attn" in choices and value in _OLDER_SCOPES:
        return value
    if choices and value not in choices:
        raise ValueError(f"`{text}` is not one of {', '.join(map(str, choices))}")
    return value


_OLDER_SCOPES = ("full", "full_iteration", "full_iteration_inference")
"""Words of `--cuda-graph-scope` that Megatron-LM still takes, and replaces (arguments.py:255)."""


def pattern(text: str) -> Any:
    """Return a number, or the list that a pattern such as `([0]*3+[1]*58)` makes; raises ValueError."""
    if re.fullmatch(r"\d+", text.strip()):
        return int(text)

    def made(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() as n) if n <= 10_000:
                return n
            case ast.List(elts=parts):
                return [made(p) for p in parts]
            case ast.BinOp(left=a, op=ast.Add(), right=b):
                return made(a) + made(b)
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                x, y = made(a), made(b)
                if isinstance(x, int) + isinstance(y, int) and len(x if isinstance(x, list) else [0]) <= 10_000:
                    return x * y
            case _:
                pass
        raise ValueError(f"`{text}` is no pattern such as ([0]*3+[1]*58)")

    try:
        value = made(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"`{text}` is no pattern such as ([0]*3+[1]*58)") from None
    if isinstance(value, list) and len(value) > 10_000:
        raise ValueError(f"`{text}` has more than 10,000 layers")
    return value


def of_yaml(text: str, file: str, given: Mapping[str, str]) -> Call | None:
    """Read a YAML of Megatron's recipe collections: `MODEL_ARGS` and `ENV_VARS`. None if it is another YAML.

    Raises yaml.YAMLError.
    """
    import yaml  # comes with Bridge and with NeMo-Run

    root = yaml.compose(text, yaml.SafeLoader)
    sections = {k.value: v for k, v in root.value} if isinstance(root, yaml.MappingNode) else {}
    block = sections.get("MODEL_ARGS")
    if not isinstance(block, yaml.MappingNode):
        return None
    loader, outer = yaml.SafeLoader(""), sections.get("ENV_VARS")
    variables = outer.value if isinstance(outer, yaml.MappingNode) else []
    parts = [
        (f"export {k.value}={_quoted(given.get(k.value, v.value))}\n", k.start_mark.line + 1)
        for k, v in variables
        if isinstance(v, yaml.ScalarNode) and str(k.value).isidentifier()
    ]
    parts.append(("pretrain_gpt.py", block.start_mark.line + 1))
    for key, node in block.value:
        flag = "--" + str(key.value).lstrip("-").replace("_", "-")
        value = loader.construct_object(node, deep=True)
        one = by_flag().get(flag)
        takes = one is not None and one.action == "value"
        if value is False and not takes:
            continue
        if isinstance(value, str) and one is not None and one.nargs in ("*", "+"):
            value = value.strip("[]").replace(",", " ").split()
        if not isinstance(value, list):
            value = [] if value in (True, None, "") and not (takes and value) else [value]
        parts.append((" ".join(["", *map(_quoted, (flag, *value))]), key.start_mark.line + 1))
    commands = shell.read(parts, given).commands[-1:]
    return next((Call(file, 1, parsed(c.words[1:]), c.environment) for c in commands), None)


def _quoted(value: Any) -> str:
    """Write a value as a word of bash in which variables are expanded."""
    return '"' + re.sub(r'(["\\`])', r"\\\1", str(value)) + '"'


_BLOCK = re.compile(r"-{5,} arguments -{5,}")
_ROW = re.compile(r"(?:^|[\s\]:>])([a-z]\w*) \.{3,} (.*)$")


def of_log(text: str, file: str) -> Call | None:
    """Read the block of arguments that Megatron-LM prints when it starts; None if a log has none."""
    begin = _BLOCK.search(text)
    if begin is None:
        return None
    first = text.count("\n", 0, begin.start()) + 1
    out: list[Argument] = []
    others: dict[str, Any] = {}
    completed = megatron_arguments.notes()["completed"]
    for at, row in enumerate(text[begin.start() :].splitlines(), first):
        if "end of arguments" in row:
            break
        found = _ROW.search(row.rstrip())
        if found:
            dest, value = found[1], printed(found[2])
            entry = next(iter(table().get(dest, ())), None)
            if entry is None:
                others.setdefault(dest, value)
            elif value != entry.default and value is not None and dest not in completed:
                out.append(Argument(entry.flags[0], dest, value, at))
    chunks = others.get("virtual_pipeline_model_parallel_size")
    given = {a.dest for a in out}
    if chunks and not given & {"pipeline_model_parallel_layout", "num_layers_per_virtual_pipeline_stage"}:
        out.append(Argument(_CHUNKS, "num_virtual_stages_per_pipeline_rank", chunks, first))
    return Call(file, first, tuple({a.dest: a for a in out}.values()), {}, others.get("world_size"), others=others)


_CHUNKS = "--num-virtual-stages-per-pipeline-rank"


def printed(text: str) -> Any:
    """Read a value as Python prints it: a number, a list, a dtype or a member of an enumeration."""
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"'\1'", text.strip())
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = text
    if isinstance(value, list):
        return [printed(v) if isinstance(v, str) else v for v in value]
    if isinstance(value, str) and value.startswith("torch."):
        return megatron_arguments.DTYPES.get(value[6:], value)
    return value.rpartition(".")[2] if isinstance(value, str) and re.fullmatch(r"[A-Z]\w+\.\w+", value) else value
