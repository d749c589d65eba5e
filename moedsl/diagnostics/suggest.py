"""Suggestions for a word that is nearly a known one."""

from __future__ import annotations

from moedsl.diagnostics.model import Instead


def suggest(word: str, known: list[str], least: float = 0.6) -> tuple[str, ...]:
    """A did-you-mean for a word, or nothing; `least` is difflib's share of letters that must agree."""
    import difflib  # only a mistake has need of it

    near = difflib.get_close_matches(word, known, 1, least)
    return (Instead(f"did you mean `{near[0]}`?", near[0]),) if near else ()
