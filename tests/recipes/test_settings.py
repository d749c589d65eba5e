"""Which fields of a recipe need a statement in its program."""

from typing import Any

from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.recipe_import import differing
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import load_stdlib


def needed(theirs: dict[str, Any], ours: dict[str, Any], built: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a recipe needs, by its fields after Bridge's update, and before it where that changes some."""
    hardware, _ = load_stdlib().gpu("h100")
    assert hardware is not None
    r = Recipe(
        target="recipe.py", function="recipe", file="recipe.py", line=1, fields=built or theirs, hardware=hardware,
        world=16, settled=theirs,
    )  # fmt: skip
    return dict(differing(r, Resolved("recipe.py", built=ours, resolved=ours), {}))


def test_a_section_that_the_program_does_not_have_comes_with_its_defaults() -> None:
    recipe = {
        "nvrx_straggler.enabled": True,
        "nvrx_straggler.calc_relative_gpu_perf": False,
        "inprocess_restart.completion_timeout": 0.0,
        "inprocess_restart.active_world_size": None,
        "ft.calc_ft_timeouts": False,
    }
    assert needed(recipe, {}) == {
        "nvrx_straggler.enabled": True,
        "nvrx_straggler.calc_relative_gpu_perf": False,
        "inprocess_restart.completion_timeout": 0.0,
    }


def test_what_is_off_in_both_needs_no_statement() -> None:
    assert needed({"model.mtp_num_layers": 0}, {"model.mtp_num_layers": None}) == {}


def test_a_field_that_bridge_writes_over_another_is_stated() -> None:
    theirs = {"comm_overlap.bucket_size": 1000, "ddp.bucket_size": 1000}
    ours = {"comm_overlap.bucket_size": None, "ddp.bucket_size": 134_217_728}
    built = {"comm_overlap.bucket_size": 1000, "ddp.bucket_size": None}
    assert needed(theirs, ours, built) == {"comm_overlap.bucket_size": 1000}


def test_an_older_name_is_stated_by_the_newer_one() -> None:
    theirs, ours = {"train.eval_iters": 100, "validation.eval_iters": 100}, {"validation.eval_iters": 0}
    built = {"train.eval_iters": 100, "validation.eval_iters": 0}
    assert needed(theirs, ours, built) == {"validation.eval_iters": 100}
