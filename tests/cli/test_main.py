"""The command line: exit codes, data on stdout and talk on stderr, files whole or not at all."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli import console, main
from moedsl.cli.commands import plan as plan_command
from moedsl.facts import axes
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

GOOD = "qwen3_30b_a3b; gb200 x 8"
BAD = "qwen3_30b; gb200 x 8"
IMPOSSIBLE = "qwen3_30b_a3b; gb200 x 8; pin tp=3"
FILES = {"recipe.py", "overrides.txt", "plan.json", "moedsl.lock.json"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(console, "QUIET_FOR", float("inf"))  # a busy machine is slow enough for progress

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main.main(words)
        except SystemExit as e:
            code = int(e.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


def process(*words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "moedsl", *words], capture_output=True, check=False, **more)


# ---------------------------------------------------------------- exit codes and streams


@pytest.mark.parametrize("command", ["plan", "check", "compile"])
@pytest.mark.parametrize(("text", "id"), [(BAD, "check.unknown_name"), (IMPOSSIBLE, "std.mesh."), ("seq", "parse.")])
def test_a_wrong_file_is_exit_1_and_talks_on_stderr(run: Any, tmp_path: Path, command: str, text: str, id: str) -> None:
    out = ["-o", str(tmp_path / "out")] if command == "compile" else []
    code, stdout, stderr = run(command, "-e", text, *out)
    assert (code, stdout) == (1, "")
    assert f"error[{id}" in stderr and ("help:" in stderr or text == "seq")
    assert not (tmp_path / "out").exists()


def test_a_right_file_is_exit_0_and_data_on_stdout(run: Any) -> None:
    assert run("check", "-e", GOOD) == (0, "", "")
    code, stdout, stderr = run("plan", "-e", GOOD)
    assert code == 0 and stdout.startswith("main: qwen3_30b_a3b on 8 gb200") and stderr == ""


def test_a_bug_is_exit_2(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> int:
        raise RuntimeError("ours")

    monkeypatch.setattr(plan_command, "plan", broken)
    code, stdout, stderr = run("plan", "-e", GOOD)
    assert (code, stdout) == (2, "") and "ours" in stderr and "bug of moedsl" in stderr


@pytest.mark.parametrize(
    "words", [["nonsense"], ["plan", "--nonsense"], ["plan"], ["plan", "-e", GOOD, "--stop-after", "x"], []]
)
def test_wrong_words_are_exit_1(run: Any, words: list[str]) -> None:
    code, _, _ = run(*words)
    assert code == 1


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["plann"], "plan"),
        (["modles"], "models"),
        (["plan", "--jsn", "-e", GOOD], "--json"),
        (["plan", "x.moe", "--topp", "3"], "--top"),
        (["models", "ad"], "add"),
        (["models", "add", "config.json", "--nmae", "x"], "--name"),
        (["plan", "-e", GOOD, "--stop-after", "sovle"], "solve"),
    ],
)
def test_a_misspelt_word_has_its_nearest(run: Any, words: list[str], nearest: str) -> None:
    code, _, err = run(*words)
    assert code == 1 and f"help: did you mean `{nearest}`?" in err


def test_a_word_near_to_nothing_has_no_help(run: Any) -> None:
    assert "help" not in run("xylophone")[2].replace("[-h]", "")


def test_a_name_that_is_empty_is_not_ignored(run: Any) -> None:
    for words in (["plan", "-e", GOOD], ["diff", "-e", GOOD]):
        code, out, err = run(*words, "--like", "")
        assert (code, out) == (1, "") and "argument --like: a name is needed" in err


def test_interrupted(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_command, "plan", slow)
    code, stdout, stderr = run("plan", "-e", GOOD)
    assert (code, stdout) == (130, "") and "Traceback" not in stderr


def runs(count: int) -> str:
    """A file of so many runs, each from the one before."""
    others = (f"run r{i} from r{i - 1} {{ seq {i % 8 + 1}k }}\n" for i in range(1, count))
    return "qwen3_30b_a3b; h100 x 16; fit first\nrun r0 { seq 1k }\n" + "".join(others)


def test_one_run_of_many_needs_no_other(run: Any, tmp_path: Path) -> None:
    (tmp_path / "many.moe").write_text(runs(20) + "run none from r0 { require pp > 99 }")
    code, stdout, _ = run("plan", str(tmp_path / "many.moe"), "--run", "r7")
    assert code == 0 and stdout.startswith("r7: ")
    code, stdout, _ = run("plan", str(tmp_path / "many.moe"), "--run", "r9", "--top", "1", "--json")
    assert code == 0 and json.loads(stdout)["name"] == "r9"
    code, stdout, stderr = run("plan", str(tmp_path / "many.moe"), "--run", "r7x", "--lengths")
    assert (code, stdout) == (1, "") and "error[plan.unknown_run]: no run is called `r7x`" in stderr
    code, stdout, _ = run(
        "plan", "-e", f"{GOOD}; isolate recompute in none, moe_act", "--run", "main.recompute_moe_act"
    )
    assert code == 0 and stdout.startswith("main.recompute_moe_act: ")
    code, stdout, _ = run("plan", "-e", "qwen3_30b_a3b; h100 x 16; workflow", "--run", "main.scale")
    assert code == 0 and stdout.startswith("main.scale: ")


def subsets(words: Sequence[str]) -> str:
    """Every set of some words, as candidates."""
    sets = (c for count in range(1, len(words) + 1) for c in combinations(words, count))
    return ", ".join(f"[{', '.join(c)}]" for c in sets)


MANY = {
    "recompute": subsets(axes.RECOMPUTE[:-1]),
    "offload_modules": subsets(axes.OFFLOAD_MODULES),
    "cuda_graph": subsets(("attn", "moe_router", "moe_preprocess")),
    "moments": "fp32, bf16",
    "grad_reduce": "fp32, bf16",
    "sharding": "optimizer, fsdp",
    "offload": "none, optimizer",
    "dispatcher": "alltoall, deepep, hybridep",
    "precision": "bf16, fp8_current, mxfp8",
    "ep_overlap": "true, false",
    "delay_wgrad": "true, false",
}
MEMORY_POLICIES = r"""
import re, sys
from moedsl.cli.main import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1])
sys.exit(code)
"""


def test_millions_of_policies_are_refused_in_500_mb() -> None:
    rules = "".join(f'candidates {a} = [{values}] because "a test" cite ours "here"\n' for a, values in MANY.items())
    program = f"deepseek_v3; gb200 x 1024\nrules many {{\n{rules}}}\n"
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_POLICIES, "plan", "-e", program], capture_output=True, text=True, check=False
    )
    assert (
        done.returncode == 1
        and "error[solve.too_large]: `main` has more than 1,000,000 combinations of policies" in done.stderr
    )
    assert int(done.stdout) * 1024 < 500e6


# ---------------------------------------------------------------- input


def test_standard_input(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(GOOD.encode())

    monkeypatch.setattr(sys, "stdin", Stdin())
    code, stdout, _ = run("plan", "-", "--json")
    assert code == 0 and json.loads(stdout)["gpus"] == 8


def test_a_file(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.moe"
    file.write_text(GOOD, encoding="utf-8")
    assert run("plan", str(file), "--full")[1] == run("plan", "-e", GOOD, "--full")[1]


BYTES = {
    "empty": b"", "comment": b"# nothing", "binary": bytes(range(256)) * 40, "utf16": GOOD.encode("utf-16"), "latin": b"model \xe9", "huge": b"seq 4k\n" * 800_000,
    "deep": b"require " + b"(" * 100_000, "lists": b"require " + b"[" * 5000 + b"]" * 5000, "half": b"model qwen3_30b_a3b; pin tp=", "nots": b"require " + b"not " * 20_000 + b"true",
    "minus": b"require " + b"-" * 20_000 + b"1 > 0", "ifs": b"require " + b"if true then " * 3000 + b"1", "sum": b"require 1" + b"+1" * 20_000 + b" > 0",
}  # fmt: skip


READ_AS = [(kind, command) for kind in BYTES for command in ("plan", "check", "compile")]


@pytest.mark.parametrize(("kind", "command"), rotation.one_of_each("bytes", READ_AS, lambda case: case[0]))
def test_bad_bytes(run: Any, tmp_path: Path, kind: str, command: str) -> None:
    file, out = tmp_path / "run.moe", tmp_path / "out"
    file.write_bytes(BYTES[kind])
    code, stdout, stderr = run(command, str(file), *(["-o", str(out)] if command == "compile" else []))
    assert (code, stdout) == (1, "") and "error[" in stderr, stderr[:300]
    assert len(stderr) < 5000
    assert not out.exists() and os.listdir(tmp_path) == ["run.moe"]


# ---------------------------------------------------------------- JSON


KEYS = table_of("cli", "main: keys")


def test_the_keys_of_the_contract(run: Any) -> None:
    code, stdout, _ = run("plan", "-e", GOOD + "; throughput first", "--json")
    plan = json.loads(stdout, parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))
    assert code == 0
    for path, keys in KEYS.items():
        at: Any = plan
        for part in path.split(".") if path else []:
            at = at[part]
        for item in at if isinstance(at, list) else [at]:
            assert set(keys.split()) <= item.keys(), path
    assert {d["origin"] for d in plan["decisions"]} <= {"pinned", "defaulted", "derived", "chosen"}


def test_the_meshes_cover_the_gpus(run: Any) -> None:
    layout = json.loads(run("plan", "-e", GOOD, "--json")[1])["layout"]
    assert layout["tp"] * layout["cp"] * layout["dp"] * layout["pp"] == 8
    assert layout["etp"] * layout["ep"] * layout["edp"] * layout["pp"] == 8


def test_a_fully_pinned_program_is_priced(run: Any) -> None:
    pins = "pin tp=2 cp=1 pp=2 vpp=2 ep=4 etp=1 micro_batch=1 recompute=none dispatcher=alltoall offload=none cuda_graph=none ep_overlap=false delay_wgrad=false"
    code, stdout, stderr = run("plan", "-e", f"qwen3_30b_a3b; h100 x 32; batch 64; {pins}", "--json")
    assert code == 0, stderr
    assert json.loads(stdout)["estimate"]["step_time_s"] > 0


def test_several_runs(run: Any) -> None:
    code, stdout, _ = run("plan", "-e", GOOD + "; sweep micro_batch in 1, 2", "--json")
    assert code == 0 and [r["name"] for r in json.loads(stdout)["runs"]] == ["main.micro_batch_1", "main.micro_batch_2"]


@pytest.mark.parametrize("command", ["plan", "check", "compile"])
def test_errors_as_json(run: Any, command: str) -> None:
    code, stdout, _ = run(command, "-e", BAD, "--json")
    found = json.loads(stdout)["diagnostics"]
    assert code == 1 and found[0]["id"] == "check.unknown_name"
    assert {"line": 1, "column": 1, "end_column": 10}.items() <= found[0]["labels"][0].items()


@pytest.mark.parametrize("stage", ["parse", "check", "lower", "solve", "plan"])
def test_stop_after(run: Any, stage: str) -> None:
    code, stdout, stderr = run(
        "plan", "-e", GOOD + "; allow mesh.heads; prefer tp > 1", "--stop-after", stage, "--json"
    )
    assert code == 0, stderr
    assert json.loads(stdout)


@pytest.mark.parametrize("command", ["models", "hardware"])
def test_lists(run: Any, command: str) -> None:
    names = {m["name"] for m in json.loads(run(command, "--json")[1])}
    lines = run(command)[1].splitlines()
    assert names == {line.split()[0] for line in lines if line.split()[0] in names} and len(names) >= 6


@pytest.mark.parametrize("id", ["std.mesh.heads", "vpp", "check.twice", "rules", "overlap.ep", "pow2"])
def test_explain(run: Any, id: str) -> None:
    code, stdout, _ = run("explain", id)
    assert code == 0 and len(stdout) > 20


def test_explain_nothing(run: Any) -> None:
    code, stdout, stderr = run("explain", "mesh.headz")
    assert (code, stdout) == (1, "") and "mesh.heads" in stderr


# ---------------------------------------------------------------- files


def test_compile_writes_the_four_files(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, stdout, stderr = run("compile", "-e", GOOD, "-o", str(out))
    assert code == 0 and stdout.startswith("main:") and "wrote" in stderr
    assert set(os.listdir(out)) == FILES
    first = {f: (out / f).read_bytes() for f in FILES}
    assert run("compile", "-e", GOOD, "-o", str(out))[0] == 0, "what moedsl wrote it may write again"
    assert first == {f: (out / f).read_bytes() for f in FILES}
    compile(first["recipe.py"], "recipe.py", "exec")


def test_compile_says_whose_plan_it_replaces(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("compile", "-e", GOOD)[2] == "wrote out/\n"
    assert run("compile", "-e", GOOD + "; seq 8k")[2] == "wrote out/\n"
    other = GOOD.replace("qwen3_30b_a3b", "moonlight_16b")
    assert run("compile", "-e", other)[2].endswith("wrote out/, which held a plan of qwen3_30b_a3b\n")


def test_a_strange_file_is_kept_unless_forced(run: Any, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text("mine", encoding="utf-8")
    code, stdout, _ = run("compile", "-e", GOOD, "-o", str(tmp_path))
    assert (code, stdout) == (1, "") and os.listdir(tmp_path) == ["recipe.py"]
    assert (tmp_path / "recipe.py").read_text(encoding="utf-8") == "mine"
    assert run("compile", "-e", GOOD, "-o", str(tmp_path), "--force")[0] == 0
    assert set(os.listdir(tmp_path)) == FILES


def test_several_runs_are_written_together_or_not_at_all(run: Any, tmp_path: Path) -> None:
    text, second = GOOD + "; sweep micro_batch in 1, 2", tmp_path / "main.micro_batch_2"
    second.mkdir()
    (second / "plan.json").write_text("mine", encoding="utf-8")
    assert run("compile", "-e", text, "-o", str(tmp_path))[0] == 1
    assert os.listdir(tmp_path) == [second.name] and os.listdir(second) == ["plan.json"]
    assert run("compile", "-e", text, "-o", str(tmp_path), "--force")[0] == 0
    assert {frozenset(os.listdir(tmp_path / f"main.micro_batch_{i}")) for i in (1, 2)} == {frozenset(FILES)}


@pytest.mark.parametrize("where", ["/proc/nowhere", "/dev/null/out", "file"])
def test_no_place_to_write(run: Any, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, _, stderr = run("compile", "-e", GOOD, "-o", where if where.startswith("/") else str(tmp_path / where))
    assert code == 1 and "error[" in stderr


def test_fmt_check(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.moe"
    file.write_text("model   qwen3_30b_a3b # why\n", encoding="utf-8")
    assert run("fmt", "--check", str(file))[0] == 1
    assert "   " in file.read_text(encoding="utf-8")
    assert run("fmt", str(file))[0] == 0
    assert run("fmt", "--check", str(file)) == (0, "", "")
    assert "# why" in file.read_text(encoding="utf-8")


def test_a_broken_pipe_is_quiet() -> None:
    pipe = subprocess.Popen(
        [sys.executable, "-m", "moedsl.cli.main", "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pipe.stdout is not None and pipe.stderr is not None
    pipe.stdout.close()
    said = pipe.stderr.read()
    pipe.stderr.close()
    assert pipe.wait() == 0 and b"Traceback" not in said and b"Exception" not in said


def test_ctrl_c() -> None:
    """A signal in the middle of a search, of which only a terminal shows the progress."""
    ours, theirs = pty.openpty()
    pipe = subprocess.Popen(
        [sys.executable, "-m", "moedsl.cli.main", "what-if", "-e", "deepseek_v3; gb200 x 1024; throughput first"],
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    begun = os.read(ours, 64)  # the first word of progress
    pipe.send_signal(signal.SIGINT)
    out, _ = pipe.communicate(timeout=60)
    said = b""
    with suppress(OSError):  # the end of a terminal that nobody has open
        while more := os.read(ours, 4096):
            said += more
    os.close(ours)
    assert begun, "it was over before it said anything"
    assert pipe.returncode in (130, 0, 1) and b"Traceback" not in said
    assert pipe.returncode != 130 or out == b""


WRITERS = {
    "report": ["report", "-e", GOOD],
    "models add": ["models", "add", str(ROOT / "stdlib" / "hf" / "Qwen--Qwen3-30B-A3B" / "config.json")],
    "calibrate": ["calibrate", "runs.jsonl"],
}


@pytest.mark.parametrize("by", WRITERS)
def test_where_a_file_cannot_be_written(by: str, run: Any, tmp_path: Path) -> None:
    """A folder that is not there, a folder, and another's file: an error with a way out, and nothing changed."""
    (tmp_path / "mine").write_text("mine")
    for place, id in (
        ("no/x", "emit.unwritable"),
        (".", "emit.exists"),
        ("mine", "emit.not_ours"),
        ("mine/x", "emit.exists"),
    ):
        code, _, err = run(*WRITERS[by], "-o", str(tmp_path / place))
        assert code == 1 and f"error[{id}]" in err and "help:" in err, err
    assert [p.name for p in tmp_path.iterdir()] == ["mine"] and (tmp_path / "mine").read_text() == "mine"
