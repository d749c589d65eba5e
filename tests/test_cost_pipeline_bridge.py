"""Our layouts as Megatron-Core's own parser and validator read them."""

from __future__ import annotations

import pytest
from cost_models import model

from moedsl.cost.pipeline import layout_for

pytestmark = pytest.mark.bridge
PAIRS = [(2, 1), (3, 2), (4, 4), (5, 1), (8, 3), (16, 2), (30, 2), (61, 1)]


@pytest.mark.parametrize("key", ["deepseek_v3", "kimi_k2", "qwen3_235b_a22b", "moonlight_16b"])
def test_megatron_core_reads_the_same_chunks(key):
    core = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout", exc_type=ImportError)
    m, texts = model(key), 0
    for pp, vpp in PAIRS:
        layout = layout_for(m, pp, vpp)
        if layout is None or layout.text is None:
            continue
        theirs = core.PipelineParallelLayerLayout(layout.text, pp)
        theirs.validate_layer_layout(m.layers, m.mtp_layers or None)
        letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
        for stage in range(pp):
            said = ["".join(letters[t.name] for t in chunk) for chunk in theirs.layout[stage]]
            assert said == [c.text for c in layout.stage(stage)]
        texts += 1
    assert texts > 2
