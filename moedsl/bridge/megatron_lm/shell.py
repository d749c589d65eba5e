"""Read a shell script without running it: what each command would be called with, and on which line each word stands.

tree-sitter's grammar of bash gives the syntax tree. Assignments, arrays, `if`, `case`, functions, `eval` and `bash -c`
are followed as bash would with only the variables that `--env` and `#SBATCH` lines give. What depends on the output of
a command, on a loop or on an undecided condition is unknown.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from moedsl.bridge.megatron_lm.expansion import DEEPEST, Expander, Piece, Text, Unknown, Word, plain_text, source, split

MOST = 20_000
"""The most statements that are read."""


@frozen
class Command:
    """One command as it would be called, with the exported variables."""

    words: tuple[Word, ...]
    line: int
    environment: Mapping[str, Word]


@frozen
class Script:
    """The commands of a script, its variables at the end, and what was not followed."""

    commands: tuple[Command, ...]
    variables: Mapping[str, Word]
    unread: tuple[str, ...] = ()


def read(text: str | Sequence[tuple[str, int]], given: Mapping[str, str] = {}) -> Script:
    """Read a script, or parts of one with the lines that they come from.

    The variables `given` also replace what the script takes from elsewhere.
    """
    shell, parts = Shell(given), [(text, 1)] if isinstance(text, str) else text
    for name, value in {**scheduled("".join(p for p, _ in parts)), **given}.items():
        shell.variables[name] = [(Piece(value, 1),)]
        if name.isdigit():
            shell.positional += [()] * (int(name) - len(shell.positional))
            shell.positional[int(name) - 1] = (Piece(value, 1),)
    shell.exported |= {*given}
    shell.run_text(parts)
    scalars = {n: Word(v[0]) for n, v in shell.variables.items() if len(v) == 1}
    return Script(tuple(shell.commands), scalars, tuple(dict.fromkeys(shell.unread)))


def scheduled(text: str) -> dict[str, str]:
    """Return the variables that Slurm sets for the `#SBATCH` lines of a script."""
    words = [w for line in text.splitlines() if line.startswith("#SBATCH") for w in line[7:].split(" #")[0].split()]
    return slurm_variables(words)


_SLURM = {
    "-N": "NNODES", "--nodes": "NNODES", "-n": "NTASKS", "--ntasks": "NTASKS", "--ntasks-per-node": "NTASKS_PER_NODE",
    "--gpus-per-node": "GPUS_PER_NODE", "--gres": "GPUS_PER_NODE",
}  # fmt: skip


def slurm_variables(words: Iterable[str]) -> dict[str, str]:
    """Return Slurm's variables for the options of sbatch or srun; the type of the GPUs is `SLURM_GPU_TYPE` here."""
    found: dict[str, str] = {}
    after = ""
    for word in words:
        option, equals, value = word.partition("=")
        name, value = (_SLURM.get(after), word) if after and not word.startswith("-") else (_SLURM.get(option), value)
        after = option if word.startswith("-") and not equals else ""
        if name and (read := re.match(r"(?:gpu:)?(?:([a-z]\w*):)?(\d+)", value)):
            found[f"SLURM_{name}"] = read[2]
            found |= {"SLURM_GPU_TYPE": read[1]} if read[1] else {}
    nodes, tasks = found.get("SLURM_NNODES"), found.get("SLURM_NTASKS_PER_NODE")
    if nodes and tasks:
        found.setdefault("SLURM_NTASKS", str(int(nodes) * int(tasks)))
    copies = {"SLURM_JOB_NUM_NODES": "SLURM_NNODES", "SLURM_GPUS_ON_NODE": "SLURM_GPUS_PER_NODE"}
    return found | {new: found[old] for new, old in copies.items() if old in found}


_PREFIXES = ("exec", "nohup", "time", "command", "builtin", "sudo")
"""Words before a command that do not change which program it is."""
_SHELLS = ("bash", "sh", "eval")
_READERS = ("read", "mapfile", "readarray", "getopts")


