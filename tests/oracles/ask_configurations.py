"""What transformers and Bridge make of configurations. JSON lists on stdin and stdout.

A question is {"config", "code": a folder with the model's own classes, "language": the provider's method or null,
"config_only", "save"}. With "save" the answer is {"saved": the configuration as the installed transformers saves it}; else
the "fields" of the provider that the real AutoBridge makes, by dotted name, with its "class" and the "tower"'s
configuration. It is {"error"}, the words with which one of them refuses it, where it cannot be made.
"""

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import stand_ins


def answer(question: dict[str, Any], folder: Path) -> dict[str, Any]:
    from megatron.bridge import AutoBridge
    from transformers import AutoConfig

    code = question.get("code")
    (folder / "config.json").write_text(json.dumps(question["config"]))
    for file in Path(code).glob("*.py") if code else ():
        shutil.copy(file, folder)
    out: dict[str, Any] = {}
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=bool(code))
        if question.get("save"):
            config.save_pretrained(folder / "saved")
            return {"saved": json.loads((folder / "saved" / "config.json").read_text())}
        bridge: Any = AutoBridge.from_hf_pretrained(folder, trust_remote_code=bool(code))
        if question.get("config_only"):
            bridge = AutoBridge.from_hf_config(config)
        made: Any = bridge.to_megatron_provider(load_weights=False)
        made = getattr(made, question["language"])() if question.get("language") else made
    except Exception as error:  # whatever it is, it is the answer
        return out | {"error": f"{type(error).__name__}: {error}"}
    names = [f.name for f in dataclasses.fields(made)]
    out["fields"] = {f"model.{n}": _plain(getattr(made, n, None)) for n in names}
    out["class"] = type(made).__name__
    tower: Any = getattr(made, "vision_config", None)
    out["tower"] = tower.to_dict() if hasattr(tower, "to_dict") else None
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(type(value).__name__)


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    stand_ins.install_engine()
    stand_ins.install_mamba()
    answers = []
    for question in json.load(sys.stdin):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            answers.append(answer(question, Path(folder)))
    print(json.dumps(answers, default=str))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
