"""The page's server: what it answers, and what it refuses."""

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import httpx
import pytest

import moedsl
from moedsl.cli.serve import app, work
from moedsl.lang import reader
from moedsl.planner.text import page_text, plan_text
from tests.helpers.paths import EXAMPLES
from tests.serve import ends
from tests.serve.served import served

RUN = "qwen3_30b_a3b; h100 x 8; seq 4k; pin tp=1 pp=1"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with served() as url, httpx.Client(base_url=url, timeout=300) as made:
        yield made


def answer(client: httpx.Client, text: str, what: str = "plan") -> dict[str, Any]:
    found = client.post("/answer", json={"what": what, "text": text})
    assert found.status_code == 200, found.text
    return found.json()


def ids(made: dict[str, Any]) -> list[str]:
    return [d["id"] for d in made["diagnostics"]]


def test_the_answers_are_those_of_the_api(client: httpx.Client) -> None:
    (plan,) = moedsl.plan(RUN).plans
    assert answer(client, RUN)["text"] == page_text(plan, (), (), work.COLUMNS)
    for columns, made in ((46, 46), (1, work.NARROWEST), (999, 100)):
        found = client.post("/answer", json={"what": "plan", "text": RUN, "columns": columns}).json()
        assert found["text"] == page_text(plan, (), (), made)
    assert answer(client, RUN, "whole")["text"] == plan_text(plan)
    files = moedsl.compile(RUN).files
    assert files["recipe.py"] in answer(client, RUN, "recipe")["text"]
    with zipfile.ZipFile(io.BytesIO(client.post("/recipe.zip", json={"text": RUN}).content)) as archive:
        assert sorted(archive.namelist()) == sorted(files)
        assert archive.read("recipe.py").decode() == files["recipe.py"]
    assert "moedsl report" in answer(client, RUN, "report")["text"]
    assert "h200" in answer(client, RUN, "what_if")["text"]


def test_a_mistake_is_a_diagnostic_with_its_place(client: httpx.Client) -> None:
    made = answer(client, "qwen3_30b_a3\nh100 x 8\nseq 4k")
    assert made["text"] is None and made["diagnostics"][0]["labels"][0]["line"] == 1
    assert answer(client, "")["diagnostics"]


def test_offers_what_may_stand_there(client: httpx.Client) -> None:
    text = "qwen3_30b_a3b\nh100 x 8\npin et"
    made = client.post("/complete", json={"text": text, "line": 2, "character": 6}).json()
    assert ("etp", 4, 6) in [(i["label"], i["start"], i["end"]) for i in made["items"]]
    beyond = client.post("/complete", json={"text": text, "line": 900, "character": 900})
    assert beyond.status_code == 200


def test_every_example_that_is_offered_is_planned(client: httpx.Client) -> None:
    examples = client.get("/start").json()["examples"]
    with_files = {p.stem for p in EXAMPLES if any(x.startswith("use ") for x in p.read_text().splitlines())}
    assert {e["name"] for e in examples} == {p.stem for p in EXAMPLES} - with_files
    assert answer(client, examples[0]["text"])["text"]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.moe"
    file.write_text("model hidden_name {}\n")
    return file


def test_no_file_is_read(client: httpx.Client, secret: Path) -> None:
    for name in (str(secret), str(secret.with_name("absent.moe"))):
        made = answer(client, f'use "{name}"; {RUN}')
        assert ids(made) == ["read.no_files"] and "hidden_name" not in json.dumps(made)
    text = f'use "{secret.parent}/'
    assert client.post("/complete", json={"text": text, "line": 0, "character": len(text)}).json() == {"items": []}
    here, absent = (answer(client, f'{RUN}; task sft; data "{name}"') for name in (secret.parent, "/absent"))
    assert ids(here) == ids(absent)


def test_text_of_a_program_is_no_html(client: httpx.Client) -> None:
    made = answer(client, f'{RUN}; data "<script>alert(1)</script>"', "report")
    assert "<script>alert" not in made["text"]


