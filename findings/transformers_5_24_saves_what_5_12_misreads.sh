#!/bin/bash
# transformers 5.24.0 and 5.12.1, which megatron-bridge 0.6.2 pins: Gemma 4 and Nemotron-H saved by the newer one.
#
# Guess: within one major release a saved config.json keeps its keys, so the pinned 5.12.1 reads what 5.24.0 saved.
# Behaviour: 5.24.0 replaces Gemma 4's `num_global_key_value_heads` and `global_head_dim` by an object for each layer,
#   `per_layer_config`; 5.12.1 ignores it and reads None key-value heads for the layers with full attention, without a
#   word. Of Nemotron-H it writes the blocks `mamba` and `attention` as linear_attention and full_attention, which 5.12.1
#   refuses.
# Output seen:
#   gemma4 published: 2 of 512; saved by 5.24.0: None of 512
#   nemotron_h saved by 5.24.0: linear_attention moe full_attention; 5.12.1: refused
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 HF_HOME="$work/hf"
mkdir "$work/gemma" "$work/nemotron"
cat > "$work/gemma/config.json" <<'JSON'
{"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "enable_moe_block": true, "num_experts": 128,
 "top_k_experts": 8, "moe_intermediate_size": 704, "hidden_size": 2816, "num_hidden_layers": 6, "head_dim": 256,
 "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2, "global_head_dim": 512,
 "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                 "sliding_attention", "full_attention"]}
JSON
cat > "$work/nemotron/config.json" <<'JSON'
{"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hybrid_override_pattern": "ME*E",
 "num_hidden_layers": 4, "hidden_size": 2688}
JSON
for version in 5.24.0 5.12.1; do
    python3 -m venv "$work/$version"
    "$work/$version/bin/pip" install -q --disable-pip-version-check "transformers==$version"
done
"$work/5.24.0/bin/python" - "$work" >/dev/null 2>&1 <<'PY'
import sys
from transformers import AutoConfig
for name in ("gemma", "nemotron"):
    AutoConfig.from_pretrained(f"{sys.argv[1]}/{name}").save_pretrained(f"{sys.argv[1]}/{name}/saved")
PY
seen=$("$work/5.12.1/bin/python" - "$work" 2>/dev/null <<'PY'
import json, sys
from transformers import AutoConfig
def full(folder):
    config = AutoConfig.from_pretrained(folder)
    return f"{config.num_global_key_value_heads} of {config.global_head_dim}"
gemma, nemotron = f"{sys.argv[1]}/gemma", f"{sys.argv[1]}/nemotron/saved"
print(f"gemma4 published: {full(gemma)}; saved by 5.24.0: {full(gemma + '/saved')}")
kinds = json.load(open(nemotron + "/config.json"))["layers_block_type"]
try:
    AutoConfig.from_pretrained(nemotron)
    said = "read"
except Exception:
    said = "refused"
print(f"nemotron_h saved by 5.24.0: {' '.join(dict.fromkeys(kinds))}; 5.12.1: {said}")
PY
)
echo "$seen"
[ "$seen" = "gemma4 published: 2 of 512; saved by 5.24.0: None of 512
nemotron_h saved by 5.24.0: linear_attention moe full_attention; 5.12.1: refused" ]
