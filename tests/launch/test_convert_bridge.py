"""The program that imports and exports weights, with the real AutoBridge: a small model there and back on a CPU."""

from __future__ import annotations

import ast
import inspect
import json
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from moedsl.launch.in_job import convert, head_check
from tests.helpers import bridge_process, ports

pytestmark = pytest.mark.bridge
HERE = Path(__file__).resolve().parent
Run = Callable[..., subprocess.CompletedProcess[str]]
ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "HF_HUB_OFFLINE": "1"}
SMALL_MODEL = """
import sys
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

config = Qwen3MoeConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2,
    norm_topk_prob=True, max_position_embeddings=128,
)
Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""


def tensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """The type, the shape and the bytes of each tensor of model.safetensors: a length, a header in JSON, the data."""
    data = (folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {
        name: (about["dtype"], about["shape"], data[begin:][slice(*about["data_offsets"])])
        for name, about in header.items()
    }


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the program as a job does, one rank with a place to meet."""

    def run(**wanted: Any) -> subprocess.CompletedProcess[str]:
        job = tmp_path / "job"
        job.mkdir(exist_ok=True)
        for module, name in ((convert, "convert.py"), (head_check, "preflight.py")):
            shutil.copy(inspect.getfile(module), job / name)
        (job / "weights.json").write_text(json.dumps({"options": {}, **wanted}))
        meet = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(ports.kept())}
        for name, value in (meet | ONE_RANK).items():
            monkeypatch.setenv(name, value)
        return bridge_process.run(str(HERE / "convert_on_cpu.py"), str(job))

    return run


def test_there_and_back(tmp_path: Path, run: Run) -> None:
    theirs, ours, back = tmp_path / "hf", tmp_path / "imported", tmp_path / "exported"
    done = bridge_process.run("-c", SMALL_MODEL, str(theirs))
    assert done.returncode == 0, done.stderr[-3000:]
    done = run(action="import", model=str(theirs), folder=str(ours))
    assert done.returncode == 0, done.stderr[-3000:]
    assert head_check.is_checkpoint(str(ours)) and head_check.is_checkpoint(convert.iteration(str(ours)))
    assert [p.name for p in tmp_path.glob("imported*")] == ["imported"]
    done = run(action="export", model=str(theirs), folder=str(back), checkpoint=str(ours), adapters=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert tensors(back) == tensors(theirs)


def test_an_import_that_fails_leaves_nothing(tmp_path: Path, run: Run) -> None:
    done = run(action="import", model=str(tmp_path / "nowhere"), folder=str(tmp_path / "imported"))
    assert done.returncode != 0 and "nowhere" in done.stderr
    assert [*tmp_path.glob("imported*")] == []


@pytest.mark.parametrize("name", ["export_adapter_ckpt", "export_ckpt"])
def test_bridge_takes_a_checkpoint_and_a_folder(name: str) -> None:
    """No adapter is trained here, so its call is compared with the method's text."""
    (package,) = getattr(find_spec("megatron"), "submodule_search_locations", [])
    text = Path(package, "bridge", "models", "conversion", "auto_bridge.py").read_text(encoding="utf-8")
    (found,) = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == name)
    needed = len(found.args.args) - len(found.args.defaults)
    assert (found.args.args[0].arg, needed) == ("self", 3)
