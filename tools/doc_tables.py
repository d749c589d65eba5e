"""Make docs/rules.md, models.md, hardware.md and documents.md from the standard library, and docs/commands.md from the
command line."""

from __future__ import annotations

import ast as python
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
from attrs import NOTHING

from moedsl.bridge.importer.families import FAMILIES
from moedsl.bridge.importer.known import ARCHITECTURES, UNSUPPORTED
from moedsl.bridge.megatron_lm import arguments, configuration
from moedsl.cli.arguments import COMMANDS, EXAMPLES, GROUPS, STARTS
from moedsl.compiler import load_stdlib
from moedsl.cost import parameters
from moedsl.facts import families
from moedsl.facts.facts import Hardware, Model, Vision
from moedsl.facts.families import family as of_family
from moedsl.facts.fields import LATEST as RELEASE
from moedsl.facts.fields import data
from moedsl.facts.releases import RELEASES, Release
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.rules import collect, documents
from moedsl.rules.declarations import cite_text
from moedsl.rules.documents import Claim, Document
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule

TRIED = {
    ARCHITECTURES[json.loads(file.read_text(encoding="utf-8"))["architectures"][0]][0]
    for file in (Path(__file__).parents[1] / "tests" / "data" / "families").glob("*/config.json")
}
"""Families without a model in the library, of which a test hands a configuration to Bridge."""
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {
    "plan": "plan.md", "check": "language.md", "what-if": "questions.md", "data": "language.md#data",
    "compile": "recipe.md", "import": "recipes.md", "clusters": "run.md", "weights": "run.md", "logs": "jobs.md",
    "cancel": "jobs.md", "next": "tune.md", "calibrate": "results.md#for-calibration", "schema": "internals.md",
    "completion": "automation.md", "fmt": "automation.md", "mcp": "assistants.md",
    "upgrade": "targets.md", "init": "tutorial_pretrain.md",
}  # fmt: skip
"""The pages of commands that have no page of their own name."""
NOTICE = "<!-- Written by tools/make_docs.py from stdlib/; edit the .moe files instead. -->\n"


def tables() -> dict[str, str]:
    """Map file names below docs/ to their texts."""
    library = load_stdlib()
    return {
        "rules.md": rules_page(library),
        "models.md": models_page(library),
        "hardware.md": hardware_page(library),
        "documents.md": documents_page(library),
        "start.md": start_page(),
        "commands.md": commands_page(),
        "plan_fields.md": plan_fields_page(),
        "megatron_lm.md": megatron_lm_page(),
    }


def megatron_lm_page() -> str:
    """List the arguments of Megatron-LM that decide fields, below the page's own text."""
    head, mark, _ = (DOCS / "megatron_lm.md").read_text(encoding="utf-8").partition(ARGUMENTS_HEAD)
    rows = []
    for dest, entries in arguments.table().items():
        found = configuration.paths(dest)
        if found:
            said = ", ".join(code(p) + ("" if v == "=" else f" = {str(v).lower()}") for p, v in found.items())
            rows.append((" ".join(code(f) for e in entries for f in e.flags), said))
    return f"{head}{mark}\n{table(('Argument', 'Fields'), rows)}"


ARGUMENTS_HEAD = "or the one that is shown.\n"


def start_page() -> str:
    """Ask what the reader has, and answer with a command and its page."""
    rows = ((what, code(command), _page_of(command.split()[1])) for what, command in STARTS.items())
    return f"{START}\n{table(('You have', 'Type', 'Read'), rows)}{START_END}"


def commands_page() -> str:
    """List the commands by group, each with its examples and its page in docs/."""
    parts = [COMMANDS_HEAD]
    for title, names in GROUPS.items():
        rows = ((_page_of(name), COMMANDS[name].help, "<br>".join(map(code, EXAMPLES[name]))) for name in names)
        parts.append(f"\n## {title}\n\n" + table(("Command", "What it does", "Examples"), rows))
    return "".join(parts)


def _page_of(command: str) -> str:
    """Link a command to its page, if docs/ has one."""
    page = PAGES.get(command, f"{command}.md")
    return f"[`{command}`]({page})" if (DOCS / page.partition("#")[0]).exists() else f"`{command}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def code(text: str) -> str:
    """Write a cell as code; empty stays empty."""
    return f"`{text}`" if text else ""


# ---------------------------------------------------------------- start, commands

