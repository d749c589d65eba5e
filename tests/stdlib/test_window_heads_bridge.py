"""Step-3.5's layers of MTP: which attention Bridge gives them, by the layers before their stage."""

from __future__ import annotations

import json

import pytest

from tests.helpers import bridge_process
from tests.helpers.cost_models import model

pytestmark = pytest.mark.bridge
ASK = """
import json
from types import SimpleNamespace as Config
from megatron.bridge.models.stepfun import step35_provider as bridge
from megatron.bridge.models.stepfun.configuration_step35 import Step35Config
config = Step35Config(**json.load(open("stdlib/hf/stepfun-ai--Step-3.5-Flash/config.json")))
shape = {"window_size": [512, 0], "num_attention_heads": 96, "num_query_groups": 8, "kv_channels": 128}
heads = []
bridge.TransformerLayer.__init__ = lambda self, config, **named: heads.append(config.num_attention_heads)
bridge.get_pg_rank = lambda group: 0
def built(number, before, mtp):
    bridge.get_transformer_layer_offset = lambda config, vp_stage, rank: before
    own = Config(num_layers=45, num_attention_heads=64, layer_types=config.layer_types + config.mtp_layer_types,
                 sliding_attention_setting=shape)
    bridge.Step35DecoderLayer(own, None, number, pg_collection=Config(pp=None), is_mtp_layer=mtp)
    return heads.pop()
print(json.dumps({
    "layers": [built(n, 0, False) for n in range(1, 46)],
    "second stage": [built(n, 23, False) for n in range(1, 23)],
    "mtp": {before: [built(n, before, True) for n in (1, 2, 3)] for before in (0, 23)},
}))
"""


def test_mtp_of_a_pipeline_has_the_heads_of_full_attention() -> None:
    """So the plan leaves MTP out (`window_heads.model.mtp_num_layers`)."""
    m = model("step35_196b_a11b")
    ran = bridge_process.run("-c", ASK)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    ours = [m.heads if i % m.window_every == 0 else m.window_heads for i in range(m.layers)]
    assert said["layers"] == ours and said["second stage"] == ours[23:]
    assert said["mtp"] == {"0": [96, 96, 96], "23": [64, 64, 64]}
