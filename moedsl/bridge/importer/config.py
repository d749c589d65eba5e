"""Turn a Hugging Face `config.json` of a mixture-of-experts model into a .moe declaration, or refuse it: `moedsl models
add`.

The tables are in `families.py`. A key that no table names is refused: a wrongly declared model would be planned wrongly
without notice. A declaration lists facts in a fixed order, and each line cites the fields that it was read from.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import evolve, frozen

from moedsl.bridge.importer import spellings, unbridged
from moedsl.bridge.importer.families import FAMILIES, FLAT, PLUMBING
from moedsl.bridge.importer.known import ARCHITECTURES, HARMLESS, NAMES, REVISIONS
from moedsl.bridge.importer.layers import Fields, Pattern, Rule, Value, is_int, show
from moedsl.bridge.importer.rules import Check, Const, Family, Int, OfMtp, OfText, Repeated, Times
from moedsl.facts.facts import Model, Vision
from moedsl.lang.ast import ModelDecl
from moedsl.lang.parser import parse
from moedsl.rules import declarations
from moedsl.support.diagnostics import Diagnostic, Label, error, warning
from moedsl.support.foreign import refuse_special
from moedsl.support.source import Source, Span

Result = tuple[str | None, tuple[Diagnostic, ...]]
LARGEST = 4 << 20
"""The most bytes of a configuration; real ones have a few thousand."""
_CACHED = re.compile(r"/models--([^/]+--[^/]+)/snapshots/([0-9a-f]{40})/[^/]+$")
"""A path in the hub's cache: the model, with two dashes for the slash, and the commit."""
_NO_EXPERTS = "not a mixture of experts"


def add(
    path: Path,
    name: str | None = None,
    *,
    hf: str | None = None,
    ignored: Collection[str] = (),
    known: Collection[str] = (),
) -> Result:
    """Read the configuration at `path`, and return its declaration; nothing is written.

    `hf` is the Hugging Face id. By default it comes from the path in the hub's cache, which also gives the commit; else
    from the file (`_meta.hf_id`, `_name_or_path`); else from the names of file and folder (``ORG--NAME/config.json``,
    ``ORG__NAME.json``); else it is the absolute path of a folder, that of a ``config.json`` or one with the name of the
    file, and a warning says so. `name` defaults to the
    stdlib's name for the id, else to one made from the id's last component. `ignored` are unknown fields that the user
    knows to change nothing; `known` are the names of models that are declared already.
    """
    loaded = _load(path, known)
    if isinstance(loaded, Diagnostic):
        return None, (loaded,)
    source, whole = loaded
    place = _CACHED.search(path.absolute().as_posix())
    cached, commit = (place[1].replace("--", "/", 1), place[2]) if place else (None, None)
    hf = hf or cached or _id_of(whole, path)
    said = list[Diagnostic]()
    if hf is None:
        whole_path = path.resolve()
        hf = str(whole_path.parent if path.name == "config.json" else whole_path.with_suffix(""))
        said.append(warning("import.no_id", path=path, hf=hf))
    declared, found = declaration(whole, name, hf, commit if hf == cached else None, ignored, known)
    return declared, tuple(evolve(d, labels=_labels(d, source)) for d in (*(said if declared else ()), *found))


