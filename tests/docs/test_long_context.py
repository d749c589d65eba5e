"""docs/long_context.md: its table of published and chosen layouts is what the planner says today."""

import long_context_table as table
import pytest

from tests.helpers import rotation

PUBLISHED = {  # the long-context document's layouts
    "long_deepseek_v3_128k": ("h100", 131072, 256, {"tp": 1, "cp": 32, "ep": 32, "pp": 8, "vpp": 4, "edp": 1}),
    "long_deepseek_v3_256k": ("h100", 262144, 512, {"tp": 1, "cp": 64, "ep": 32, "pp": 8, "vpp": 4, "edp": 2}),
    "long_qwen3_235b_128k": ("gb200", 131072, 256, {"tp": 4, "cp": 4, "ep": 32, "pp": 4, "vpp": 12, "edp": 2}),
}


SOME = rotation.some("long", [*PUBLISHED], 1)


def test_the_page_has_a_table_of_each() -> None:
    headings = [line for line in compared().splitlines() if line.startswith("### ")]
    assert headings == [f"### `examples/long_context/{name}.moe`" for name in table.RUNS]
    assert {*table.RUNS} == {*PUBLISHED}


@pytest.mark.parametrize("name", SOME)
def test_its_table_is_fresh(name: str) -> None:
    (text,) = [part for part in compared().split("\n\n### ") if part.startswith(f"`examples/long_context/{name}.moe`")]
    assert f"### {text.strip()}" == table.compared(name), "run tools/long_context_table.py"


def compared() -> str:
    """The part of the page that the script writes."""
    return table.PAGE.read_text(encoding="utf-8").partition(table.BEGIN)[2].partition(table.END)[0]


@pytest.mark.parametrize("name", SOME)
def test_an_example_is_the_documents_layout_and_is_left_where_it_is_unpinned(name: str) -> None:
    theirs, ours = table.plans(name)
    gpu, seq, gpus, mesh = PUBLISHED[name]
    assert (theirs.hardware, theirs.batch.seq, theirs.gpus) == (gpu, seq, gpus)
    assert {k: getattr(theirs.layout, k) for k in mesh} == mesh
    memory = theirs.estimate.memory
    assert memory.verdict != "DOES NOT FIT"
    assert ours.estimate.step_time_s <= theirs.estimate.step_time_s
    assert (ours.gpus, ours.batch.global_batch) == (gpus, theirs.batch.global_batch)