HOSTILE = {
    "loops": f"set model.vocab_size = 1e9; {RUN}",
    "candidates": "deepseek_v3; h100 x 8192; seq 4k; batch 8192; rules r { "
    + "; ".join(f'candidates {a} = [{", ".join(map(str, range(1, 60)))}] because "x"' for a in ("tp", "pp", "ep", "cp"))
    + " }",
    "nested": "require " + "(" * 5000 + "tp" + ")" * 5000 + f" == 1; {RUN}",
    "regular expression": 'rules r of log { symptom "(a+)+$" because "x" }; ' + RUN,
    "escape": f'{RUN}; data "\x1b]52;c;aGk=\x07"',
    "surrogate": f'{RUN}; data "\ud800"',
    "controls": "\x00\x01\x02",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_program_ends_in_an_answer(client: httpx.Client, text: str) -> None:
    body = json.dumps({"what": "plan", "text": text})
    found = client.post("/answer", content=body, headers=JSON)
    assert found.status_code == 200 and (found.json()["text"] or found.json()["diagnostics"])
    assert answer(client, RUN)["text"], "the next user is served"


def test_foreign_requests_are_refused(client: httpx.Client) -> None:
    body = json.dumps({"what": "plan", "text": RUN})
    assert client.post("/answer", content=body, headers=JSON | {"host": "evil.example"}).status_code == 400
    assert client.post("/answer", content=body, headers=JSON | {"host": "plans.example"}).status_code == 200
    assert client.post("/answer", content=body, headers={"content-type": "text/plain"}).status_code == 415
    assert client.post("/answer", content="x" * (app.LIMIT + 1), headers=JSON).status_code == 413
    for bad in (
        b'{"what": "plan", "text": "\xc3"}',
        "",
        "[",
        "[1]",
        "{}",
        '{"what": "plan"}',
        '{"what": 1, "text": "x"}',
        '{"what": "rm", "text": "x"}',
    ):
        assert client.post("/answer", content=bad, headers=JSON).status_code == 400, bad
    columns = client.post("/answer", json={"what": "plan", "text": "", "columns": "80"})
    assert (columns.status_code, columns.text) == (400, f"columns must be a whole number from 0 to {app.LIMIT}")
    assert client.post("/complete", json={"text": "", "line": -1, "character": True}).status_code == 400
    for path in ("/page.py", "/../app.py", "/%2e%2e/app.py", "/etc/passwd", "//etc/passwd"):
        assert client.get(path).status_code == 404, path


def test_every_answer_forbids_foreign_scripts(client: httpx.Client) -> None:
    for found in (client.get("/"), client.get("/nothing"), client.post("/answer", content="", headers=JSON)):
        assert "default-src 'none'; script-src 'self'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"


def test_a_program_of_the_largest_size(client: httpx.Client) -> None:
    text = RUN + "\n" + "# long\n" * ((reader.LIMIT - 100) // 7)
    assert answer(client, text)["text"]
    assert ids(answer(client, text + "#" * 1000)) == ["parse.too_large"]


def test_ten_users_at_once(client: httpx.Client) -> None:
    runs = [f"qwen3_30b_a3b; h100 x {8 * n}; seq 4k; fit first" for n in range(1, 11)]
    with ThreadPoolExecutor(10) as users:
        texts = [made["text"] for made in users.map(lambda run: answer(client, run), runs)]
    assert texts == [page_text(moedsl.plan(run).plans[0], (), (), work.COLUMNS) for run in runs]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and of a core are the kernel's of Linux")
def test_a_process_that_ends_is_replaced(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(app.work, "answer", ends.at_once)
        ended = client.post("/answer", json={"what": "plan", "text": RUN})
    assert ended.status_code == 503 and "try again" in ended.text
    assert answer(client, RUN)["text"]


def test_one_client_does_not_keep_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address has a share of the places, and its turn; behind a proxy the address is the one that it names."""
    monkeypatch.setattr(app, "OF_ONE", 3)
    dear = f"{RUN.replace('x 8', 'x 512')} ep=1"

    def ask(address: str) -> tuple[int, str]:
        body = {"what": "plan", "text": dear if address == "10.0.0.1" else RUN}
        headers = {"x-forwarded-for": address}
        found = httpx.post(f"{url}/answer", json=body, headers=headers, timeout=300)
        order.append(address)
        return found.status_code, found.text

    order: list[str] = []
    with served(1) as url, ThreadPoolExecutor(30) as users:
        many = [users.submit(ask, "10.0.0.1") for _ in range(20)]
        next(asked for asked in as_completed(many) if asked.result()[0] == 503)
        assert users.submit(ask, "10.0.0.2").result()[0] == 200
    assert {code for code, _ in (asked.result() for asked in many)} == {200, 503}
    assert sum(asked.result()[0] == 200 for asked in many) == 3
