"""Before a job is submitted: the real Bridge's word on its recipe."""

from contextlib import nullcontext

import pytest

from moedsl.bridge.verify.client import Server
from moedsl.compiler import compile_source
from moedsl.launch import preflight
from moedsl.support.source import Source
from tests.helpers.plans import changed
from tests.launch.slurm_launch import MOE


@pytest.mark.bridge
def test_a_recipe_that_bridge_refuses(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A global batch that data parallelism does not divide."""
    monkeypatch.setattr("moedsl.bridge.verify.client.Server", lambda jobs, release: nullcontext(server))
    result = compile_source(Source("run.moe", MOE.format(gpus=8, pins="tp=2 pp=2 ep=2")))
    plan = changed(result.plans[0], batch={"global_batch": 65})
    said: list[str] = []
    (found,) = preflight.bridge([plan], result.source, result.library, said.append)
    assert found.id == "preflight.bridge"
    assert "65" in found.message
    assert said
