"""A recipe of somebody else's can be judged without running it, and the commands that run one say so."""

import json
from pathlib import Path

import pytest

from moedsl.bridge.verify import client
from moedsl.cli.main import main
from tests.helpers.paths import ROOT

HOSTILE = """from pathlib import Path
from megatron.bridge.recipes.common import _pretrain_common
import beside

Path(__file__).with_name("ran").touch()

def my_config(path=Path(__file__).with_name("ran").touch()):
    cfg = _pretrain_common()
    Path(__file__).with_name("ran").touch()
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.expert_tensor_parallel_size = 1
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.expert_model_parallel_size = {ep}
    cfg.train.micro_batch_size = eval("__import__('os').abort()")
    return cfg
"""
MACHINES = ("--gpu", "h100", "--world", "16")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two recipes and a module that would leave a mark; nothing may start Bridge."""
    for name, ep in (("a", 32), ("b", 8)):
        (tmp_path / f"{name}.py").write_text(HOSTILE.format(ep=ep))
    (tmp_path / "beside.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "Server", None)
    return tmp_path


def test_lint_reads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--read-only", "a.py", *MACHINES]) == 1
    said = capsys.readouterr().out
    assert "std.mesh.expert_mesh" in said and "a.py:13" in said
    assert "nothing was run" in said
    assert "the value of train.micro_batch_size" in said and "what _pretrain_common sets" in said
    assert not (folder / "ran").exists()


def test_diff_reads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--read-only", "a.py", "b.py", *MACHINES, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"]["same_experiment"] is not False
    assert [c["name"] for c in said["changes"]["execution"]] == ["model.expert_model_parallel_size"]
    assert any("_pretrain_common" in line for line in said["a"]["unread"])
    assert not (folder / "ran").exists()


def test_verify_reads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "-e", "qwen3_30b_a3b; h100 x 16; pin micro_batch=1", "-o", "out"]) == 0
    recipe = folder / "out" / "recipe.py"
    marks = 'Path(__file__).parents[1].joinpath("ran").touch()'
    text = recipe.read_text().replace("micro_batch_size = 1\n", f"micro_batch_size = 2\n    {marks}\n")
    recipe.write_text(f"{text}\nfrom pathlib import Path\n{marks}\n")
    capsys.readouterr()
    assert main(["verify", "--read-only", "out"]) == 1
    said = capsys.readouterr().out
    assert "out: read, but not what was planned" in said and "nothing was run" in said
    assert "differs  train.micro_batch_size: planned 1, is 2" in said
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("command", ["lint", "diff"])
def test_a_module_is_not_imported(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text(HOSTILE)
    assert main([command, "--read-only", "package.a:my_config", *(["b.py"] * (command == "diff")), *MACHINES]) == 1
    assert "name it as FILE:function" in "".join(capsys.readouterr())
    assert not (folder / "ran").exists()


def test_helpers_that_call_each_other_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = "\n".join(f"def f{i}(cfg):\n" + f"    f{i + 1}(cfg)\n" * 20 for i in range(12))
    (folder / "a.py").write_text(
        f"{calls}\ndef my_config():\n    cfg = ConfigContainer()\n    f0(cfg)\n    return cfg\n"
    )
    main(["lint", "--read-only", "a.py:my_config", *MACHINES])
    assert "what f" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["lint", "diff", "verify", "import"])
def test_what_runs_a_recipe_says_so(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "as you" in said
    assert ("--read-only" in said) == (command != "import")
    page = (ROOT / "docs" / f"{'recipes' if command == 'import' else command}.md").read_text(encoding="utf-8")
    assert "SECURITY.md" in page


def test_verify_reads_every_run_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compile` names the folder of several runs as the next thing to verify."""
    two = "qwen3_30b_a3b; seq 4k; run x { h100 x 16 }; run y { h100 x 32 }"
    assert main(["compile", "-e", two, "-o", "two"]) == 0
    assert "moedsl verify two" in capsys.readouterr().out
    assert main(["verify", "--read-only", "two", "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [(r["file"], r["verdict"]) for r in reports] == [("two/x", "read"), ("two/y", "read")]
