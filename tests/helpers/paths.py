"""Where the tests find the rest of the checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
EXAMPLES = sorted((ROOT / "examples").glob("*.moe"))
