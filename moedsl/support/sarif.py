"""Write diagnostics as SARIF 2.1.0, which code hosts and editors show at the line. Made from their JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from moedsl.support.pages import pages

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
Json = Mapping[str, Any]


def log(diagnostics: Iterable[Json], version: str) -> dict[str, Any]:
    """Make the log of one run of moedsl."""
    found = list(diagnostics)
    rules = {d["id"]: d for d in found}
    driver = {"name": "moedsl", "version": version, "rules": [_rule(id, d) for id, d in rules.items()]}
    results = [_result(d, [*rules].index(d["id"])) for d in found]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _rule(id: str, d: Json) -> dict[str, Any]:
    """A diagnostic's page describes it; a rule of the library has its reason and its sources."""
    page = pages().get(id)
    text = page.text if page else "\n".join([d["because"] or d["message"], *d["cites"]])
    return {"id": id, "fullDescription": {"text": text}, "help": {"text": f"moedsl explain {id}"}}


def _result(d: Json, rule: int) -> dict[str, Any]:
    texts = [d["message"], *([f"because: {d['because']}"] if d["because"] else []), *(f"help: {h}" for h in d["help"])]
    places = [_place(label) for label in d["labels"]]
    return {
        "ruleId": d["id"],
        "ruleIndex": rule,
        "level": d["severity"],
        "message": {"text": "\n".join(texts)},
        **({"locations": places[:1]} if places else {}),
        **({"relatedLocations": places[1:]} if len(places) > 1 else {}),
    }


def _place(label: Json) -> dict[str, Any]:
    """A place in a file; a text without one, such as that of -e, has no file name that a host could open."""
    region = {
        theirs: label[ours]
        for theirs, ours in (
            ("startLine", "line"), ("startColumn", "column"), ("endLine", "end_line"), ("endColumn", "end_column"),
        )
        if ours in label
    }  # fmt: skip
    file = label["file"]
    uri = Path(file).as_uri() if Path(file).is_absolute() else quote(Path(file).as_posix())
    note = {"message": {"text": label["text"]}} if label["text"] else {}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **({"region": region} if region else {})}, **note}
