"""Errors are found in NVIDIA's code: texts and frames drawn from the installed wheels, and what they read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.diagnose import messages
from moedsl.diagnose.errors import Error, Errors, Frame
from moedsl.diagnose.messages import Message, find, known, reads
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.oracles import wheel_messages

NEWEST = [m for m, _ in known() if m.release == "0.6.2"]
FOLDERS = {
    "core": "megatron/core",
    "training": "megatron/training",
    "bridge": "megatron/bridge",
    "te": "transformer_engine",
}
DRAWN = rotation.dice("messages").sample([m for m in NEWEST if len("".join(m.literals)) > 12], 100)


def filled(text: str) -> str:
    """A text as it is printed: with a value for each name."""
    return re.sub(r"\{\w*\}", "8", text.replace("{{", "\0").replace("}}", "\1")).replace("\0", "{").replace("\1", "}")


@pytest.mark.bridge
def test_the_table_is_that_of_the_installed_wheels() -> None:
    """Each drawn line of the table raises or asserts, by the sources that the oracle reads."""
    for m in DRAWN:
        path = wheel_messages.packages() / FOLDERS[m.package] / m.file
        first, last = m.lines["0.6.2"]
        source = "\n".join(path.read_text(encoding="utf-8").splitlines()[first - 1 : last])
        assert re.search(r"\b(raise|assert)\b|\.(error|critical|exception)\(|ERROR|CRITICAL", source), m.place


def test_texts_alone_are_named_with_their_place() -> None:
    """At least 95 of 100; a text may stand in several places, and then one of them is shown."""
    hit = sum(any((f.package, f.file) == (m.package, m.file) or f.text == m.text for f in find(Error(1, m.kind, filled(m.text)))) for m in DRAWN)  # fmt: skip
    assert hit >= 95


def test_a_traceback_alone_is_enough() -> None:
    """Where an assertion has no text, its frame and its line of source say which one it is."""
    bare = [m for m in NEWEST if not m.text and m.kind == "AssertionError" and m.check]
    for m in rotation.dice("bare").sample(bare, 50):
        frame = Frame(f"/opt/lib/{FOLDERS[m.package]}/{m.file}", 1, m.function.rpartition(".")[2], f"assert {m.check}")
        assert any(f.check == m.check and f.file == m.file for f in find(Error(1, m.kind, "", frames=(frame,))))


def test_configuration_is_named_with_the_statement_to_change() -> None:
    """Of messages about fields of the configuration at least four in five."""
    about = [m for m in DRAWN if any(n in messages.OTHER_NAMES or messages.fields_by_name().get(n) for n in m.names)]
    named = sum(bool(reads(m, Error(1, m.kind, filled(m.text)))) for m in about)
    assert named >= 0.8 * len(about)


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def call(text: str, *words: str) -> tuple[int, str]:
        path = tmp_path / "run.log"
        path.write_text(text, encoding="utf-8")
        code = main(["diagnose", str(path), *words])
        return code, capsys.readouterr().out

    return call


TRACEBACK = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/opt/train.py", line 12, in <module>
[rank3]:     main()
[rank3]:   File "/opt/venv/lib/python3.12/site-packages/megatron/training/arguments.py", line 1603, in validate_args
[rank3]:     assert args.num_experts % args.expert_model_parallel_size == 0, \\
[rank3]: AssertionError: Number of experts should be a multiple of expert model parallel_size.
"""


def test_the_place_the_check_and_the_statement(diagnose: Any, tmp_path: Path) -> None:
    code, out = diagnose(TRACEBACK)
    assert code == 1
    assert "megatron.training: arguments.py, validate_args" in out
    assert "needs num_experts % expert_model_parallel_size == 0" in out
    assert "`pin ep=...`" in out and "training arguments.py:1603" in out


def test_the_values_of_the_run_file_are_beside_it(diagnose: Any, tmp_path: Path) -> None:
    (tmp_path / "run.moe").write_text("qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; throughput first\npin ep=8\n")
    (error,) = json.loads(diagnose(TRACEBACK, "--run", str(tmp_path / "run.moe"), "--json")[1])["errors"]
    assert {r["name"]: r["value"] for r in error["reads"]}["expert_model_parallel_size"] == 8
    assert error["ranks"] == [3] and error["place"]["file"] == "arguments.py"


def test_the_rule_that_states_a_check(diagnose: Any) -> None:
    """A law cites the lines of the check, so the error of the check names the law."""
    text = "AssertionError: moe_preprocess cuda graph is only supported with moe_router cuda graph."
    (error,) = json.loads(diagnose(text, "--json")[1])["errors"]
    assert error["rules"] == ["std.cuda_graph.preprocess_with_router"]


def errors_of(text: str) -> list[Error]:
    errors = Errors()
    for number, line in enumerate(text.splitlines(), 1):
        errors.add(number, line)
    return errors.errors()


def test_ranks_that_write_at_once_and_chained_exceptions() -> None:
    lines = [
        '[rank0]:   File "/x/megatron/core/a.py", line 1, in f', '[rank1]:   File "/x/megatron/core/b.py", line 2, in g',
        "[rank0]:     f()", "[rank1]:     g()", "[rank0]: ValueError: of rank 0", "[rank1]: KeyError: 'b'",
        "[rank0]: During handling of the above exception, another exception occurred:",
        '[rank0]:   File "/x/y.py", line 3, in h', "[rank0]: RuntimeError: later",
    ]  # fmt: skip
    found = errors_of("\n".join(lines))
    assert [(e.rank, e.kind, e.text, len(e.frames)) for e in found] == [
        (0, "ValueError", "of rank 0", 1), (1, "KeyError", "'b'", 1), (0, "RuntimeError", "later", 1),
    ]  # fmt: skip


def test_a_text_of_several_lines_and_one_error_of_many_ranks() -> None:
    lines = [f"[rank{r}]: ValueError: sizes\n[rank{r}]:   a 1\n[rank{r}]:   b 2" for r in range(3)]
    (error,) = errors_of("\n".join([*lines, "srun: error: n1: task 0: Exited with exit code 1"]))
    assert (error.text, error.ranks) == ("sizes a 1 b 2", (0, 1, 2))


def test_the_messages_are_packed_with_the_package() -> None:
    assert (ROOT / "moedsl/diagnose/messages.jsonl.gz").stat().st_size < 500_000
    assert isinstance(known()[0][0], Message)
