"""`moedsl models`: list the models that a run may name, or add one from its Hugging Face configuration."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import attrs

from moedsl.cli import console
from moedsl.cli.terminal import print_file
from moedsl.compiler import load_stdlib
from moedsl.cost import parameters
from moedsl.facts.facts import Model
from moedsl.support.diagnostics import to_json
from moedsl.support.files import refusals


def run(a: Namespace) -> int:
    return _add(a) if a.action == "add" else _list(a)


def _list(a: Namespace) -> int:
    library = load_stdlib()
    models = [m for m in (library.model(n)[0] for n in sorted(library.models)) if m is not None]
    if a.json:
        console.print_json([_json(m) for m in models])
        return 0
    console.print_text(lambda: "\n".join(map(_line, models)))
    return 0


def _line(m: Model) -> str:
    shared = f" + {m.shared_expert_hidden} shared" if m.shared_expert_hidden else ""
    kind = m.attention.upper() + (", vision" if m.vision else "") + (f", {m.mtp_layers} MTP" if m.mtp_layers else "")
    return (
        f"{m.name:<22}{parameters.unique(m) / 1e9:8.1f}B  {m.layers_said}, "
        f"{m.experts} experts top-{m.topk}{shared}, {kind}  ({m.hf})"
    )


def _json(m: Model) -> dict[str, Any]:
    return {**attrs.asdict(m), "parameters": parameters.unique(m)}


def _add(a: Namespace) -> int:
    from moedsl.bridge.importer import config

    out = Path(a.output) if a.output else None
    text, found = config.add(Path(a.config), a.name, hf=a.hf, ignored=a.ignore, known=load_stdlib().models)
    refused = refusals(out, "models add", force=a.force) if out and text is not None else []
    if text is None or refused:
        return console.refused(a, [*found, *refused])
    console.say(found, {})
    code = console.written(out, text, f'; `use "{out}"` makes it known to a run') if out else 0
    if a.json and not code:
        said = [to_json(d, {}) for d in found]
        console.print_json({"version": 1, "file": a.output, "declaration": text, "diagnostics": said})
    elif out is None:
        print_file(text)
    return code