COMMAND_LINE = NOTICE.replace("stdlib/; edit the .moe files", "moedsl/cli/arguments.py; edit that")
START = f"""# What do you have?

{COMMAND_LINE}"""
START_END = """
Each command prints what to do next. New here? Read [from zero to a job](tutorial_pretrain.md), or how to
[fine-tune on your samples](tutorial_finetune.md). [Install](install.md) has the extras that some commands need,
[commands](commands.md) all commands, and [examples](../examples) a run file for each question.
"""
COMMANDS_HEAD = f"""# Commands

{COMMAND_LINE}
`moedsl COMMAND --help` lists the options of a command. `-e 'TEXT'` takes the program itself where FILE is a run file,
and `-` reads standard input. Exit codes: 0, success; 1, an error in the file, or nothing satisfies it; 2, a bug in
moedsl. Data goes to stdout, messages to stderr. A file is written completely or not at all, and moedsl overwrites only
what it wrote and nobody has edited since, unless `--force` is given.
"""

PLAN_FIELDS = """# The fields of a plan

<!-- Written by tools/make_docs.py from moedsl/planner/plan.schema.json; edit the docstrings of the classes instead. -->

`moedsl.plan(...).plan` has these attributes in Python, and plan.json these keys. A value with the name of a class has
the fields of that class, below. What an estimate includes, and where it comes from, is in [estimates](estimates.md);
`because` and `cite` of a decision name its own source.
"""
UNITS = {
    "per_s_per_gpu": "tokens/s/GPU", "tflops_per_gpu": "TFLOPS/GPU", "_gib": "GiB", "_gb": "GB", "_tb": "TB",
    "_bytes": "bytes", "_ms": "ms", "_us": "us", "_s": "s", "_days": "days", "_hours": "hours", "_share": "of 1",
}  # fmt: skip
"""Units by how the name of a field ends."""


def plan_fields_page() -> str:
    """List the fields of a plan and of each record in it, with type, unit and meaning."""
    schema = json.loads((files("moedsl.planner") / "plan.schema.json").read_text(encoding="utf-8"))
    parts = [PLAN_FIELDS, _fields_table("Plan", schema)]
    parts += [_fields_table(name, found) for name, found in schema["$defs"].items() if found.get("properties")]
    return "".join(parts)


def _fields_table(name: str, schema: Mapping[str, Any]) -> str:
    rows = [
        (code(field), _type_of(found), next((u for end, u in UNITS.items() if field.endswith(end)), ""),
         found.get("description", ""))
        for field, found in schema["properties"].items()
    ]  # fmt: skip
    return f"\n## {name}\n\n{schema.get('description', '')}\n\n{table(('Field', 'Type', 'Unit', 'Meaning'), rows)}"


def _type_of(schema: Mapping[str, Any]) -> str:
    """Format a JSON Schema as a type; a record is a link to its table."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_type_of, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type_of(schema.get('items') or {})}"
    kind = schema.get("type", "any value")
    return " or ".join(kind) if isinstance(kind, list) else kind


# ---------------------------------------------------------------- rules

RULES = """`moedsl explain NAME` prints one rule, `moedsl explain rules` lists all.
A rule has the name `std.BLOCK.NAME`; `allow` also accepts it without `std.`. Sources: *bridge* and *core* are files of
Megatron Bridge 0.6.2 and Megatron-Core 0.19.2, *te* is Transformer Engine, *seed* is a section of NVIDIA's performance
guides for MoE training, *slurm* is what NVIDIA's own recipes have in common, *design* is a decision of this project.
"""
SECTIONS = {
    "require": """## Laws

The framework or the machine would refuse a layout that breaks a law. Only laws exclude layouts; `allow NAME because
"..."` overrides one.
""",
    "prefer": """## Advice

Documented advice ranks layouts and never excludes one. A plan shows whether it was followed and what following it
costs. *Worth* is the value of following it when layouts are ranked, as a share of the step time.
""",
    "rank": """## What each phase minimises

The first key decides, the next keys break ties. `score` is the step time plus the worth of all advice that is not
followed.
""",
    "candidates": """## What is chosen from

The first entry whose condition holds counts; rules of the run's own files come before these. A pin overrides it.
""",
    "default": """## Defaults

The value if the run sets none; the first entry whose condition holds counts.
""",
    "derive": """## Derived

Values that follow from the rest and are set in the recipe.
""",
    "env": """## Environment of the training process

Set in the recipe. The first entry of a name whose condition holds counts; a value in the launcher overrides it.
""",
    "let": """## Names

Rules and run files may use them.
""",
    "measured": """## Measured

