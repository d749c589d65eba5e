"""Examples for the older releases of Bridge, each judged by that release itself, or refused with a reason."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.facts import families
from moedsl.facts.releases import Release
from tests.helpers import rotation, targets, warm
from tests.helpers.cost_models import enough_gpus, model
from tests.helpers.paths import EXAMPLES, ROOT
from tests.helpers.programs import compiled, judged, written
from tests.helpers.targets import OLDER, available

pytestmark = pytest.mark.bridge
_TARGET = re.compile(r"^target bridge .*$", re.MULTILINE)
REFUSED = {
    ("lora_experts", "0.4.2"): "has no `peft.share_expert_adapters`",
    ("offload_activations", "0.4.2"): "std.releases.mxfp8_shards",
    ("deepseek_v3_h100", "0.4.2"): "builds MTP with ordinary attention",
    ("long_deepseek_v3_128k", "0.4.2"): "builds MTP with ordinary attention",
    ("long_deepseek_v3_256k", "0.4.2"): "builds MTP with ordinary attention",
    ("workflow_profile", "0.4.2"): "builds MTP with ordinary attention",
}
"""What a release cannot do, by example."""
BUILT = [
    (name, r)
    for r in rotation.some("release", OLDER, 1)
    for name in rotation.some("models of releases", sorted(load_stdlib().models), 1)
]
CASES = [(e, r) for r in rotation.some("release", OLDER, 1) for e in rotation.some("releases", EXAMPLES, 1)]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    """One process for each older release, while this file runs."""
    running: dict[str, Server] = {}
    yield running
    for server in running.values():
        server.close()


@pytest.mark.parametrize(("example", "release"), CASES, ids=lambda c: c.stem if isinstance(c, Path) else c.bridge)
def test_the_release_accepts_the_example(
    example: Path, release: Release, servers: dict[str, Server], tmp_path: Path
) -> None:
    text = _TARGET.sub("", example.read_text(encoding="utf-8"))
    result = compiled(f"{text}\ntarget bridge {release.minor}\n", example.relative_to(ROOT).as_posix())
    why = REFUSED.get((example.stem, release.bridge))
    if why is not None:
        assert [d for d in result.diagnostics if d.is_error and why in d.message], result.diagnostics
        return
    assert not result.failed, result.diagnostics
    if targets.EXAMPLES not in targets.ASKED:
        return
    for report in started(release, servers).judge(written(result, tmp_path)):
        assert report.ok, report.to_json()
        assert report.versions["megatron-bridge"] == release.bridge


def started(release: Release, servers: dict[str, Server]) -> Server:
    available(release)
    if release.bridge not in servers:
        servers[release.bridge] = warm.server(2, release)
    return servers[release.bridge]


@pytest.mark.parametrize(("name", "release"), BUILT, ids=lambda c: c if isinstance(c, str) else c.bridge)
def test_the_release_builds_the_model_with_the_counted_parameters_or_it_is_refused(
    name: str, release: Release, servers: dict[str, Server], tmp_path: Path
) -> None:
    """As the table of families in docs/models.md says for each release."""
    run = f"{name}; gb300 x {enough_gpus(model(name))}; seq 4k; fit first; target bridge {release.minor}"
    why = families.why_unbuilt(model(name), release.bridge)
    if why is not None:
        assert [d for d in compiled(run).diagnostics if d.is_error and why in d.message]
        return
    if targets.EXAMPLES not in targets.ASKED:
        return
    (report,) = judged(started(release, servers), {"run": run}, tmp_path).values()
    assert report.ok and all(stage["planned"] is not None for stage in report.stages), report.to_json()
