"""Read a recipe's source without running it: which values it assigns to configuration fields, and on which lines.

Statements are followed in order: assignments to `cfg.SECTION.FIELD`, also through other names for `cfg` or a section;
keyword arguments of section constructors; helpers in the same module or folder that take or return the configuration;
and branches whose test is known. Anything else is reported as unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from moedsl.bridge.lint.facts import Place, Recipe, stdlib_facts
from moedsl.bridge.verify.cases import Case
from moedsl.facts.facts import Hardware
from moedsl.facts.fields import field_names, fields, provided
from moedsl.rules.library import Library
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error

CFG = "cfg"
DEEPEST = 12
"""The deepest nesting of calls that is followed."""
MOST_CALLS = 1000
"""The most calls that are followed."""
FLEX_HELPER = "apply_flex_dispatcher_backend"
MOST_NESTED = 300
"""The deepest syntax tree that is read, because the reader is recursive."""
_MAKERS = ("_config", "_common")
"""Name endings of Bridge's functions that return a ConfigContainer."""
_LANGUAGE = ("to_text_provider",)
"""Methods of a provider that return the provider of its language model."""
_SECTIONS = frozenset(n.partition(".")[0] for n in field_names()) | {"env_vars"}


def read(c: Case, hardware: Hardware, library: Library) -> Recipe | Diagnostic:
    """Read the recipe from its source; a diagnostic if the function does not exist."""
    module = Module.of(Path(c.source)) if c.source.endswith(".py") else None
    if module is None or c.function not in module.functions:
        return error("lint.source", file=c.file, function=c.function)
    reader = Reader()
    reader.call(module, module.functions[c.function], {})
    return Recipe(
        target=c.file, function=c.function, file=str(module.path), line=module.functions[c.function].lineno,
        fields=reader.fields, hardware=hardware, world=c.world,
        classes=reader.classes, places=reader.places, asked=reader.asked, whole=False,
        model=stdlib_facts(reader.hf, library), unknown=reader.strangers(), unread=tuple(reader.unread),
        assumed=frozenset(reader.assumed),
    )  # fmt: skip


class Unknown:
    """A value that the source does not determine."""


UNKNOWN = Unknown()


@frozen
class Ref:
    """A reference into the configuration: `cfg`, or the dotted path of a section or field."""

    path: str