def declaration(
    config: Any,
    name: str | None,
    hf: str,
    commit: str | None = None,
    ignored: Collection[str] = (),
    known: Collection[str] = (),
) -> Result:
    """Make the .moe text of a configuration, or None and an error for each unsupported field.

    `config` is a parsed ``config.json`` or ``{"_meta": ..., "config": ...}``; `commit` is the file's commit, by default
    the one that Bridge's recipes use. The text may come with warnings.
    """
    if not isinstance(config, Mapping):
        return None, (error("import.not_object", value=show(config)),)
    wrapped = config.get("config")
    inner = wrapped if isinstance(wrapped, Mapping) and "model_type" not in config else config
    name = name or NAMES.get(hf) or derived_name(hf)
    found: list[Diagnostic] = []
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        found.append(error("import.bad_name", name=show(name), possible=derived_name(name)))
    if not hf or re.search(r'["\\\x00-\x1f#]', hf):
        found.append(error("import.bad_id", hf=show(hf)))
    named, said_by = _family(inner)
    table = FAMILIES.get(named)
    if table is None:
        refused = unbridged.unknown_family(inner) or unbridged.no_bridge(inner, named, name, hf)
        return None, (*found, refused)
    if said_by == "model_type" and named != inner["model_type"]:
        table = evolve(table, language=())
    facts, vision, problems = _read_facts(inner, named, table, ignored)
    for key in ignored:
        if not _holds(inner, key):
            help = "pass `--ignore` once for each field" if "," in key else "remove it"
            found.append(error("import.unknown_field", path=key, help=help))
    if found or problems:
        return None, (*found, *problems)
    revision = (commit, 'config "the commit of its folder in the hub\'s cache"') if commit else REVISIONS.get(hf)
    warned = [warning("import.built_in", name=name)] if name in known else []
    if not table.bridge:
        warned.append(warning("import.no_bridge:family", family=named, values={"field": "model_type", "value": named}))
    warned += _unregistered(inner, named) if table.bridge and not table.language else []
    if table.bridge:
        nested = inner.get("text_config")
        warned += spellings.remarks(named, inner, nested if isinstance(nested, Mapping) else inner)
    text = write(name, hf, revision, named, table.notes, facts, vision, said_by)
    module, _ = parse(Source("added.moe", text))
    declared = [item for item in module.items if isinstance(item, ModelDecl)] if module else []
    wrong = [error("import.unsupported_value", d.message) for item in declared for d in declarations.model(item)[1]]
    return (None, tuple(wrong)) if wrong else (text, tuple(warned))


def derived_name(hf: str) -> str:
    """Make the name of a declaration from a Hugging Face id: ``Qwen/Qwen3-30B`` becomes ``qwen3_30b``."""
    word = re.sub(r"[^a-z0-9]+", "_", hf.rstrip("/").split("/")[-1].lower()).strip("_")
    return word if word[:1].isalpha() else f"model_{word}"


@frozen
class Fact:
    """One fact of a model, with the rule that read it and the keys that it was read from."""

    value: Value
    rule: Rule
    keys: tuple[str, ...]
    path: str
    """The dotted prefix of the keys."""

    @property
    def literal(self) -> str:
        """The value as the language writes it; only a layer pattern has quotes."""
        text = json.dumps(self.value)
        return text if isinstance(self.rule, Pattern) else text.strip('"')


Facts = dict[str, Fact]


def _read_facts(
    config: Mapping[str, Any], family: str, table: Family, ignored: Collection[str]
) -> tuple[Facts, Facts, list[Diagnostic]]:
    """Read the facts of the language model and of the vision tower, and the refusals.

    The language model is at the top level, or in `text_config`; then the top level may have facts and checks of its
    own.
    """
    top, text, tower = Fields({}), Fields(config), Fields({})
    if table.vision or table.language:
        top = Fields(config)
        text = _nested(top, "text_config")
    if table.vision:
        tower = _nested(top, "vision_config")
        tower.text = text
        if top.problems:
            return {}, {}, top.problems
    parts: dict[spellings.Part, Fields] = {"top": top, "text": text, "tower": tower}
    for part, fields in parts.items():
        if fields.config:
            spellings.spell(family, part, fields, table)
    outer = _object(top, table.outer, table.language, ignored)
    if table.language and top.problems:
        return {}, {}, top.problems
    facts = _object(text, table.facts, table.only, ignored)
    vision = _object(tower, table.vision, table.vision_only, ignored)
    problems = [*top.problems, *text.problems, *tower.problems]
    if not problems:
        if vision:
            hidden, layers = facts["hidden"].value, vision["layers"].value
            mergers: Any = vision["deepstack"].value if "deepstack" in vision else ()
            if vision["out_hidden"].value != hidden:
                tower.unsupported("out_hidden_size", f"the language model is {hidden} wide")
            if any(i >= layers for i in mergers):
                tower.unsupported("deepstack_visual_indexes", f"there are {layers} layers")
        problems = [*_sane(facts, text), *tower.problems]
    return facts | outer, vision, problems


