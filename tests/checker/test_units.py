"""Numbers whose unit is probably another: a warning that says what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.rules.check.suspicious import BANDWIDTHS
from moedsl.runs.measured_runs import read
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers.paths import ROOT

HEAD = "qwen3_30b_a3b; gb200 x 64\n"


def warnings(text: str) -> list[Diagnostic]:
    result = compile_source(Source("run.moe", HEAD + text), "check")
    assert not result.failed
    return [d for d in result.diagnostics if d.severity == "warning"]


@pytest.mark.parametrize(
    ("text", "id", "right"),
    [
        ("seq 4k; batch 4M", "check.batch_tokens", "batch 1024"),
        ("batch 4M; seq 128k", "check.batch_tokens", "batch 32"),
        ("require peak_memory < 150", "check.bytes", "150 GB"),
        ("prefer memory < 60 GB", "check.bytes", "peak_memory"),
        ("prefer roomy: 20 < spare_memory", "check.bytes", "20 GB"),
        ("require peak_memory < 150 and tp == 1", "check.bytes", "150 GB"),
        ("require peak_memory < 90%", "check.bytes", "90% * memory"),
        ("require memory < 200 GB", "check.bytes", "peak_memory"),
        ("prefer 200 GB >= memory", "check.bytes", "peak_memory"),
    ],
)
def test_a_number_of_another_unit(text: str, id: str, right: str) -> None:
    (found,) = warnings(text)
    assert found.id == id
    assert [fix.text for fix in found.fixes] == [right]


@pytest.mark.parametrize(
    "text", ["seq 4k; batch 16k", "require peak_memory < 150 GB", "require spare_memory > 0", "require memory > 1e11"]
)
def test_a_number_that_is_meant(text: str) -> None:
    assert warnings(text) == []


@pytest.mark.parametrize("wish", ["require goodput > 0.9", "prefer often: save_steps < 100"])
def test_a_wish_cannot_read_what_follows_from_the_layout(wish: str) -> None:
    (found,) = [d for d in compile_source(Source("run.moe", HEAD + wish), "check").diagnostics if d.is_error]
    assert found.id == "check.too_late"


def test_a_batch_of_tokens_without_a_length() -> None:
    (found,) = warnings("batch 4M")
    assert "4,194,304" in found.message or "4,000,000" in found.message
    assert found.help == ("divide tokens by the sequence length",)


OWN = (ROOT / "examples/own_hardware.moe").read_text(encoding="utf-8")


@pytest.mark.parametrize(("fact", "wrong", "right"), [
    ("hbm 3.35 TB/s", "hbm 3.35 GB/s", "3.35 TB/s"), ("nvlink 450 GB/s", "nvlink 450 TB/s", "450 GB/s"),
    ("network 25 GB/s", "network 25 TB/s", "25 GB/s"), ("hbm 3.35 TB/s", "hbm 3350 TB/s", "3350 GB/s"),
])  # fmt: skip
def test_a_bandwidth_of_no_gpu(fact: str, wrong: str, right: str) -> None:
    result = compile_source(Source("run.moe", OWN.replace(fact, wrong)), "check")
    (found,) = [d for d in result.diagnostics if d.severity == "warning"]
    assert found.id == "check.bandwidth" and [fix.text for fix in found.fixes] == [right]


@pytest.mark.parametrize("name", [*load_stdlib().hardware])
def test_a_bandwidth_of_a_gpu(name: str) -> None:
    """Each of the library is in the range, with a factor of four to its ends."""
    made, _ = load_stdlib().gpu(name)
    assert made is not None
    for fact, (least, most) in BANDWIDTHS.items():
        assert 4 * least <= getattr(made, fact) <= most / 4


@pytest.mark.parametrize(
    "rates", ["bf16=989 TFLOPS fp8=1979 TFLOPS", "bf16=0.989 PFLOPS fp8=1.979 PFLOPS", "bf16=989 fp8=1.979 PFLOPS"]
)
def test_a_rate_with_its_unit(rates: str) -> None:
    """As a data sheet has it: without a unit the number is in TFLOPS."""
    result = compile_source(Source("run.moe", OWN.replace("bf16=989 fp8=1979", rates)), "check")
    assert result.diagnostics == []
    assert result.programs[0].hardware.tflops == {"bf16": pytest.approx(989), "fp8": pytest.approx(1979)}


@pytest.mark.parametrize(("fact", "wrong"), [
    ("bf16=989", "bf16=989 GB"), ("bf16=989", "bf16=989%"), ("capability 9.0", "capability 9.0 TB"),
    ("sms 132", "sms 132; watts 700 GB"), ("sms 132", "sms 132; host_link 64"), ("sms 132", "sms 132; host_link 64 GB"),
    ("sms 132", "sms 132; exponentials 16 TFLOPS"),
])  # fmt: skip
def test_a_fact_in_a_unit_that_it_does_not_have(fact: str, wrong: str) -> None:
    (found,) = compile_source(Source("run.moe", OWN.replace(fact, wrong)), "check").diagnostics
    assert (found.id, found.severity) == ("check.unit", "error")


NEWER = OWN.replace("arch hopper", "arch blackwell").replace("capability 9.0", "capability 10.0")


@pytest.mark.parametrize(("rates", "word", "missing"), [
    ("bf16=989", "fp8", "fp8"), ("bf16=989", "mxfp8", "mxfp8"), ("bf16=989 fp8=1979", "nvfp4", "nvfp4"),
    ("bf16=989 fp8=1979", "fp8", None), ("bf16=989 mxfp8=1979", "fp8", None), ("bf16=989", "bf16", None),
    ("bf16=989 mxfp8=1979", "fp8_current", None), ("bf16=989 nvfp4=3958", "nvfp4", None),
])  # fmt: skip
@pytest.mark.parametrize("said", ["precision {}", "pin precision={}"])
def test_a_precision_without_a_rate(rates: str, word: str, missing: str | None, said: str) -> None:
    word = {"fp8": "fp8_blockwise" if missing else "mxfp8"}.get(word, word) if said.startswith("pin") else word
    text = f"{NEWER.replace('bf16=989 fp8=1979', rates)}\n{said.format(word)}\n"
    found = compile_source(Source("run.moe", text), "check").diagnostics
    assert [(d.id, d.severity) for d in found] == [("check.no_rate", "warning")] * bool(missing)
    assert not missing or f" {missing}=..." in found[0].help[0]


def test_both_formats_of_8_bits_have_the_rate_that_is_stated() -> None:
    """`precision fp8` is MXFP8 on Blackwell, whichever of its two rates the declaration has."""
    rates = ("fp8=1979", "mxfp8=1979", "fp8=1979 mxfp8=1979")
    texts = [f"{NEWER.replace('fp8=1979', rate)}\nprecision fp8; pin ep=8 pp=1\n" for rate in rates]
    plans = [compile_source(Source("run.moe", text)).plans[0] for text in texts]
    assert {p.policy.precision for p in plans} == {"mxfp8"}
    assert len({p.estimate.step_time_s for p in plans}) == 1


def test_a_measured_run_in_a_precision_without_a_rate(tmp_path: Path) -> None:
    """Its speed is held against the rate that the estimate has for it."""
    file = tmp_path / "runs.jsonl"
    for rates, tokens, refused in (
        ("bf16=989 fp8=1979", 9_000, 0),
        ("bf16=989", 70_000, 1),
        ("bf16=989 fp8=1979", 70_000, 0),
    ):
        run = (
            NEWER.replace("bf16=989 fp8=1979", rates).partition("model")[0]
            + "model qwen3_30b_a3b; h100_200g x 32; precision mxfp8"
        )
        file.write_text(json.dumps({"run": run, "tokens_per_s_per_gpu": tokens}) + "\n")
        _, runs, found = read(file)
        assert (len(runs), len([d for d in found if d.is_error])) == (1 - refused, refused), found


@pytest.mark.parametrize(("arch", "capability", "fine"), [
    ("hopper", "9.0", True), ("hopper", "10.0", False), ("blackwell", "9.0", False), ("blackwell", "12.0", True),
    ("ampere", "8.9", True), ("ampere", "7.5", False), ("rubin", "9.0", False),
])  # fmt: skip
def test_a_capability_of_another_generation(arch: str, capability: str, fine: bool) -> None:
    """Prices follow the arch, and laws the capability: together they must be those of some GPU."""
    text = OWN.replace("arch hopper", f"arch {arch}").replace("capability 9.0", f"capability {capability}")
    found = compile_source(Source("run.moe", text), "check").diagnostics
    assert [(d.id, d.severity) for d in found] == ([] if fine else [("check.capability", "warning")])