Published results, shown with a plan for which their conditions hold.
""",
}
MODELS = """Facts are those of the published `config.json`. *config* in a source is its key. Parameters are counted as
Megatron builds them. `moedsl models add config.json` writes the declaration of another model. It reads what
transformers has saved up to 5.24, takes for an absent key what Megatron Bridge's AutoBridge builds, and warns of a file
that AutoBridge cannot load.
"""
WAYS = f"""## Families

A family is the `model_type` of the `config.json`, unless the class in `architectures`, by which Bridge finds it, is
another family's. Releases of Megatron Bridge with the same answers share a row.
*Bridge*: these releases have a bridge for it. *Verified*: Bridge builds the plan's recipe, and each stage has the
parameters that are counted. *Rehearsed*: a small model of it trains on a CPU, with Megatron Bridge {RELEASE} alone.
`moedsl models add` refuses a family that is not imported with the remark; for one that no release bridges, it says the
`model` block that plans it *by hand*. `compile` and `run` refuse a model without a bridge.
"""
REMARKS = {
    "deepseek_v2": "deprecated: Megatron Bridge 0.7.0 removes it (bridge models/_deprecation.py:30)",
    "minimax_m3_vl": "its language model, with full attention in each layer",
    "ernie4_5_moe": "routed by a sigmoid, the published models by a softmax (bridge models/ernie/ernie_45_bridge.py)",
    "step3p5": "with a gate as wide as each head in place of a number, and without MTP",
}
"""What a reader should know of a family that Bridge builds."""
HARDWARE = """Rates are dense. Bandwidths are for one GPU and one direction. `hardware NAME { ... }` declares other
machines, as in examples/own_hardware.moe.
"""


def rules_page(library: Library) -> str:
    """Write every rule of the stdlib by kind."""
    known, _, _ = collect.collect(library.rules)
    parts = ["# The rules\n", NOTICE, RULES]
    for kind, intro in SECTIONS.items():
        chosen = [r for r in known if r.kind == kind]
        if chosen:
            parts += [intro, table(*_rule_rows(kind, chosen))]
    return "\n".join(parts)


def _rule_rows(kind: str, chosen: list[Rule]) -> tuple[list[str], list[list[str]]]:
    worth = kind == "prefer"
    head = ["Rule", "Says", "Where", *(["Worth"] if worth else []), "Because", "Source"]
    return head, [
        [
            code(r.id.removeprefix("std.")),
            code(print_expr(r.expr)),
            code(print_expr(r.when)) if r.when is not None else "",
            *([f"{r.worth:.0%}"] if worth else []),
            r.because or "",
            "; ".join(r.cites),
        ]
        for r in chosen
    ]


# ---------------------------------------------------------------- models and hardware


def models_page(library: Library) -> str:
    """Write an overview, the facts of each model with their sources, and the facts that a declaration may state."""
    models = [m for m in (library.model(n)[0] for n in sorted(library.models)) if m is not None]
    head = ["Model", "Parameters", "Layers", "Experts", "Attention", "Longest sequence", "Bridge", "Hugging Face"]
    parts = ["# The models\n", NOTICE, MODELS, table(head, map(_overview, models)), _families(models)]
    for m in models:
        parts += [f"## {m.name}\n", table(["Fact", "Value", "Source"], _facts(library.models[m.name].facts))]
    parts += ["## Facts that a model may state\n", fact_table(Model)]
    return "\n".join([*parts, "## Facts of its `vision` block\n", fact_table(Vision)])


def _families(models: Sequence[Model]) -> str:
    """Write how far each family comes, from its `config.json` to a rehearsal, or why not."""
    rows = [r for n in sorted(FAMILIES) for r in _by_release(n, [m for m in models if m.family == n])]
    rows += [row for name in sorted(UNSUPPORTED) for row in _refused(name)]
    head = ["Family", "Models", "Release", "Bridge", "Imported", "Planned", "Verified", "Rehearsed", "Remark"]
    return f"{WAYS}\n{table(head, rows)}"


def _by_release(name: str, models: Sequence[Model]) -> list[list[str]]:
    said = ", ".join(code(m.name) for m in models)
    return _merged([code(name), said], [_imported(name, models, r) for r in RELEASES])


def _refused(name: str) -> list[list[str]]:
    refused = UNSUPPORTED[name]
    by_hand = "no" if refused.bridge else "by hand"
    cells = [[_bridged(name, r), "no", by_hand, "no", "no", refused.why] for r in RELEASES]
    return _merged([code(name), refused.models], cells)


def _merged(first: list[str], cells: Sequence[list[str]]) -> list[list[str]]:
    """Write one row for the releases with the same cells, of which there are some for each."""
    same: dict[tuple[str, ...], list[str]] = {}
    for release, row in zip(RELEASES, cells, strict=True):
        same.setdefault(tuple(row), []).append(release.minor)
    return [[*first, ", ".join(minors), *row] for row, minors in same.items()]


def _bridged(family: str, release: Release) -> str:
    return "yes" if family in data(release.bridge)["families"] else "no"


def _imported(name: str, models: Sequence[Model], release: Release) -> list[str]:
    """A family without a model in the library is planned as any declaration is, but no test hands it to Bridge."""
    bridged, family = _bridged(name, release), of_family(name)
    reasons = {m.name: families.why_unbuilt(m, release.bridge) for m in models}
    refused = {n: why for n, why in reasons.items() if why is not None}
    alone = name in TRIED and bridged == "yes" and release == RELEASES[-1]
    tried = "yes" if alone or len(refused) < len(models) else "no"
    planned = "no" if refused and tried == "no" else "yes"
    rehearsed = "no"
    if release == RELEASES[-1]:
        shown = "its language model" if family.vision else tried
        rehearsed = "on GPUs only" if family.hybrid else shown if models else "no"
    remark = ("" if alone else _remark(bridged, models, refused)) or REMARKS.get(name, "")
    return [bridged, "yes", planned, tried, rehearsed, remark]


def _remark(bridged: str, models: Sequence[Model], refused: Mapping[str, str]) -> str:
    """Say what is refused, or why no test hands the family to Bridge."""
    if not models:
        return "no model of it is in the library" if bridged == "yes" else "no bridge for it: no recipe is built"
    whole = len(refused) == len(models)
    return "; ".join(dict.fromkeys(why if whole else f"{code(name)}: {why}" for name, why in refused.items()))


def _overview(m: Model) -> list[str]:
    size = f"{parameters.unique(m) / 1e9:.1f} B"
    return [code(m.name), size, _layers(m), _experts(m), _attention(m), f"{m.max_seq:,}", _releases(m), m.hf]


def _releases(m: Model) -> str:
    """The releases of Bridge that build a model."""
    return ", ".join(r.minor for r in RELEASES if families.why_unbuilt(m, r.bridge) is None)


def _layers(m: Model) -> str:
    dense = f", {m.dense_layers} of them dense" if m.dense_layers else ""
    said = f": {m.kinds_said}" if m.kinds_said else dense
    return f"{m.layers}{said}" + (f", {m.mtp_layers} MTP" if m.mtp_layers else "")


def _experts(m: Model) -> str:
    return f"{m.experts}, top {m.topk}" + (", shared" if m.shared_expert_hidden else "")


def _attention(m: Model) -> str:
    said = (m.attention.upper(), "gated" if m.attention_gate else "", f"window {m.window}" if m.window else "")
    return ", ".join(filter(None, (*said, "vision tower" if m.vision else "")))


def hardware_page(library: Library) -> str:
    """Write the facts of each GPU with their sources."""
    parts = ["# The hardware\n", NOTICE, HARDWARE]
    for name in sorted(library.hardware):
        parts += [f"## {name}\n", table(["Fact", "Value", "Source"], _facts(library.hardware[name].facts))]
    parts += ["## Facts that a hardware may state\n", fact_table(Hardware)]
    return "\n".join(parts)


def _facts(entries: Iterable[ast.FactEntry], prefix: str = "") -> list[list[str]]:
    rows: list[list[str]] = []
    for e in entries:
        if isinstance(e.value, tuple) and all(isinstance(v, ast.FactEntry) for v in e.value):
            rows += _facts((v for v in e.value if isinstance(v, ast.FactEntry)), f"{prefix}{e.name.id}.")
        else:
            rows.append([prefix + e.name.id, _value(e), "; ".join(cite_text(c) for c in e.cites)])
    return rows


def _value(e: ast.FactEntry) -> str:
    if isinstance(e.value, tuple):
        return " ".join(f"{b.name.id}={print_expr(b.value)}" for b in e.value if isinstance(b, ast.Binding))
    text = print_expr(e.value)
    return code(text) if "*" in text else text


def fact_table(cls: type) -> str:
    """Write the fields of a facts class with their types, defaults and docs: what a declaration may state."""
    docs = _field_docs(cls)
    stated = [f for f in attrs.fields(cls) if f.name not in ("name", "sources")]
    rows = [[code(f.name), _type(str(f.type)), _default(f), docs.get(f.name, "")] for f in stated]
    return table(["Fact", "Type", "Default", "Meaning"], rows)


_TYPES = {
    "int": "whole number",
    "float": "number",
    "str": "word or string",
    "bool": "true or false",
    "tuple[int, ...]": "list of numbers",
}


def _type(name: str) -> str:
    return _TYPES.get(name, "block" if "Vision" in name else "values by name")


def _default(f: Any) -> str:
    if f.default is NOTHING:
        return "required"
    return "none" if f.default in (None, "", ()) or isinstance(f.default, attrs.Factory) else str(f.default).lower()  # type: ignore[arg-type]


def _field_docs(cls: type) -> dict[str, str]:
    """Read the string under each field of a class."""
    body = python.parse(inspect.getsource(cls)).body[0]
    assert isinstance(body, python.ClassDef)
    out: dict[str, str] = {}
    for field, doc in zip(body.body, body.body[1:], strict=False):
        match field, doc:
            case python.AnnAssign(target=python.Name(id=name)), python.Expr(value=python.Constant(value=str(text))):
                out[name] = inspect.cleandoc(text)
            case _:
                pass
    return out


# ---------------------------------------------------------------- documents

DOCUMENTS = """This page lists every sentence of NVIDIA's performance guides for MoE training that states a rule, a
default, a number, a pitfall or a symptom, in our own words. Each has the rule or behaviour that carries it, and the
tests that show it. [rules.md](rules.md) has the rules; `moedsl explain NAME` prints one. The declarations are in
stdlib/documents. tests/rules/test_documents.py compares each with its text, line by line, where it is available.
"""
LEFT = """### Left out

