"""What may not be shown: characters that look like nothing, judged by the `regex` package, and secrets."""

import json
from pathlib import Path

import httpx
import pytest
import regex

import moedsl
from moedsl.cli.main import main
from moedsl.support.secrets import masked, masked_line
from moedsl.support.text import HIDDEN
from tests.serve.served import served

BLANK = "\u2800\U0001d159"
"""Glyphs without ink that Unicode does not call ignorable."""
TOKEN, PASSWORD, RANDOM = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "hunter2", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY12"
SECRETS = f"""qwen3_30b_a3b; h100 x 16; seq 4k; batch 64
set logger.wandb_project = "{TOKEN}"; set logger.wandb_entity = "{RANDOM}"
rules ours {{ env HF_TOKEN = "{PASSWORD}" because "page 1" cite ours "page 1" }}
"""


def test_every_ignorable_character_is_hidden() -> None:
    ignorable = [c for c in map(chr, range(0x110000)) if regex.match(r"\p{Default_Ignorable_Code_Point}", c)]
    assert len(ignorable) > 4000
    assert [hex(ord(c)) for c in [*ignorable, *BLANK] if not HIDDEN.match(c)] == []


def nothing_of_them(said: str) -> None:
    assert "check.secret" in said and "logger.wandb_project" in said
    assert not [secret for secret in (TOKEN, PASSWORD, RANDOM) if secret in said]


@pytest.mark.parametrize("option", [[], ["--json"], ["--sarif"]])
def test_an_error_about_a_secret_shows_none(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.moe").write_text(SECRETS)
    assert main(["check", str(tmp_path / "run.moe"), *option]) == 1
    nothing_of_them("".join(capsys.readouterr()))


def test_neither_do_the_api_and_the_page() -> None:
    nothing_of_them(str(moedsl.plan(SECRETS)))
    with served(1) as url:
        nothing_of_them(httpx.post(f"{url}/answer", json={"what": "plan", "text": SECRETS}, timeout=300).text)


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_line_of_a_log_shows_none(option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(
        f"OSError: DB_PASSWORD={PASSWORD} and {TOKEN} are wrong at https://me:{PASSWORD}@x.org\n"
    )
    main(["diagnose", str(tmp_path / "a.log"), *option])
    said = capsys.readouterr().out
    assert "are wrong" in said and TOKEN not in said and PASSWORD not in said
    assert not option or json.loads(said)


def test_what_is_no_secret_stays() -> None:
    """Lines of programs, logs and scripts, and names of models that look random."""
    for line in (
        'set tokenizer.tokenizer_model = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"; pin tp=1 ep=8',
        "KeyError: 'model.layers.0.weight' is a key of the checkpoint, the token 151643 is none",
        'export HF_TOKEN="$HF_TOKEN" WANDB_API_KEY=$WANDB_API_KEY --from-literal=HF_TOKEN=...',
        'container "nvcr.io/nvidia/nemo:26.09"; env { NCCL_DEBUG INFO }',
    ):
        assert masked(line) == line
    assert masked_line('env { HF_TOKEN "x"; NCCL_DEBUG INFO }') == 'env { HF_TOKEN "*"; NCCL_DEBUG INFO }'
