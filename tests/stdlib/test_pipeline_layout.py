"""A pinned pipeline layout in the engine: the solver judges it by the law that the scalar evaluator judges it by."""

from __future__ import annotations

import pytest

from moedsl.compiler import compile_source
from moedsl.planner.layout import Layout
from moedsl.support.source import Source

RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; fit first; pin pp=2 {vpp} tp=1 ep=8 cp=1\n"


def solved(layout: str, vpp: str = "") -> tuple[list[str], list[Layout]]:
    """Ids of the errors, and the layouts of the plans."""
    text = RUN.format(vpp=vpp) + f'pin pipeline_layout="{layout}"\n'
    result = compile_source(Source("run.moe", text))
    return [d.id for d in result.diagnostics if d.is_error], [p.layout for p in result.plans]


def test_a_pinned_layout_is_the_plans() -> None:
    errors, (layout,) = solved("Et*25|t*23L")
    assert (errors, layout.pipeline_layout, layout.vpp) == ([], "Et*25|t*23L", 1)


def test_a_pinned_layout_with_virtual_stages() -> None:
    errors, (layout,) = solved("Et*12|t*12|t*12|t*12L", "vpp=2")
    assert (errors, layout.vpp) == ([], 2)


@pytest.mark.parametrize(
    ("layout", "vpp", "error"),
    [
        ("Et*12|t*12|t*12|t*12L", "vpp=3", "std.mesh.layers"),  # four chunks are not 2 x 3
        ("Et*48L", "", "check.pipeline_layout"),  # one chunk does not fall on 2 stages
        ("Et*24|t*23L", "", "check.pipeline_layout"),  # a layer short
        ("Et*24|t*24mL", "", "check.pipeline_layout"),  # the model has no MTP layer
        ("t*24|t*24L", "", "check.pipeline_layout"),  # no embedding
        ("Et*24|x*24L", "", "check.pipeline_layout"),  # no such letter
    ],
)
def test_a_wrong_layout_is_refused(layout: str, vpp: str, error: str) -> None:
    errors, plans = solved(layout, vpp)
    assert set(errors) == {error}
    assert not plans
