"""Laws on the GPU that no GPU of the stdlib breaks, on machines that a run file declares."""

from __future__ import annotations

import re

import pytest

from moedsl.solver.fits import violations
from moedsl.support.resources import stdlib_dir
from tests.helpers.layouts import DEFAULTS, checked, run_text


def broken_at(capability: str, **layout: object) -> list[str]:
    """The laws that a layout breaks on an H100 of another compute capability."""
    text = (stdlib_dir() / "hardware" / "h100.moe").read_text(encoding="utf-8")
    text = text.replace("hardware h100 {", "hardware variant {")
    text, n = re.subn(r"\bcapability 9\.0", f"capability {capability}", text)
    assert n == 1
    words = {**DEFAULTS, "model": "qwen3_30b_a3b", "hardware": "variant", "gpus": 16, "ep": 8, **layout}
    result = checked(text + run_text(words))
    assert not result.failed, [d.message for d in result.diagnostics]
    return [r.id for r in violations(result.programs[0], 16)]


@pytest.mark.parametrize(
    ("capability", "layout", "law"),
    [
        ("8.0", {"precision": "fp8_current"}, "std.precision.fp8_gpu"),
        ("8.9", {"precision": "fp8_blockwise"}, "std.precision.fp8_gpu"),
        ("7.5", {"dispatcher": "hybridep"}, "std.dispatch.hybridep_gpu"),
        ("7.5", {"dispatcher": "deepep"}, "std.dispatch.deepep_gpu"),
        ("11.0", {"dispatcher": "hybridep"}, "std.dispatch.hybridep_gpu"),
        ("12.0", {"precision": "mxfp8"}, "std.precision.mxfp8_gpu"),
        ("8.0", {"dispatcher": "deepep"}, None),
        ("8.0", {"dispatcher": "hybridep"}, "std.dispatch.hybridep_copies"),
        ("8.0", {"dispatcher": "deepep", "ep": 16}, "std.dispatch.deepep_network"),
        ("8.9", {"precision": "fp8_current"}, None),
        ("10.0", {"precision": "mxfp8"}, None),
        ("12.0", {"precision": "nvfp4"}, None),
    ],
)
def test_the_gpu_has_what_a_layout_asks_for(capability: str, layout: dict[str, object], law: str | None) -> None:
    assert broken_at(capability, **layout) == ([law] if law else [])
