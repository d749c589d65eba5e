#!/bin/bash
# transformers 5.8.1 and 5.24.0: the rotary width of GLM-5.2.
#
# Guess: `qk_rope_head_dim` in a config.json is the width that is read and saved; `head_dim` beside it says nothing more
#   to latent attention.
# Behaviour: GLM-5.2's published file has qk_rope_head_dim 64 and head_dim 192. 5.8.1 makes `head_dim` another name of
#   qk_rope_head_dim, and the last one wins: it reads 192 and saves 192, beside qk_head_dim 256, which is 192 + 64. A
#   checkpoint saved so is built with queries of 384. 5.24.0 reads 64.
# Output seen:
#   5.8.1 nope=192 rope=192 whole=256
#   5.24.0 nope=192 rope=64 whole=256
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 HF_HOME="$work/hf"
mkdir "$work/published"
cat > "$work/published/config.json" <<'JSON'
{"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78,
 "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 192, "qk_head_dim": 256, "qk_nope_head_dim": 192,
 "qk_rope_head_dim": 64, "v_head_dim": 256, "kv_lora_rank": 512, "q_lora_rank": 2048}
JSON
seen=""
for version in 5.8.1 5.24.0; do
    python3 -m venv "$work/$version"
    "$work/$version/bin/pip" install -q --disable-pip-version-check "transformers==$version"
    line=$("$work/$version/bin/python" - "$work" 2>/dev/null <<'PY'
import json, sys
from transformers import AutoConfig, __version__
AutoConfig.from_pretrained(sys.argv[1] + "/published").save_pretrained(sys.argv[1] + "/saved")
c = json.load(open(sys.argv[1] + "/saved/config.json"))
print(__version__, f"nope={c['qk_nope_head_dim']} rope={c['qk_rope_head_dim']} whole={c['qk_head_dim']}")
PY
)
    echo "$line"
    seen="$seen$line;"
done
[ "$seen" = "5.8.1 nope=192 rope=192 whole=256;5.24.0 nope=192 rope=64 whole=256;" ]