@define
class Shell(Expander):
    """The state of the reading."""

    exported: set[str] = field(factory=set)
    functions: dict[str, Any] = field(factory=dict)
    commands: list[Command] = field(factory=list)
    unread: list[str] = field(factory=list)
    count: int = 0

    def run_text(self, parts: Iterable[tuple[str, int]]) -> None:
        """Read a text as a script; each of its parts came from one line, or starts on it."""
        import tree_sitter
        import tree_sitter_bash

        before, text = self.starts, b""
        self.starts = []
        for part, first in parts:
            for i, line in enumerate(part.encode("utf-8", "replace").splitlines(keepends=True) or [b""]):
                self.starts.append((len(text), first + i))
                text += line
        parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
        self.run(parser.parse(text).root_node)
        self.starts = before

    def run(self, node: Any) -> bool | None:
        """Read one statement; return whether it succeeds, None if that is unknown."""
        self.count += 1
        self.depth += 1
        try:
            if self.depth > DEEPEST or self.count > MOST:
                return self._skip(node, "nested too deep, or too long")
            return getattr(self, f"_{node.type}", self._each)(node)
        finally:
            self.depth -= 1

    def _each(self, node: Any) -> bool | None:
        if node.is_error:
            self.unread.append(f"line {self.line(node)}: not understood as bash")
        return self._all(node.named_children)

    def _all(self, nodes: Iterable[Any]) -> bool | None:
        last: bool | None = True
        for child in nodes:
            last = self.run(child)
        return last

    def _skip(self, node: Any, why: str) -> None:
        """Leave a statement out: every variable that it assigns is unknown."""
        self.unread.append(f"line {self.line(node)}: {why}")
        for name in assigned(node):
            self.forget(name, self.line(node))

    def _comment(self, _: Any) -> bool:
        return True

    def _function_definition(self, node: Any) -> bool:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        self.functions |= {source(name): body} if name is not None and body is not None else {}
        return True

    def _variable_assignment(self, node: Any) -> bool:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type == "subscript":
            self._skip(node, "an element of an array is assigned by its index")
        elif value is not None and value.type == "array":
            items = [w.pieces for child in value.named_children for w in self.words(child)]
            old = self.variables.get(source(name), []) if any(c.type == "+=" for c in node.children) else []
            self.variables[source(name)] = [*old, *items]
        else:
            text = self.text(value) if value is not None else ()
            self.assign(source(name), text, any(c.type == "+=" for c in node.children))
        return True

    def _declaration_command(self, node: Any) -> bool:
        exports = source(node.children[0]) == "export" or any("x" in source(c) for c in node.named_children[:1])
        for child in node.named_children:
            name = child.child_by_field_name("name") if child.type == "variable_assignment" else child
            if child.type == "variable_assignment":
                self.run(child)
            if exports and name is not None:
                self.exported.add(source(name))
        return True

    def _if_statement(self, node: Any) -> bool | None:
        clauses = [c for c in node.named_children if c.type in ("elif_clause", "else_clause")]
        undecided: list[list[Any]] = []
        for part in (node, *clauses):
            inner = [c for c in part.named_children if c not in clauses]
            then = next((c.start_byte for c in part.children if c.type == "then"), part.start_byte)
            held = self._all(c for c in inner if c.start_byte < then)
            if held and not undecided:
                return self._all(c for c in inner if c.start_byte >= then)
            if held is not False:
                undecided.append([c for c in inner if c.start_byte >= then])
            if held:
                break
        return self._undecided(node, undecided)

    def _undecided(self, node: Any, bodies: list[list[Any]]) -> None:
        """Read branches of which one may run: what they assign is unknown afterwards."""
        before = dict(self.variables)
        for body in bodies:
            self.variables = dict(before)
            self._all(body)
        self.variables = before
        for name in {n for body in bodies for child in body for n in assigned(child)}:
            self.forget(name, self.line(node))

    def _case_statement(self, node: Any) -> bool | None:
        value = node.child_by_field_name("value")
        text = self.text(value) if value is not None else ()
        bodies: list[list[Any]] = []
        for item in (c for c in node.named_children if c.type == "case_item"):
            patterns = item.children_by_field_name("value")
            bodies.append([c for c in item.named_children if c not in patterns])
            words = [Word(self.text(p)).text for p in patterns]
            if all(p.unset or not p.holes for p in text) and any(
                fnmatch.fnmatchcase(plain_text(text), w) for w in words
            ):
                return self._all(bodies[-1])
        return self._undecided(node, bodies if any(p.holes and not p.unset for p in text) else [])

    def _loop(self, node: Any) -> bool | None:
        condition, name = node.child_by_field_name("condition"), node.child_by_field_name("variable")
        if node.type == "while_statement" and condition is not None and self.run(condition) is False:
            return True
        self._skip(node, "a loop is not run")
        if name is not None:
            self.forget(source(name), self.line(node))
        self._undecided(node, [node.named_children[-1:]])
        return None

    _for_statement = _c_style_for_statement = _while_statement = _loop

    def _list(self, node: Any) -> bool | None:
        left, *rest = node.named_children
        held = self.run(left)
        for right in rest:
            if held is None and left.type != "command":
                self._undecided(node, [[right]])
            elif (held is False) == any(c.type == "||" for c in node.children):
                held = self.run(right)
        return held

    def _negated_command(self, node: Any) -> bool | None:
        held = self._each(node)
        return None if held is None else not held

    def _redirected_statement(self, node: Any) -> bool | None:
        return self._all(node.children_by_field_name("body"))

    def _test_command(self, node: Any) -> bool | None:
        try:
            return all(self.test(c) for c in node.named_children)
        except Unknown:
            return None

    def _compound_statement(self, node: Any) -> bool | None:
        if not node.children or node.children[0].type != "((":
            return self._each(node)
        try:
            return all(self.number(c) for c in node.named_children)
        except Unknown:
            return None

    def _command(self, node: Any) -> bool | None:
        own = dict[str, Word]()
        words: list[Word] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                own |= {source(name): Word(self.text(value) if value is not None else ())}
            elif not child.type.endswith("_redirect"):
                parts = child.named_children if child.type == "command_name" else [child]
                words += [w for part in parts for w in self.words(part)]
        while words and words[0].text in _PREFIXES:
            words.pop(0)
        return self._call(words, own, self.line(node)) if words else True

    def _call(self, words: list[Word], own: Mapping[str, Word], line: int) -> bool | None:
        """Read one command: follow what changes variables, and keep any other one."""
        name, rest = words[0].text.rpartition("/")[2], words[1:]
        if name in self.functions:
            outer, self.positional = self.positional, [w.pieces for w in rest]
            self.run(self.functions[name])
            self.positional = outer
        elif name in (*_READERS, "unset"):
            for w in rest:
                if name == "unset":
                    self.variables.pop(w.text, None)
                elif w.text.isidentifier():
                    self.forget(w.text, w.line)
        elif name == "let":
            self.run_text((f"(({w.text}))\n", w.line) for w in rest)
        elif name == "set" and rest and rest[0].text == "--":
            self.positional = [w.pieces for w in rest[1:]]
        elif name == "shift":
            self.positional = self.positional[int(rest[0].text) if rest and rest[0].text.isdigit() else 1 :]
        elif name in ("source", "."):
            self.unread.append(f"line {line}: `{' '.join(w.text for w in words)}` is not read")
        elif name not in ("true", ":", "false", "set"):
            known = {n: Word(self.variables[n][0]) for n in self.exported if self.variables.get(n)}
            self.commands.append(Command(tuple(words), line, {**known, **own}))
            self._inside(words, line)
            return None
        return name != "false"

    def _inside(self, words: list[Word], line: int) -> None:
        """Follow the text that a command hands to a shell: `eval TEXT`, or `bash -c TEXT` after srun and its like."""
        at = next((i for i, w in enumerate(words) if w.text.rpartition("/")[2] in _SHELLS), len(words))
        after = words[at + 1 :]
        if at < len(words) and words[at].text != "eval":
            text = next((i for i, w in enumerate(after) if re.fullmatch(r"-\w*c", w.text)), len(after))
            after = after[text + 1 : text + 2]
        if not after or self.depth + 5 > DEEPEST:
            return
        inner = Shell(
            self.given, dict(self.variables), [*self.positional], depth=self.depth + 5, count=self.count,
            exported={*self.exported}, functions=self.functions,
        )  # fmt: skip
        parts: list[tuple[str, int]] = []
        for i, p in enumerate(p for w in after for p in (*w.pieces, Piece(" ", w.line))):
            if p.holes:  # it stays a hole in the text that is read again
                inner.variables[f"__{i}"] = [(p,)]
            parts.append((f"${{__{i}}}" if p.holes else p.text, p.line))
        inner.run_text(parts)
        if any("not understood" in u for u in inner.unread):  # such as a pattern without quotes: take its words
            loose = tuple(evolve(p, quoted=False) for w in after for p in (*w.pieces, Piece(" ", w.line)))
            inner.commands = [Command(tuple(map(Word, split(loose))), line, {})]
        self.commands += [evolve(c, words=(*words[:at], *c.words)) for c in inner.commands]
        self.unread += inner.unread

    def substitution(self, node: Any) -> Text:
        """Return what `echo` prints; of other commands nothing is known."""
        inner = Shell(
            self.given, dict(self.variables), [*self.positional], self.starts, self.depth, functions=self.functions
        )
        inner._each(node)
        words = inner.commands[0].words if len(inner.commands) == 1 else ()
        if words and words[0].text == "echo" and not any(w.holes for w in words):
            return (Piece(" ".join(w.text for w in words[1:] if w.text not in ("-n", "-e")), self.line(node), False),)
        return super().substitution(node)


def assigned(node: Any) -> Iterator[str]:
    """Yield the names of the variables that a statement assigns."""
    todo = [node]
    while todo:
        at = todo.pop()
        name = at.child_by_field_name("name") if at.type == "variable_assignment" else None
        if name is not None:
            yield source(name).partition("[")[0]
        todo += at.named_children