def _object(fields: Fields, rules: Mapping[str, Rule], only: tuple[Check, ...], ignored: Collection[str]) -> Facts:
    for check in (*PLUMBING, *only):
        check.check(fields)
    settled = {fact: rule.settled(fields) for fact, rule in rules.items()}
    of = {fact: fields.text if isinstance(rule, OfText) and fields.text else fields for fact, rule in settled.items()}
    facts = {
        n: Fact(rule.read(fields), rule, of[n].spell(rule.keys(fields)), of[n].path) for n, rule in settled.items()
    }
    fields.problems[:] = list({(d.id, d.message): d for d in fields.problems}.values())
    fields.known.update(HARMLESS)
    for key in fields.unknown():
        sign, value, path = unbridged.sign(key), show(fields.config[key]), fields.path + key
        if sign:
            fields.refuse("import.unknown_field", key, f"{value}: {sign}")
        elif path not in ignored:
            help = f"if no tensor and no step of the model depends on it, pass `--ignore {path}`"
            fields.refuse("import.unknown_field", key, f"{value}: unknown, and may change the architecture", help=help)
    return facts


def _nested(top: Fields, key: str) -> Fields:
    value = top.get(key)
    if not isinstance(value, Mapping):
        slug = "import.wrong_type" if key in top.config else "import.missing_field"
        top.refuse(slug, key, f"expected an object, got {show(value)}")
        return Fields({}, f"{key}.")
    return Fields(value, f"{key}.")


_WITHOUT = {
    "mamba_heads": 0, "mamba_groups": 1, "linear_key_heads": 1, "linear_value_heads": 0, "linear_every": 1,
    "mtp_layers": 0, "attention": "", "dense_layers": 0, "layer_pattern": "E", "indexer_dim": 0,
}  # fmt: skip
"""Neutral values for facts that a model does not have: no check in `_sane` refuses them."""


_UNRANKED = (
    "{some} of {groups} groups for a token, and {topk} experts: Megatron ranks a group by its best {topk} // {some} "
    "= 0 experts: each token takes the same groups, and the others get none (core transformer/moe/moe_utils.py:656)"
)
_UNHELD = "{topk} experts for a token, more than its {some} of {groups} groups have"
_ROPE_WIDTH = (
    "take the three widths from the published config.json, and remove qk_head_dim if it is the wrong one; transformers "
    "5.8 to 5.11 save the head_dim of GLM-5.2, 192, as its qk_rope_head_dim, which is 64"
)


def _sane(facts: Facts, fields: Fields) -> list[Diagnostic]:
    """Refuse numbers that contradict each other."""
    before = len(fields.problems)
    f: dict[str, Any] = {**_WITHOUT, **{name: fact.value for name, fact in facts.items()}}
    experts, groups, heads, kv, layers, every = (
        f[n] for n in ("experts", "routing_groups", "heads", "query_groups", "layers", "linear_every")
    )
    topk, mamba, shared, keys = (f[n] for n in ("topk", "mamba_heads", "mamba_groups", "linear_key_heads"))
    some, values, ahead, latent = f["topk_groups"], f["linear_value_heads"], f["mtp_layers"], f["attention"] == "mla"
    asked = (
        ("topk", topk <= experts, f"{topk} experts for a token, but there are {experts}"),
        ("routing_groups", experts % groups == 0, f"{groups} groups do not divide {experts} experts"),
        ("topk_groups", some <= groups, f"{some} groups for a token, but there are {groups}"),
        ("topk_groups", topk >= some or some == groups, _UNRANKED.format(topk=topk, some=some, groups=groups)),
        ("topk", topk * groups <= some * experts, _UNHELD.format(topk=topk, some=some, groups=groups)),
        ("query_groups", heads % kv == 0, f"{kv} does not divide {heads} attention heads"),
        ("query_groups", not latent or kv == heads, "latent attention has as many key-value heads as heads"),
        ("dense_layers", f["dense_layers"] < layers, f"all {layers} layers are dense: {_NO_EXPERTS}"),
        ("layer_pattern", "E" in f["layer_pattern"], f"no block has experts: {_NO_EXPERTS}"),
        ("mamba_groups", mamba % shared == 0, f"{shared} groups do not divide {mamba} Mamba heads"),
        ("linear_every", every <= layers, f"none of {layers} layers has full attention"),
        ("linear_every", not ahead or layers % every == 0, "MTP repeats the last layer, which has no full attention"),
        ("linear_value_heads", values % keys == 0, f"{keys} key heads do not divide {values} value heads"),
    )
    for fact, fine, message in asked:
        if not fine:
            fields.unsupported(facts[fact].keys[0], message)
    whole, parts = fields.config.get("qk_head_dim"), f["qk_nope_dim"] + f["qk_rope_dim"] if latent else 0
    if latent and whole not in (None, parts):
        of = f"qk_nope_head_dim {f['qk_nope_dim']} and qk_rope_head_dim {f['qk_rope_dim']} make {parts}"
        fields.refuse("import.unsupported_value", "qk_head_dim", f"{show(whole)}, but {of}", help=_ROPE_WIDTH)
    elif 0 < f["indexer_dim"] < f["qk_rope_dim"]:
        of = f"the indexer's heads of {f['indexer_dim']} rotate so many of their numbers (index_head_dim)"
        fields.refuse("import.unsupported_value", "qk_rope_head_dim", f"{f['qk_rope_dim']}, but {of}", help=_ROPE_WIDTH)
    other, rotary = (fields.config.get(key, same) for key, same in (("experts_per_token", topk), ("rotary_dim", 0)))
    if other != topk:
        fields.unsupported("experts_per_token", f"{show(other)} contradicts {topk}")
    if is_int(rotary) and rotary > f["head_dim"]:
        fields.unsupported("rotary_dim", f"{rotary} of the {f['head_dim']} numbers of a head")
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        stated = fields.config.get(key)
        if any(is_int(i) and i >= f["vocab"] for i in (stated if isinstance(stated, list) else [stated])):
            fields.unsupported(key, f"{show(stated)}, but vocab_size is {f['vocab']}")
    return fields.problems[before:]


