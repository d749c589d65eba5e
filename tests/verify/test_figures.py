"""The real Bridge's figures for three models: parameters of each stage and whole, as 0.6.2 builds them."""

import pytest

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Report
from moedsl.bridge.verify.client import Server
from tests.helpers.bridge_recipes import DEEPSEEK, QWEN_30B, QWEN_235B, write
from tests.helpers.tables import table_of

pytestmark = pytest.mark.bridge

QWEN_LINES = (
    "m.tensor_model_parallel_size, m.pipeline_model_parallel_size, m.virtual_pipeline_model_parallel_size = 1, 8, 3",
    "m.expert_model_parallel_size, m.expert_tensor_parallel_size, m.sequence_parallel = 32, 1, False",
)
DEEPSEEK_LINES = table_of("verify", "figures: DeepSeek")


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    folder = tmp_path_factory.mktemp("figures")
    qwen = write(folder / "qwen", QWEN_235B, *QWEN_LINES)
    deepseek = write(folder / "deepseek", DEEPSEEK, *DEEPSEEK_LINES)
    wanted = [cases.read(str(target)) for target in (QWEN_30B, qwen, deepseek)]
    return server.judge([c for c in wanted if isinstance(c, cases.Case)])


def stages(report: Report) -> list[tuple[int, int]]:
    return [(s["real"]["dense"], s["real"]["expert"]) for s in report.stages]


def test_all_are_accepted_with_both_meshes_as_computed(reports: list[Report]) -> None:
    assert [r.verdict for r in reports] == ["accepted"] * 3
    assert all(len(r.groups) == 11 and all(g["matches"] for g in r.groups.values()) for r in reports)


def test_qwen3_30b(reports: list[Report]) -> None:
    assert stages(reports[0]) == [(1_541_093_376, 1_811_939_328)]
    assert reports[0].parameters == 30_532_122_624


def test_qwen3_235b(reports: list[Report]) -> None:
    middle = (862_030_848, 905_969_664)
    assert stages(reports[1]) == [(1_412_524_800, 830_472_192), *[middle] * 6, (1_412_528_896, 830_472_192)]
    assert reports[1].parameters == 235_093_634_560


def test_deepseek_v3(reports: list[Report]) -> None:
    middle = (3_727_949_824, 2_818_572_288)
    assert stages(reports[2]) == [(5_706_088_448, 2_290_089_984), middle, middle, (5_218_103_296, 2_466_250_752)]
    assert reports[2].parameters == 682_636_472_320


def test_what_is_absent_is_said(reports: list[Report]) -> None:
    said = " ".join(reports[0].stood_in)
    assert "transformer_engine_torch" in said and "Qwen/Qwen3-30B-A3B" in said
    assert reports[0].versions["megatron-bridge"] == "0.6.2"