Claims that no rule or behaviour carries, and why.
"""
SUPERSEDED = """### Superseded

Claims that a newer text contradicts, and what decides instead. The older advice stays with its reason, worth 0%.
"""
IGNORED = """### Lines that state nothing
"""
REASONS = {
    "heading": "headings and heads of tables",
    "link": "pointers to files and to other guides",
    "licence": "front matter: licence, when to use the guide",
    "duplicate": "repetitions of a sentence",
    "damaged": "a damaged place of the copy, with no whole sentence",
    "prose": "the subject of the guide",
}
NOTES = """### Notes
"""


def documents_page(library: Library) -> str:
    """Write each document's claims with their rules and tests, what is superseded or left out, and notes."""
    found = documents.load(documents.rule_ids(library))
    parts = [
        "# The documents\n",
        NOTICE,
        DOCUMENTS,
        table(["Document", "Claims", "Carried", "Left out"], map(_count, found.documents)),
    ]
    for d in found.documents:
        parts += [f"## {d.title}\n", *_claims(d)]
    return "\n".join(parts)


def _count(d: Document) -> list[str]:
    left = sum(c.left is not None for c in d.claims)
    return [d.title, str(len(d.claims)), str(len(d.claims) - left), str(left)]


def _claims(d: Document) -> Iterable[str]:
    yield "From " + ", ".join(f"{code(c.file)} ({c.date})" for c in d.copies) + ".\n"
    borne = [c for c in d.claims if c.left is None]
    yield table(
        ["Where", "Date", "Kind", "Says", "Carried by", "Shown by"],
        ([c.where, d.dates(c), c.kind, c.says, _carriers(c), _shown(c)] for c in borne),
    )
    superseded = [[c.where, d.dates(c), c.says, c.superseded] for c in d.claims if c.superseded is not None]
    if superseded:
        yield SUPERSEDED
        yield table(["Where", "Date", "Says", "Instead"], superseded)
    left = [[c.where, c.kind, c.says, c.left] for c in d.claims if c.left is not None]
    if left:
        yield LEFT
        yield table(["Where", "Kind", "Says", "Reason"], left)
    notes = [[c.where, c.says, c.note] for c in d.claims if c.note is not None]
    if notes:
        yield NOTES
        yield table(["Where", "Says", "Note"], notes)
    yield IGNORED
    yield table(["Text", "Lines", "Reason"], _ignored(d))


def _carriers(c: Claim) -> str:
    ids = ", ".join(code(r.removeprefix("std.")) for r in c.carried)
    return "; ".join(filter(None, [ids, c.behaviour]))


def _shown(c: Claim) -> str:
    return ", ".join(code(t.removeprefix("tests/")) for t in c.shown)


def _ignored(d: Document) -> Iterable[list[str]]:
    """Yield each copy's lines that belong to no claim, with the reason."""
    for copy in d.copies:
        for reason, lines in copy.ignored.items():
            yield [code(copy.file), ", ".join(map(str, lines)), REASONS[reason]]