def _family(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the family of a configuration, and the key that names it.

    Megatron Bridge picks a bridge by the class in `architectures` (models/conversion/auto_bridge.py:1936). Several
    families may share it, and then `model_type` says which.
    """
    kind = config.get("model_type")
    of = next((ARCHITECTURES[c] for c in _classes(config) if c in ARCHITECTURES), ())
    if not of or kind in of:
        return (FLAT.get(kind, kind) if isinstance(kind, str) else ""), "model_type"
    return of[0], "architectures"


def _classes(config: Mapping[str, Any]) -> list[str]:
    stated = config.get("architectures")
    return [c for c in stated if isinstance(c, str)] if isinstance(stated, list) else []


def _unregistered(config: Mapping[str, Any], family: str) -> list[Diagnostic]:
    """Warn of classes for which Megatron Bridge has registered no bridge, although it has one for the family."""
    classes = _classes(config)
    if not classes or any(c in ARCHITECTURES for c in classes):
        return []
    right = next(name for name, of in ARCHITECTURES.items() if family in of)
    return [warning("import.no_bridge:class", name=classes[0], family=family, right=right)]


def _holds(config: Mapping[str, Any], path: str) -> bool:
    """Whether a configuration has the field at a dotted path."""
    here, _, rest = path.partition(".")
    value = config.get(here)
    return here in config and (not rest or (isinstance(value, Mapping) and _holds(value, rest)))


def _load(path: Path, known: Collection[str]) -> tuple[Source, Any] | Diagnostic:
    """Read a JSON file; if it cannot be opened, the diagnostic says what to name instead of a folder, a built-in model
    or an id of the Hub."""
    try:
        refuse_special(path)
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            return error("import.unreadable:too-large", path=path, largest=LARGEST >> 20)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        return error("import.unreadable:not-utf8", path=path, start=e.start)
    except OSError as e:
        given = str(path)
        name = NAMES.get(given, given)
        id = given if re.fullmatch(r"[\w.-]+/[\w.-]+", given) else "ORG/NAME"
        help = f"nothing is downloaded: save config.json of {id} from the Hub, and pass --hf {id} with the file"
        if os.path.isfile(path / "config.json"):
            help = f"name the file in it: `moedsl models add {path / 'config.json'}`"
        elif os.path.exists(path):
            help = "name a model's config.json, as Hugging Face has it"
        elif name in known:
            help = f"the model is built in: a run names it, `{name}`, without a declaration"
        return error("import.unreadable:unopened", path=path, reason=e.strerror or e, help=help)
    try:
        return Source(str(path), text), json.loads(text)
    except ValueError as e:
        at = getattr(e, "pos", 0)
        return error("import.not_json:json", Span(str(path), at, min(at + 1, len(text))), path=path, reason=e)
    except RecursionError:
        return error("import.not_json:nested", path=path)


def _id_of(whole: Any, path: Path) -> str | None:
    """Return the Hugging Face id in the file, or in its path."""
    if not isinstance(whole, Mapping):
        return str(path)
    meta = whole.get("_meta")
    stated = meta.get("hf_id") if isinstance(meta, Mapping) else whole.get("_name_or_path")
    if isinstance(stated, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", stated):
        return stated
    for word, mark in ((path.parent.name, "--"), (path.stem, "__"), (path.stem, "--")):
        if re.fullmatch(rf"[\w.-]+?{mark}[\w.-]+", word):
            return word.replace(mark, "/", 1)
    return None


def _labels(d: Diagnostic, source: Source) -> tuple[Label, ...]:
    """Label the key of a diagnostic's field in the file, if the key is there."""
    field, at, span = d.values.get("field"), 0, None
    for word in field.split(".") if isinstance(field, str) else ():
        found = re.compile(re.escape(json.dumps(word)) + r"\s*:").search(source.text, at)
        if found is None:
            break
        at, span = found.end(), Span(source.name, found.start(), found.start() + len(word) + 2)
    return (Label(span),) if span else d.labels


WIDTH = 100
"""The longest line of facts with its sources, in columns."""


_LINES = """
    layers hidden vocab | layer_pattern | mamba_heads mamba_head_dim mamba_state mamba_groups | max_seq |
    position_embedding_type | tied_embeddings | softcap | attention | heads query_groups head_dim |
    q_lora_rank kv_lora_rank | qk_nope_dim qk_rope_dim v_head_dim | indexer_heads indexer_dim indexer_topk |
    indexer_every indexer_leading | qk_norm qk_norm_over | attention_gate | qkv_bias |
    attention_bias mlp_bias router_bias | router_balanced | attention_sinks | linear_every |
    linear_key_heads linear_value_heads linear_key_dim linear_value_dim |
    window window_every window_leading window_first | window_heads window_query_groups | window_sinks |
    full_query_groups full_head_dim | sandwich_norms | ffn_hidden dense_layers | gated |
    experts topk expert_hidden | moe_latent | routing_groups topk_groups | shared_expert_hidden |
    shared_expert_gate | mtp_layers mtp_pattern | mtp_repeated mtp_dense
"""
"""The facts on each line of a declaration, in order."""
_VISION_LINES = """
    layers hidden ffn_hidden heads | patch temporal_patch merge in_channels | positions | out_hidden |
    final_norm replicated pooled | deepstack | image_tokens
"""


def write(
    name: str,
    hf: str,
    revision: tuple[str, str] | None,
    family: str,
    notes: Iterable[str],
    facts: Facts,
    vision: Facts,
    said_by: str = "model_type",
) -> str:
    """Write the declaration as canonical .moe text, ending with a newline; the same facts give the same bytes.

    `revision` is a commit of the model with its citation, `said_by` the key that names the family.
    """
    out = [f"# Written by `moedsl models add` from the config.json of {hf}.", *(f"# {note}" for note in notes)]
    out += [f"model {name} {{", f'  hf "{hf}"']
    out += [f'  revision "{revision[0]}"', f"    cite {revision[1]}"] if revision else []
    out += [f'  family {family} cite config "{said_by}"', *_block(_LINES, facts, Model, "  ")]
    out += ["  vision {", *_block(_VISION_LINES, vision, Vision, "    "), "  }"] if vision else []
    return "\n".join([*out, "}", ""])


def _block(lines: str, facts: Facts, cls: type[Any], indent: str) -> Iterator[str]:
    """Yield the lines of facts that differ from their defaults; citations that make a line too long go on the next
    one."""
    defaults = {a.name: a.default for a in attrs.fields(cls)}
    for line in lines.split("|"):
        named = {name: facts[name] for name in line.split() if name in facts}
        yield from (
            f"{indent}# {f.rule.note}"
            for f in named.values()
            if isinstance(f.rule, Int) and f.rule.note and f.value == 0
        )
        written = {name: f for name, f in named.items() if f.value != defaults[name]}
        if not written:
            continue
        body = indent + " ".join(f"{name} {f.literal}" for name, f in written.items())
        config = dict.fromkeys(f.path + key for f in written.values() for key in f.keys)
        cites = [f'config "{", ".join(config)}"'] if config else []
        own = [f.rule for f in written.values() if not f.keys]
        decided = dict.fromkeys(rule.bridge for rule in own if isinstance(rule, Const | Repeated | OfMtp))
        cites += [f'bridge "{line}"' for line in decided]
        cites += [f'core "{f.rule.core}"' for f in written.values() if isinstance(f.rule, Times)]
        cite = f"cite {' '.join(cites)}"
        yield from (f"{body} {cite}",) if len(body) + len(cite) < WIDTH else (body, f"{indent}  {cite}")
