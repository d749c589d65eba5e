"""Our layouts as Megatron-Core's own parser and validator read them, in a process of its own."""

from __future__ import annotations

import json

import pytest

from moedsl.cost.pipeline import Layout, layout_for
from tests.helpers import bridge_process
from tests.helpers.cost_models import model

pytestmark = pytest.mark.bridge
KEYS = ("deepseek_v3", "kimi_k2", "qwen3_235b_a22b", "moonlight_16b")
PAIRS = ((2, 1), (3, 2), (4, 4), (5, 1), (8, 3), (16, 2), (30, 2), (61, 1))
ASK = """
import json, sys
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout as Layout
letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
said = []
for text, pp, layers, mtp in json.load(sys.stdin):
    layout = Layout(text, pp)
    layout.validate_layer_layout(layers, mtp or None)
    said.append([["".join(letters[t.name] for t in chunk) for chunk in stage] for stage in layout.layout])
print(json.dumps(said))
"""


def written(key: str) -> list[Layout]:
    """The layouts of a model that Megatron has to be given."""
    layouts = [layout_for(model(key), pp, vpp) for pp, vpp in PAIRS]
    return [x for x in layouts if x is not None and x.text is not None]


def test_megatron_core_reads_the_same_chunks():
    layouts = [(model(key), x) for key in KEYS for x in written(key)]
    asked = [(x.text, x.pp, m.layers, m.mtp_layers) for m, x in layouts]
    ran = bridge_process.run("-c", ASK, text=json.dumps(asked))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert len(said) == len(layouts) > 20
    for (_, ours), theirs in zip(layouts, said, strict=True):
        assert theirs == [[c.text for c in ours.stage(s)] for s in range(ours.pp)]
