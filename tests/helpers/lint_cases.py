"""The mistakes of tests/data/lint_mistakes.txt, and their near neighbours."""

from attrs import frozen

from tests.helpers.paths import DATA


@frozen
class Mistake:
    """Lines of a recipe that make the mistake, what lint says where, and the lines of the neighbour."""

    id: str
    at: str
    bad: tuple[str, ...]
    good: tuple[str, ...]
    base: str
    gpu: str | None


def _mistake(name: str, said: list[str], bases: dict[str, str]) -> Mistake:
    bad, good = (tuple(line[2:] for line in said if line[0] in f" {mark}") for mark in "-+")
    words = dict(line.split(" ", 1) for line in said if line.startswith(("recipe ", "gpu ")))
    id, _, at = said[0].partition(" at ") if said[0].startswith(("std.", "lint.")) else (f"std.{name}", "", bad[-1])
    base = bases[words["recipe"]] if "recipe" in words else next(iter(bases.values()))
    return Mistake(id, at, bad, good, base, words.get("gpu"))


def _read() -> dict[str, Mistake]:
    head, *cases = (DATA / "lint_mistakes.txt").read_text(encoding="utf-8").split("\n## ")
    bases = dict(line.split() for line in head.rpartition("\n\n")[2].splitlines())
    return {name: _mistake(name, said, bases) for name, *said in map(str.splitlines, map(str.rstrip, cases))}


MISTAKES = _read()
VALUES = tuple(name for name, mistake in MISTAKES.items() if mistake.id == f"std.{name}")
"""Those that are named by the rule on a field's values that they break."""
