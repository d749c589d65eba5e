"""The shipped list of Bridge's fields is what the installed Bridge has."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.facts import fields
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT


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


@pytest.mark.parametrize(
    ("type", "value", "takes"),
    [
        ("Optional[float]", "fast", "a number or none"),
        ("float", 3, None),
        ("int", 3e3, None),
        ("int", 0.5, "a whole number"),
        ("int", True, "a whole number"),
        ("bool", 1, "true or false"),
        ("bool", None, "true or false"),
        ("str | None", 3, "a text or none"),
        ("str | Path | None", 3, "a text or none"),
        ("Literal[0, 1, 2]", True, "0 or 1 or 2"),
        ("AttnBackend", "flash", None),
        ("AttnBackend", "fused2", '"flash" or "fused" or "unfused" or "local" or "auto"'),
        ("Callable", "gelu", ""),
        ("Optional[Callable]", None, None),
        ("List[int]", [1, "a"], "a list (List[int])"),
        ("tuple[int, int]", [1, 2, 3], "a list (tuple[int, int])"),
        ("Tuple[str, ...]", ["a", "b", "c"], None),
        ("Optional[Tuple[List[str], Optional[List[float]]]]", [["a"], [0.5]], None),
        ("Union[str, List[str], NoneType]", ["a", "b"], None),
        ("dict[str, Any] | None", "a", "none"),
        ("Union[int, List[int], NoneType]", [1], None),
        ("Union[int, List[int], NoneType]", "a", "a whole number or a list (List[int]) or none"),
        ("Optional[Literal['a', 'b']]", "c", '"a" or "b" or none'),
        ("Optional[dtype]", "bf16", 'a dtype as "torch.bfloat16" or none'),
        ("Optional[dtype]", "torch.bfloat16", None),
    ],
)
def test_a_type_takes_what_python_would_hold_in_it(type: str, value: object, takes: str | None) -> None:
    assert fields.refused(type, value) == takes
