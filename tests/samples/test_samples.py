"""`moedsl data stats`: the lengths of samples, against Bridge's own data sets and by hand."""

import io
import json
import random
import re
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.emit.dataset import dataset
from moedsl.runs import samples
from moedsl.runs.samples import BadLine, estimated, measure, report, text
from tests.emit.test_data import CHAT, PADDED, WEIGHTS, ask, plain
from tests.helpers import bridge_process
from tests.helpers.programs import compiled, plan_of

PROMPT = {"input": "2+2 is", "output": "4"}
TURNS = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
OLD = {"conversations": [{"from": "User", "value": "hi"}, {"from": "Assistant", "value": "hello"}]}


def lines(*rows: Any) -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def counted(file: io.BytesIO, seconds: float = 60) -> Counter[int]:
    return measure(file, estimated, seconds, lambda _: None).counts


COUNT = """
import json, sys
from moedsl.runs import samples
count = samples.of_tokenizer(sys.argv[1] + "/letters")
with open(sys.argv[1] + "/training.jsonl", "rb") as file:
    print(json.dumps([*samples.measure(file, count, 60, lambda _: None).counts]))
"""


@pytest.mark.bridge
@pytest.mark.parametrize("row", [PROMPT, TURNS, OLD], ids=["prompts", "messages", "conversations"])
def test_a_tokenizer_counts_what_bridge_trains_on(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "training.jsonl").write_text(json.dumps(row) + "\n")
    plan = plan_of(PADDED + WEIGHTS + (CHAT if row is not PROMPT else ""))
    read, _ = ask("lines", tmp_path, plain(dataset(plan)))
    done = bridge_process.run("-c", COUNT, str(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == [len(read)]


def test_an_estimate_is_a_token_for_four_bytes() -> None:
    assert counted(lines({"input": "a" * 79, "output": "b" * 320})) == {101: 1}
    assert counted(lines({"messages": [{"role": "user", "content": "é" * 20}]})) == {15: 1}
    assert counted(lines(PROMPT, PROMPT, {"prompt": "2+2 is", "completion": "4"})) == {3: 3}


MISTAKES = {
    b"{": "is not JSON",
    b"[1]": "is not a JSON object",
    b"\xff": "is not JSON",
    b'{"a": 1, "b": 2}': "is no sample: its keys are a, b",
    b'{"input": 1, "output": "x"}': "is no sample: its keys are input, output",
    b'{"messages": [{"role": "user"}]}': "has a turn without `role` and `content`, which are texts",
    b'{"messages": []}': "has no turn in `messages`",
    b'{"messages": ["hi"]}': "has a turn without `role` and `content`, which are texts",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_line_that_is_no_sample_has_its_number(line: bytes) -> None:
    good = json.dumps(PROMPT).encode() + b"\n"
    with pytest.raises(BadLine, match=f"^{re.escape(MISTAKES[line])}$") as found:
        counted(io.BytesIO(good + b"\n" + good + line + b"\n" + good))
    assert found.value.number == 4


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> tuple[io.BytesIO, Counter[int]]:
    """A file of many parts, whose samples get longer towards its end."""
    monkeypatch.setattr(samples, "WHOLE", 1)
    drawn = random.Random(5)
    sizes = [4 * drawn.randint(1 + i // 10, 9 + i // 10) for i in range(4000)]
    file = lines(*({"input": "", "output": "x" * (n - 5)} for n in sizes))
    return file, Counter(n // 4 for n in sizes)


def test_each_line_of_each_part_is_read_once(many: tuple[io.BytesIO, Counter[int]]) -> None:
    file, expected = many
    rows = file.getvalue().splitlines()
    assert counted(file) == sum((counted(io.BytesIO(row)) for row in rows), Counter[int]())
    assert counted(file).total() == expected.total()


def test_a_file_that_takes_too_long_is_read_all_over(
    many: tuple[io.BytesIO, Counter[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = many
    whole = counted(file)
    clock = iter(range(10**6))
    monkeypatch.setattr(samples.time, "monotonic", lambda: next(clock))
    said: list[str] = []
    part = measure(file, estimated, 40, said.append)
    mean = [sum(n * c for n, c in m.items()) / m.total() for m in (part.counts, whole)]
    assert 0.1 < part.share < 0.9 and part.counts.total() < whole.total() and said
    assert mean[0] == pytest.approx(mean[1], rel=0.2)


def test_memory_does_not_grow_with_the_file() -> None:
    def peak(times: int) -> int:
        file = io.BytesIO(lines(PROMPT, TURNS).getvalue() * times)
        tracemalloc.start()
        counted(file)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(5_000)  # what is kept from the first time on, with up to 2,000 freed tuples, which Python uses again
    assert peak(5_000) < peak(400) + 50_000  # of 10,000 lines: one pointer each would be 80,000


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "training.jsonl").write_bytes(lines(*[PROMPT] * 30, *[TURNS] * 30).getvalue())
    assert main(["data", "stats", str(tmp_path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["samples"] == 60 and made["keys"] == {"input+output": 30, "messages": 30} and made["read"] == 1
    assert main(["data", "stats", str(tmp_path / "training.jsonl")]) == 0
    out = capsys.readouterr().out
    assert made["statement"] in out and "estimated" in out
    fit = made["sequences"][0]
    assert fit["sequences"] - 1 < 60 / fit["samples"] <= fit["sequences"]
    run = compiled(f"qwen3_30b_a3b; h100 x 16; task sft; {made['statement']}\n{WEIGHTS}")
    assert not run.failed and run.plans[0].samples is not None
    assert made["batch"] == 1 and "\nbatch 1   # " in out
    assert main(["data", "stats", str(tmp_path / "none.jsonl")]) == 1
    assert "read.missing" in capsys.readouterr().err
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n')
    assert main(["data", "stats", str(tmp_path / "bad.jsonl")]) == 1
    assert "error[data.line]: line 1 of" in capsys.readouterr().err
    assert main(["data"]) == 1


ASKED = {"messages": TURNS["messages"][:1]}
NOTES: list[tuple[list[Any], str]] = [
    ([{"instruction": "add", **PROMPT}] * 2, "2 samples with `instruction`"),
    ([{"instruction": "", **PROMPT}, PROMPT], ""),
    ([{"prompt": "2+2 is", "completion": "4"}], "rename the keys of prompt and completion"),
    ([PROMPT, TURNS, TURNS], "2 conversations and 1 pair of texts"),
    ([TURNS, OLD, {"conversations": [{"from": "gpt", "value": "hello"}]}], ""),
    ([TURNS, ASKED], "1 conversation without a turn of the assistant"),
]


@pytest.mark.parametrize(("rows", "said"), NOTES)
def test_what_a_recipe_does_not_read(rows: list[Any], said: str) -> None:
    made = report(measure(lines(*rows), estimated, 60, lambda _: None), "/data", None)
    assert len(made["notes"]) == bool(said) and said in "".join(made["notes"])
    assert all(" ".join(note.split()) in " ".join(text(made, "data").split()) for note in made["notes"])


FULL = {"input": "", "output": "x" * 15_990}
FILES: list[tuple[dict[str, list[Any]], str, str]] = [
    ({"training": [FULL] * 90, "validation": [FULL] * 32}, ".", ""),
    ({"training": [FULL] * 20, "validation": [FULL] * 16}, ".", ""),
    ({"training": [FULL] * 90, "validation": [FULL] * 31}, ".", "validation.jsonl fills 31 sequences of 4k"),
    ({"training": [PROMPT]}, ".", "validation.jsonl is missing"),
    ({"training": [PROMPT], "validation": []}, ".", "validation.jsonl has no sample"),
    ({"chat": [TURNS]}, "chat.jsonl", "move chat.jsonl there as training.jsonl"),
]


@pytest.mark.parametrize(("files", "named", "said"), FILES)
@pytest.mark.parametrize("relative", [False, True])
def test_what_a_run_needs_of_the_folder(
    files: dict[str, list[Any]], named: str, said: str, relative: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name, rows in files.items():
        Path(f"{name}.jsonl").write_bytes(lines(*rows).getvalue())
    assert main(["data", "stats", named if relative else str(tmp_path / named), "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    path = [note for note in notes if "a job on a cluster needs the absolute one" in note]
    assert len(path) == relative and len(notes) - len(path) == bool(said) and said in "".join(notes)


@pytest.mark.parametrize(("samples", "batch"), [(20, 16), (31, 16), (32, None), (100, None)])
def test_a_file_that_does_not_fill_the_default_batch_has_a_smaller_one(samples: int, batch: int | None) -> None:
    """A sample of 4,000 tokens fills a sequence of the default length."""
    file = lines(*[{"input": "", "output": "x" * 15_990}] * samples)
    made = report(measure(file, estimated, 60, lambda _: None), "data", None)
    assert made["batch"] == batch
    assert ("\nbatch " in text(made, "data")) == (batch is not None)


@pytest.mark.parametrize(("samples", "steps"), [(20, 2), (32, 1), (33, 2), (100, 4)])
def test_an_epoch_has_the_steps_that_bridge_makes_of_it(samples: int, steps: int) -> None:
    """It counts a last step that is not full (bridge training/config.py:1597)."""
    file = lines(*[FULL] * samples)
    made = report(measure(file, estimated, 60, lambda _: None), "data", None)
    assert made["epoch"] == steps
    assert f"\n# set train.num_epochs = 1   # {steps} step" in text(made, "data")


def test_the_default_of_a_file_is_that_of_the_rules() -> None:
    batch = plan_of("qwen3_30b_a3b; h100 x 16; task sft").batch
    assert (batch.seq, batch.global_batch) == (samples.SEQ, samples.BATCH)


@pytest.mark.bridge
def test_a_tokenizer_that_cannot_be_loaded(tmp_path: Path) -> None:
    """In a fork of the process that has imported transformers."""
    (tmp_path / "empty.jsonl").write_text("")
    command = "import sys; from moedsl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["data", "stats", str(tmp_path / "empty.jsonl"), "--tokenizer", str(tmp_path / "none")]
    done = bridge_process.run("-c", command, *words, stage="transformers")
    assert done.returncode == 1 and "data.tokenizer" in done.stderr
