"""Where the tests find the rest of the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
EXAMPLES = sorted((ROOT / "examples").rglob("*.moe"), key=lambda p: p.stem)


def example_path(name: str) -> Path:
    """The file of an example by its name, whichever folder it is in."""
    (path,) = (p for p in EXAMPLES if p.stem == name)
    return path
