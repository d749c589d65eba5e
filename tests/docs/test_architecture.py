"""docs/architecture.md: its picture and its table are made from the code."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = next(p for p in Path(__file__).resolve().parents if (p / "pyproject.toml").exists())


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> object:
    pytest.importorskip("grimp", reason="the environment of Python 3.11 has no import-linter")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    sys.modules.pop("make_architecture", None)
    return importlib.import_module("make_architecture")


def test_the_picture_and_the_table_are_those_of_the_code(maker: object) -> None:
    assert maker.picture() == maker.PICTURE.read_text(encoding="utf-8"), "run tools/make_architecture.py"
    assert maker.page() == maker.PAGE.read_text(encoding="utf-8"), "run tools/make_architecture.py"


def test_every_package_is_drawn(maker: object) -> None:
    packages = {p.parent.name for p in (ROOT / "moedsl").glob("*/__init__.py")}
    drawn = {name for layer in maker.layers() for name in layer}
    assert packages <= drawn
    assert drawn - packages == {"__main__", "api", "compiler"}
