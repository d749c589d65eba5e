"""Write the JSON Schemas of TrainJob of two releases of Kubeflow Trainer, from the models of its own packages.

    pip download --no-deps kubeflow-trainer-api==2.2.1 ... and unpack each
    python tests/data/extract_kubernetes_schemas.py FOLDER/2.2.1 FOLDER/2.3.0

Objects are closed, because the API server drops a field that the definition does not have.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MODEL = "trainer_v1alpha1_train_job.TrainerV1alpha1TrainJob"
ASK = """
import importlib, json, sys
module, _, model = sys.argv[1].partition(".")
made = getattr(importlib.import_module(f"kubeflow_trainer_api.models.{module}"), model)
print(json.dumps(made.model_json_schema(by_alias=True)))
"""
EITHER = ("IoK8sApimachineryPkgUtilIntstrIntOrString", "IoK8sApimachineryPkgApiResourceQuantity")
"""A number or a text; the packages have empty classes for them."""


def schema(folder: str, model: str) -> dict[str, Any]:
    asked = [sys.executable, "-c", ASK, model]
    said = subprocess.run(asked, env={"PYTHONPATH": folder}, capture_output=True, check=True)
    made = closed(json.loads(said.stdout))
    made["$defs"] |= {name: {"type": ["integer", "string"]} for name in EITHER if name in made["$defs"]}
    return made


def closed(part: Any) -> Any:
    """The schema without descriptions, whose objects with named fields take no other field."""
    if isinstance(part, list):
        return [closed(p) for p in part]
    if not isinstance(part, dict):
        return part
    fields = {"properties": {n: closed(p) for n, p in part["properties"].items()}} if "properties" in part else {}
    kept = {n: closed(p) for n, p in part.items() if n not in ("description", "title", "default", "properties")}
    return {**kept, **fields, **({"additionalProperties": False} if fields else {})}


if __name__ == "__main__":
    found = {Path(folder).name: schema(folder, MODEL) for folder in sys.argv[1:]}
    text = json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n"
    Path(__file__).with_name("trainjob_schemas.json").write_text(text, encoding="utf-8")
