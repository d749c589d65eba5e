#!/usr/bin/env bash
# transformers 5.24.0 and 5.12.1: the number of MTP layers of DeepSeek-V3's and GLM-4.5's architectures.
#
# Guess: a config.json without `num_nextn_predict_layers` describes a model without MTP layers, and stays so when it is
# saved again.
# Behaviour: the classes of 5.24.0 have the field with a default of 1, and write it. 5.12.1 has no such field. Megatron
# Bridge 0.6.2 takes mtp_num_layers from the key (models/deepseek/deepseek_v3_bridge.py:97), so the very same checkpoint,
# loaded and saved by 5.24.0, is built with an MTP layer that has no tensors.
# Output seen:
#   5.24.0 deepseek_v3 1, 5.12.1 deepseek_v3 absent
#   5.24.0 glm4_moe 1, 5.12.1 glm4_moe absent
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/save.py" <<'PY'
import json, sys
from transformers import AutoConfig
folder, version = sys.argv[1:]
for kind in ("deepseek_v3", "glm4_moe"):
    AutoConfig.from_pretrained(f"{folder}/{kind}").save_pretrained(f"{folder}/{kind}/{version}")
    saved = json.load(open(f"{folder}/{kind}/{version}/config.json"))
    print(version, kind, saved.get("num_nextn_predict_layers", "absent"))
PY
for kind in deepseek_v3 glm4_moe; do
    mkdir "$work/$kind"
    echo "{\"model_type\": \"$kind\", \"num_hidden_layers\": 4}" > "$work/$kind/config.json"
done
seen=""
for version in 5.24.0 5.12.1; do
    python3 -m venv "$work/$version"
    "$work/$version/bin/pip" install -q --disable-pip-version-check "transformers==$version"
    seen+=$("$work/$version/bin/python" "$work/save.py" "$work" "$version" 2>/dev/null)$'\n'
done
echo "$seen"
[ "$seen" = "5.24.0 deepseek_v3 1
5.24.0 glm4_moe 1
5.12.1 deepseek_v3 absent
5.12.1 glm4_moe absent
" ]
