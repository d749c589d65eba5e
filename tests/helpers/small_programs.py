"""Programs with few rows, for searches that try them all, and wider ones with their real prices."""

import hypothesis.strategies as st

from moedsl.compiler import compile_source
from moedsl.rules.check.program import Program
from moedsl.support.source import Source
from tests.helpers.tables import table_of


def program(text: str) -> Program:
    result = compile_source(Source("run.moe", text), "check")
    assert result.programs and not result.failed, result.diagnostics
    return result.programs[0]


WHY = 'because "a test" cite ours "here"'
SMALL = f"""
rules small {{
  candidates vpp = [1, 2] {WHY}
  candidates micro_batch = [1, 2] when phase != fit {WHY}
  candidates recompute = [none, [moe_act], full] {WHY}
  candidates cuda_graph = [none, [moe_router, moe_preprocess]] when phase == throughput {WHY}
}}
"""
EXTRAS = table_of("helpers", "extras")


@st.composite
def texts(draw: st.DrawFn) -> str:
    model = draw(st.sampled_from(["qwen3_30b_a3b", "gpt_oss_120b", "deepseek_v3", "moonlight_16b"]))
    machine = draw(st.sampled_from(["h100 x 8", "gb200 x 8", "b200 x 4", "gb200 x 12", "h200 x 6"]))
    phase = draw(st.sampled_from(["fit", "scale", "throughput"]))
    names = {"allow dispatch_advice", "vlm"}
    extras = [e for e in draw(st.lists(st.sampled_from(EXTRAS), max_size=3, unique=True)) if e not in names]
    rules = [e for e in extras if e.startswith("rules mine")]
    extras = [e for e in extras if not e.startswith("rules mine")] + rules[:1]
    return "\n".join([model, machine, f"{phase} first", *_compatible(extras)]) + SMALL


def _compatible(extras: list[str]) -> list[str]:
    """Without a second pin of the same axis."""
    said: set[str] = set()
    out = []
    for e in extras:
        keys = {w.split("=")[0] for w in e.split() if "=" in w} if e.startswith("pin") else set()
        if not keys & said:
            out.append(e)
        said |= keys
    return out


WIDE = table_of("helpers", "wide")
