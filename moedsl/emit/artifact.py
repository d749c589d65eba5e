"""Plan -> Artifact: the files that `moedsl compile` writes."""

from __future__ import annotations

import json
from typing import Any

from moedsl.diagnostics.source import Source
from moedsl.emit.bridge import recipe_text
from moedsl.emit.lock import lock_text
from moedsl.emit.overrides import overrides_text
from moedsl.rules.library import Library
from moedsl.support.owned_files import hash_of


def files_of(plan: dict[str, Any], source: Source, library: Library) -> dict[str, str]:
    """File names to texts. The lock hashes the user's file and the stdlib."""
    std = [(n, s.text) for n, s in library.sources.items() if n.startswith("stdlib/")]
    own = [("", s.text) for n, s in library.sources.items() if not n.startswith("stdlib/")]
    inputs = {"source": hash_of(own or [("", source.text)]), "stdlib": hash_of(std)}
    return {
        "recipe.py": recipe_text(plan),
        "overrides.txt": overrides_text(plan),
        "plan.json": json.dumps(plan, indent=2, ensure_ascii=False) + "\n",
        "moedsl.lock.json": lock_text(plan, inputs),
    }
