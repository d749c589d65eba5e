"""Write the JSON Schema of TrainJob of three releases of Kubeflow Trainer, from the models of its own packages.

    pip download --no-deps kubeflow-trainer-api==2.1.0 kubeflow-trainer-api==2.2.1 ... and unpack each
    python tests/data/extract_trainjob_schema.py FOLDER/2.1.0 FOLDER/2.2.1 FOLDER/2.3.0

Objects are closed, because the API server drops a field that the definition does not have.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).with_name("trainjob_schemas.json")
ASK = """
import json
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
print(json.dumps(TrainerV1alpha1TrainJob.model_json_schema(by_alias=True)))
"""
EITHER = ("IoK8sApimachineryPkgUtilIntstrIntOrString", "IoK8sApimachineryPkgApiResourceQuantity")
"""A number or a text; the packages have empty classes for them."""


def schema(folder: str) -> dict[str, Any]:
    said = subprocess.run([sys.executable, "-c", ASK], env={"PYTHONPATH": folder}, capture_output=True, check=True)
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
    found = {Path(folder).name: schema(folder) for folder in sys.argv[1:]}
    OUT.write_text(json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
