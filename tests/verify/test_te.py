"""Where Transformer Engine's compiled extension is found."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from moedsl.bridge.verify import stand_ins
from moedsl.rehearse import launch

FILE = "transformer_engine_torch.cpython-312-x86_64-linux-gnu.so"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Transformer Engine without an extension, first in the path."""
    package = tmp_path / "transformer_engine"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return package


@pytest.mark.parametrize("folder", ["..", ".", "wheel_lib"])
def test_each_kind_of_installation(engine: Path, folder: str) -> None:
    """An editable install, NVIDIA's containers, and PyPI, whose file find_spec() does not see."""
    file = engine / folder / FILE
    file.parent.mkdir(exist_ok=True)
    file.touch()
    found = stand_ins.compiled()
    assert found is not None and found.samefile(file)


@pytest.mark.usefixtures("engine")
def test_the_python_part_alone_rehearses_on_the_cpu() -> None:
    assert stand_ins.compiled() is None
    assert launch.available() == 0
