#!/bin/bash
# transformers 5.12.1 and 4.57.6: the number of experts of a saved Qwen3-MoE.
#
# Guess: a config.json that one release saved, another reads or refuses; a checkpoint fine-tuned under transformers 5
#   says `num_experts`, as the published files do.
# Behaviour: 5.12.1 saves `num_local_experts` and no `num_experts`. 4.57.6 keeps that key as an unknown attribute, and
#   takes its own default, 128 experts, without a word: Qwen3-Coder-480B has 160.
# Output seen:
#   5.12.1 saved num_experts=absent num_local_experts=160
#   4.57.6 read num_experts=128
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 HF_HOME="$work/hf"
for version in 5.12.1 4.57.6; do
    python3 -m venv "$work/$version"
    "$work/$version/bin/pip" install -q --disable-pip-version-check "transformers==$version"
done
cat > "$work/config.json" <<'JSON'
{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 160, "num_experts_per_tok": 8,
 "hidden_size": 6144, "num_hidden_layers": 62, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128}
JSON
saved=$("$work/5.12.1/bin/python" - "$work" 2>/dev/null <<'PY'
import json, sys
from transformers import AutoConfig
AutoConfig.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1] + "/saved")
config = json.load(open(sys.argv[1] + "/saved/config.json"))
print(*(f"{key}={config.get(key, 'absent')}" for key in ("num_experts", "num_local_experts")))
PY
)
read=$("$work/4.57.6/bin/python" - "$work" 2>/dev/null <<'PY'
import sys
from transformers import AutoConfig
print(f"num_experts={AutoConfig.from_pretrained(sys.argv[1] + '/saved').num_experts}")
PY
)
echo "5.12.1 saved $saved"
echo "4.57.6 read $read"
[ "$saved" = "num_experts=absent num_local_experts=160" ] && [ "$read" = "num_experts=128" ]
