"""The shipped list of Bridge's fields is what the installed Bridge has."""

import json
import os
from pathlib import Path

import pytest

from moedsl.bridge.verify import environments
from moedsl.facts import fields, releases
from moedsl.support import resources
from tests.helpers import bridge_process, rotation, targets
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.helpers.targets import OLDER, available


@pytest.mark.bridge
def test_generating_it_again_leaves_no_difference(tmp_path: Path) -> None:
    made = tmp_path / "fields.json"
    ran = bridge_process.run(str(ROOT / "tools/bridge_fields.py"), str(made))
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert made.read_text() == (fields.DATA / "bridge_fields_0.6.2.json").read_text()


def test_lookup() -> None:
    found = fields.lookup("model.moe_router_dtype")
    assert found is not None and "fp64" in found.type and found.default is None
    assert fields.lookup("model.moe_a2a_overlap") is None
    assert "0.6.2" in fields.versions()


def test_a_field_of_one_class_says_which() -> None:
    found = fields.lookup("model.freeze_vision_model")
    assert found is not None and found.classes == (
        "Qwen3VLMoEModelProvider",
        "KimiK25VLModelProvider",
        "Gemma4VLModelProvider",
    )


def test_what_bridge_gives_a_field_itself_is_of_its_type() -> None:
    """Bridge declares some fields without None and gives them None; a `set` of the default is taken anyway."""
    plain = [
        f
        for f in fields.fields().values()
        if f.default not in (None, "required", "factory") and fields.is_writable(f.type)
    ]
    assert len(plain) > 400
    assert not [(f, r) for f in plain if (r := fields.refused(f.type, f.default)) is not None]


@pytest.mark.parametrize(("type", "value"), table_of("megatron", "values that a type takes"))
def test_a_type_takes_what_python_would_hold_in_it(type: str, value: str) -> None:
    assert fields.refused(type, json.loads(value)) is None


@pytest.mark.parametrize(("type", "value", "takes"), table_of("megatron", "values that a type refuses"))
def test_a_type_refuses_what_python_would_not_hold_in_it(type: str, value: str, takes: str) -> None:
    assert fields.refused(type, json.loads(value)) == takes


# The known releases of Bridge: their names, their tables, and what each builds.


def test_a_version_means_the_newest_release_of_its_first_numbers() -> None:
    found = {v: releases.named(v) for v in ("0.5", "0.5.1", "0.6", "0.7", "0", "0.5.0", "5", "0.51", "")}
    assert {v: r and r.bridge for v, r in found.items()} == {
        "0.5": "0.5.1", "0.5.1": "0.5.1", "0.6": "0.6.2", "0.7": "0.7.1", "0": "0.7.1",
        "0.5.0": None, "5": None, "0.51": None, "": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "other"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": None, "b": {"c": [1]}}, {"a": 1, "b": {"c": [1], "d": 2}, "e": {}}),
        ({"a": {"b": {}}}, {"a": {"b": {"c": 1}}}),
        ({"a": {"b": 1}}, {"a": 3}),
        ({"a": 3}, {"a": {"b": 1}}),
        ({}, {"a": 3}),
    ],
)
def test_differences_give_the_table_back(table: dict[str, object], other: dict[str, object]) -> None:
    assert fields.with_differences(fields.differences(table, other), other) == table


def test_every_release_has_a_table_of_its_own_versions() -> None:
    for release in releases.KNOWN:
        table = fields.data(release.bridge)
        assert (table["bridge"], table["core"]) == (release.bridge, release.core)


def test_what_a_release_has_is_what_its_notes_say() -> None:
    """NVIDIA's changelogs: the paged stash is new in 0.5, SMs for every flex dispatcher in 0.6, MXFP8 exchanges in 0.7."""
    having = {
        "model.moe_paged_stash": ["0.5.1", "0.6.2", "0.7.0", "0.7.1"],
        "model.cuda_graph_modules": ["0.5.1", "0.6.2", "0.7.0", "0.7.1"],
        "model.moe_flex_dispatcher_num_sms": ["0.6.2", "0.7.0", "0.7.1"],
        "tokenizer.use_tokenizer_vocab_size": ["0.6.2", "0.7.0", "0.7.1"],
        "model.moe_ncclep_static_shape": ["0.6.2"],
        "model.moe_dispatch_fwd_dtype": ["0.7.0", "0.7.1"],
        "dataset.prefetch_factor": ["0.7.1"],
        "model.tensor_model_parallel_size": [*fields.versions()],
    }
    assert {path: [v for v in fields.versions() if fields.has(path, v)] for path in having} == having


@pytest.mark.bridge
@pytest.mark.skipif(targets.TABLE not in targets.ASKED, reason="this run asks the release to judge examples")
@pytest.mark.parametrize("release", rotation.some("release", OLDER, 1), ids=lambda r: r.bridge)
def test_generating_a_table_again_leaves_no_difference(release: releases.Release, tmp_path: Path) -> None:
    available(release)
    made = tmp_path / "fields.json"
    path = os.pathsep.join([*environments.folders(release), str(ROOT)])
    words = (str(ROOT / "tools/bridge_fields.py"), str(made))
    own = resources.child_environment() | {"PYTHONPATH": path}
    ran = bridge_process.run(*words, stage=bridge_process.stage_of(release), environment=own)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert made.read_text() == (fields.DATA / f"bridge_fields_{release.bridge}.json").read_text()
