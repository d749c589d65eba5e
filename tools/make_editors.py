"""Regenerate the editors' files from the grammar and the compiler's lists: everything under
editors/ that has a template in tools/editor_templates/, editors/words.json and the TextMate grammar.

usage: .venv/bin/python tools/make_editors.py [--check] [--parser]
  --check    writes nothing and exits 1 if a file would change
  --parser   also runs tree-sitter, fetched as tools/editors_fetch.py does, to bring tree-sitter/src/parser.c up to date
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import editor_grammar
import editor_textmate
import editors_fetch
import jinja2

from moedsl.lang.keywords import keywords

ROOT = Path(__file__).resolve().parents[1]
EDITORS = ROOT / "editors"
TEMPLATES = Path(__file__).resolve().parent / "editor_templates"
ABI = 14
"""Neovim 0.10 and Helix 25.01 read no newer version."""


def regenerated() -> dict[Path, str]:
    """Return every generated file except tree-sitter's parser, with its current text."""
    textmate = EDITORS / "vscode" / "syntaxes" / "moe.tmLanguage.json"
    return {
        EDITORS / "words.json": _json(keywords().to_json()),
        textmate: _json(editor_textmate.grammar()),
    } | _rendered()


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _rendered() -> dict[Path, str]:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    environment.filters["pattern"] = pattern
    values = {"words": keywords(), "grammar": editor_grammar}
    names = sorted(path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*.j2"))
    return {EDITORS / name.removesuffix(".j2"): environment.get_template(name).render(values) for name in names}


def pattern(items: tuple[str, ...]) -> str:
    """Write words as the alternatives of a regular expression, the longest first."""
    return "|".join(re.escape(word) for word in sorted(items, key=lambda s: (-len(s), s)))


def parser_files() -> dict[Path, str]:
    """Return tree-sitter's files for the grammar; raises editors_fetch.FetchFailed if tree-sitter is not available."""
    program = editors_fetch.fetch("tree-sitter-cli").command("usr/bin/tree-sitter")
    with TemporaryDirectory() as folder:
        (Path(folder) / "grammar.js").write_text(regenerated()[EDITORS / "tree-sitter" / "grammar.js"])
        command = [*program, "generate", "--no-bindings", "--abi", str(ABI)]
        subprocess.run(command, cwd=folder, check=True)
        made = sorted(path for path in (Path(folder) / "src").rglob("*") if path.is_file())
        return {EDITORS / "tree-sitter" / path.relative_to(folder): path.read_text(encoding="utf-8") for path in made}


def _now(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(check: bool, parser: bool) -> int:
    """Write the files that differ, or with `check` count them."""
    files = regenerated() | (parser_files() if parser else {})
    stale = {path: text for path, text in files.items() if _now(path) != text}
    for path, text in stale.items():
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{'would change' if check else 'wrote'} {path.relative_to(ROOT)}", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:], "--parser" in sys.argv[1:]))
