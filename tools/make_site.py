"""Build the site of the documents into a folder, with MkDocs Material; a broken link ends the build.

usage: .venv/bin/python tools/make_site.py [FOLDER]     FOLDER is out/site by default, and is replaced

The pages are those of the repository: docs/start.md is the first, and moedsl/support/pages.md the index of errors.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ROOT / "tools" / "site" / "mkdocs.yml"
STYLE = ROOT / "tools" / "site" / "moedsl.css"
PAGES = {"docs/start.md": "index.md", "README.md": "overview.md", "moedsl/support/pages.md": "errors.md"}
"""The pages with another name on the site, by their path in the repository."""
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
_ENTRY = re.compile(r"^## (?P<id>\S+) \((?P<severity>\w+)\)$", re.MULTILINE)


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        pages = Path(temporary)
        copytree(ROOT / "docs", pages, dirs_exist_ok=True, ignore=ignore_patterns("*.md"))
        copy(STYLE, pages)
        for path, name in _pages():
            (pages / name).write_text(_on_site(path), encoding="utf-8")
        build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", SETTINGS]
        where = {"SITE_PAGES": str(pages), "SITE_DIR": str(folder.resolve()), "NO_MKDOCS_2_WARNING": "1"}
        return subprocess.run(build, env=os.environ | where, check=False).returncode


def _pages() -> list[tuple[Path, str]]:
    paths = [*(ROOT / name for name in ROOT_PAGES), *(ROOT / "docs").glob("*.md"), ROOT / "moedsl/support/pages.md"]
    return [(path, _name(path)) for path in paths]


@cache
def _targets() -> dict[Path, str]:
    return {path.resolve(): name for path, name in _pages()}


def _name(path: Path) -> str:
    return PAGES.get(path.relative_to(ROOT).as_posix(), path.name)


def _on_site(path: Path) -> str:
    """Return the text of a page with the links and the headings that it has on the site."""
    text = path.read_text(encoding="utf-8").replace("```moe-fragment", "```moe")
    if path.name == "pages.md":
        text = "# Errors, warnings and notes\n\n" + _ENTRY.sub(r"## `\g<id>` (\g<severity>) {#\g<id>}", text)
    return _LINK.sub(lambda link: _linked(link, path), text)


def _linked(link: re.Match[str], page: Path) -> str:
    """Return a link to a page or picture of the site; what the site does not have is named without a link."""
    target, docs = (page.parent / link["path"]).resolve(), ROOT / "docs"
    name = _targets().get(target) or (target.relative_to(docs).as_posix() if target.is_relative_to(docs) else None)
    return f"[{link['text']}]({name}{link['anchor'] or ''})" if name else link["text"]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "out" / "site")))