@frozen
class Module:
    """One Python file: its functions, its constants, and names that it imports from files in its folder."""

    path: Path
    functions: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, Any]
    imported: Mapping[str, tuple[Path, str]]
    foreign: Mapping[str, str]
    """Imported name -> its name in the module that defines it."""

    @staticmethod
    def of(path: Path) -> Module | None:
        """Read a file; None if it is not Python, or nested too deep for the reader."""
        try:
            tree = foreign.parse_python_file(path)
        except OSError:
            return None
        if tree is None:
            return None
        level: list[ast.AST] = [tree]
        for _ in range(MOST_NESTED):
            level = [child for node in level for child in ast.iter_child_nodes(node)]
        if level:
            return None
        functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        constants = {
            t.id: value
            for n in tree.body
            if isinstance(n, ast.Assign) and (value := _literal(n.value)) is not UNKNOWN
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        beside_it: dict[str, tuple[Path, str]] = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module and node.level <= 1:
                beside = path.parent / (node.module.replace(".", "/") + ".py")
                if beside.is_file():
                    beside_it |= {a.asname or a.name: (beside, a.name) for a in node.names}
        aliases = {a.asname or a.name: a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        return Module(path, functions, constants, beside_it, aliases)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


@define
class Reader:
    """The state of the reading. `fields` has the known values; a field that gets an unknown value is removed."""

    fields: dict[str, Any] = field(factory=dict)
    places: dict[str, tuple[Place, ...]] = field(factory=dict)
    classes: dict[str, str] = field(factory=dict)
    unread: dict[str, None] = field(factory=dict)
    assumed: set[str] = field(factory=set)
    """The fields whose value is the default of a new provider."""
    asked: str | None = None
    hf: str | None = None
    stack: list[Place] = field(factory=list)
    calls: int = 0

    def strangers(self) -> dict[str, Any]:
        """Return the fields that were set and that Bridge does not have."""
        known = frozenset(field_names())
        return {n: v for n, v in self.fields.items() if "." in n and n not in known and not n.startswith("env_vars")}

    def call(self, module: Module, function: ast.FunctionDef, arguments: Mapping[str, Any]) -> Any:
        """Read one function, and return the value that it returns."""
        self.calls += 1
        if len(self.stack) > DEEPEST or self.calls > MOST_CALLS:
            self.cannot(f"what {function.name} sets", (str(module.path), function.lineno))
            return UNKNOWN
        given = function.args
        named = [*given.posonlyargs, *given.args]
        late = named[len(named) - len(given.defaults) :]
        names: dict[str, Any] = {a.arg: UNKNOWN for a in (*named, *given.kwonlyargs)}
        names |= {a.arg: _literal(d) for a, d in zip(late, given.defaults, strict=True)}
        by_keyword = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        names |= {a.arg: _literal(d) for a, d in by_keyword if d is not None}
        body = _Body(self, module, {**names, **arguments})
        body.run(function.body)
        return body.returned

    def assign(self, path: str, value: Any, at: Place) -> None:
        """Set one field, or forget it if the value is unknown."""
        known = value is not UNKNOWN and not isinstance(value, Ref)
        self.begin(path, at, keep=known)
        if known:
            self.fields[path] = value
        else:
            self.cannot(f"the value of {path}", at)

    def begin(self, path: str, at: Place, keep: bool = False) -> None:
        """Record the line that sets a field, with its callers; forget the fields below it and, unless `keep`, its own
        value."""
        self.places[path] = (at, *reversed(self.stack))
        self.assumed.discard(path)
        for known in [n for n in self.fields if n.startswith(f"{path}.") or (n == path and not keep)]:
            del self.fields[known]

    def cannot(self, text: str, at: Place) -> None:
        """Record once that the source does not determine something at a line."""
        self.unread.setdefault(f"{at[0]}:{at[1]}: {text}")


@define
class _Body:
    """Reads the statements of one call, with its local names."""

    reader: Reader
    module: Module
    names: dict[str, Any]
    returned: Any = UNKNOWN
    done: bool = False

    def run(self, statements: list[ast.stmt]) -> None:
        """Follow statements in order.

        If a branch's test is unknown, both branches are read; a loop is read once. The fields that they change become
        unknown.
        """
        for s in statements:
            if self.done:
                return
            match s:
                case ast.Assign():
                    value = self.value(s.value)
                    for target in s.targets:
                        self.bind(target, value, s.value)
                case ast.AnnAssign(value=ast.expr() as source):
                    self.bind(s.target, self.value(source), source)
                case ast.AugAssign():
                    self.bind(s.target, UNKNOWN, s.value)
                case ast.Expr():
                    self.value(s.value)
                case ast.Return():
                    self.returned, self.done = self.value(s.value) if s.value else None, True
                case ast.If():
                    test = self.value(s.test)
                    if isinstance(test, Unknown | Ref):
                        self.either(s.body + s.orelse, self.at(s))
                    else:
                        self.run(s.body if test else s.orelse)
                case ast.With():
                    self.run(s.body)
                case ast.For() | ast.While() | ast.Try():
                    self.either(s.body, self.at(s))
                case _:
                    pass

    def at(self, node: ast.AST) -> Place:
        return str(self.module.path), getattr(node, "lineno", 1)

    def either(self, statements: list[ast.stmt], at: Place) -> None:
        before = dict(self.reader.fields)
        self.run(statements)
        self.done = False
        changed = [n for n, v in self.reader.fields.items() if n not in before or before[n] != v]
        for name in changed:
            self.reader.assign(name, UNKNOWN, at)

    def bind(self, target: ast.expr, value: Any, source: ast.expr) -> None:
        """Read one assignment: to a local name, a field, or a key of env_vars."""
        if isinstance(target, ast.Name):
            self.names[target.id] = value
            return
        path = self.path(target)
        if path is None:
            return
        if isinstance(source, ast.Call) and path in _SECTIONS:
            self.construct(path, source)
        elif path.startswith("env_vars."):
            self.variable(path.partition(".")[2], value, self.at(target))
        else:
            self.reader.assign(path, value, self.at(target))

    def variable(self, name: str, value: Any, at: Place) -> None:
        """Set one environment variable; the others keep their values."""
        self.reader.places[f"env_vars.{name}"] = (at,)
        known = self.reader.fields.get("env_vars")
        if isinstance(known, dict):
            self.reader.fields["env_vars"] = {**known, name: value}

    def path(self, node: ast.expr) -> str | None:
        """Return the dotted field that a target or an expression names; None if it names none."""
        value = self.value(node) if isinstance(node, ast.Name) else None
        if isinstance(value, Ref):
            return value.path
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return None if base is None else node.attr if base == CFG else f"{base}.{node.attr}"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            base = self.path(node.value)
            return f"{base}.{node.slice.value}" if base else None
        return None

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression; UNKNOWN if the source does not determine it."""
        literal = _literal(node)
        if literal is not UNKNOWN:
            return literal
        if isinstance(node, ast.Name):
            return self.names.get(node.id, self.module.constants.get(node.id, UNKNOWN))
        if isinstance(node, ast.Attribute):
            path = self.path(node)
            if path is not None:
                return self.reader.fields.get(path, Ref(path))
            return node.attr if _dotted(node).startswith("torch.") else UNKNOWN
        return self.called(node) if isinstance(node, ast.Call) else UNKNOWN

    def called(self, node: ast.Call) -> Any:
        """Apply a call to the configuration, and return its value."""
        name = _dotted(node.func)
        found = self.function(name)
        if found is None:
            return self.foreign(name, node)
        module, function = found
        named = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        given = {n: self.value(a) for n, a in zip(named, node.args, strict=False)}
        given |= {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        self.reader.stack.append(self.at(node))
        out = self.reader.call(module, function, given)
        self.reader.stack.pop()
        return out

    def foreign(self, name: str, node: ast.Call) -> Any:
        """Apply a call of one of Bridge's functions, and report as unknown what other unread code may set."""
        leaf = name.rpartition(".")[2]
        leaf = self.module.foreign.get(leaf, leaf)
        if leaf == FLEX_HELPER:
            # it sets the dispatcher, its backend and the shared experts' overlap together
            given = [k.value for k in node.keywords if k.arg == "moe_flex_dispatcher_backend"] + node.args[1:]
            backend = self.value(given[0]) if given else None
            self.reader.asked = backend if isinstance(backend, str) else None
            values = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": backend}
            for field, value in {**values, "moe_shared_expert_overlap": False}.items():
                self.reader.assign(f"model.{field}", value, self.at(node))
        elif leaf == "ConfigContainer":
            for keyword in node.keywords:
                if keyword.arg and isinstance(keyword.value, ast.Call):
                    self.construct(keyword.arg, keyword.value)
                elif keyword.arg:
                    self.reader.assign(keyword.arg, self.value(keyword.value), (self.at(node)[0], keyword.value.lineno))
            return Ref(CFG)
        elif leaf.endswith(_MAKERS) or any(isinstance(self.value(a), Ref) for a in node.args):
            self.reader.cannot(f"what {leaf} sets", self.at(node))
            return Ref(CFG) if leaf.endswith(_MAKERS) else UNKNOWN
        return UNKNOWN

    def construct(self, section: str, call: ast.Call) -> None:
        """Set a section from its constructor's keyword arguments; its other fields keep the defaults of the class."""
        leaf = _dotted(call.func).rpartition(".")[2]
        self.reader.begin(section, self.at(call))
        if leaf in _LANGUAGE and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
            call = call.func.value
            leaf = _dotted(call.func).rpartition(".")[2]
        if leaf == "to_megatron_provider":
            self.model(call)
        elif leaf.endswith("_mixed") and section == "mixed_precision":
            self.reader.fields[section] = leaf
        else:
            self.reader.classes[section] = leaf
            for keyword in call.keywords:
                if keyword.arg:
                    at = (self.at(call)[0], keyword.value.lineno)
                    self.reader.assign(f"{section}.{keyword.arg}", self.value(keyword.value), at)

    def model(self, call: ast.Call) -> None:
        """Read the Hugging Face id in `AutoBridge.from_hf_pretrained("org/name").to_megatron_provider()`, for the
        stdlib's facts.

        The id may also be inside `AutoBridge.from_hf_config(AutoConfig.from_pretrained("org/name"))`.
        """
        inner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(inner, ast.Call) and inner.args and isinstance(inner.args[0], ast.Call):
            inner = inner.args[0]
        if isinstance(inner, ast.Call) and inner.args:
            name = self.value(inner.args[0])
            self.reader.hf = name if isinstance(name, str) else None
        given = provided(self.reader.hf or "")
        for path, known in fields().items():  # a new provider has its defaults, but for what the configuration gives
            own = path.startswith("model.") and path.removeprefix("model.") not in given and not known.others
            if own and known.default not in ("required", "factory"):
                self.reader.fields[path] = known.default
                self.reader.assumed.add(path)
        self.reader.cannot("the fields that the Hugging Face configuration gives the model", self.at(call))

    def function(self, name: str) -> tuple[Module, ast.FunctionDef] | None:
        """Find a function of this module, or one that it imports from a module in its folder."""
        if name in self.module.functions:
            return self.module, self.module.functions[name]
        beside = self.module.imported.get(name)
        module = Module.of(beside[0]) if beside else None
        found = module.functions.get(beside[1]) if module and beside else None
        return (module, found) if module and found else None


def _dotted(node: ast.expr) -> str:
    """Format an attribute chain as `a.b.c`; a call in it counts as the name of its function."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    return node.id if isinstance(node, ast.Name) else ""
