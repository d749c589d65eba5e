#!/bin/bash
# Versions:  megatron-bridge 0.4.2, 0.5.1 and 0.6.2
# Behaviour: apply_flex_dispatcher_backend(config, "deepep") on a GPU that DeepEP does not support (GB200). 0.6.2 sets
#            alltoall. 0.4.2 and 0.5.1 change nothing: a configuration that is already "flex" stays flex, and the check
#            before training then refuses it; one that is "alltoall" trains over alltoall.
# Guess:     "the helper falls back to alltoall with a warning", as 0.6's guides and issue 5992 say. Wrong before 0.6:
#            the warning says "Skipping DeepEP configuration", and the dispatcher is whatever the base recipe had.
# Output:    0.4.2 flex -> flex deepep; refused: DeepEP is supported for Ampere, Hopper, and Blackwell (B200/B300) GPUs. ...
#            0.5.1 flex -> flex deepep; refused: DeepEP is supported for Ampere, Hopper, and Blackwell (B200/B300) GPUs. ...
#            0.6.2 flex -> alltoall None; accepted
# Exits non-zero if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.12 -m venv "$work/venv"
for version in 0.4.2 0.5.1 0.6.2; do
  "$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps \
    --target "$work/$version" "megatron-bridge==$version"
done
"$work/venv/bin/python" - "$work" <<'PY'
import logging, sys, types
from pathlib import Path
from types import SimpleNamespace

logging.disable(logging.CRITICAL)


def module(name, **values):
    sys.modules[name] = found = types.ModuleType(name)
    vars(found).update(values)


gb200 = SimpleNamespace(major=10, name="NVIDIA GB200")
cuda = SimpleNamespace(is_available=lambda: True, get_device_properties=lambda _: gb200)
module("torch", cuda=cuda)
module("megatron"), module("megatron.core"), module("megatron.core.transformer", TransformerConfig=object)
module("megatron.bridge"), module("megatron.bridge.utils")
module("megatron.bridge.utils.common_utils", get_rank_safe=lambda: 1)
seen = {}
for version in ("0.4.2", "0.5.1", "0.6.2"):
    code = {"__name__": "helper"}
    exec(Path(sys.argv[1], version, "megatron/bridge/training/flex_dispatcher_backend.py").read_text(), code)
    config = SimpleNamespace(num_moe_experts=8, moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend="deepep")
    code["apply_flex_dispatcher_backend"](config, "deepep")
    try:
        code["validate_flex_dispatcher_backend"](config)
        judged = "accepted"
    except ValueError as error:
        judged = f"refused: {error}"
    seen[version] = config.moe_token_dispatcher_type, judged.split(":")[0]
    print(version, "flex ->", config.moe_token_dispatcher_type, f"{config.moe_flex_dispatcher_backend};", judged)
want = {"0.4.2": ("flex", "refused"), "0.5.1": ("flex", "refused"), "0.6.2": ("alltoall", "accepted")}
sys.exit(seen != want)
PY
