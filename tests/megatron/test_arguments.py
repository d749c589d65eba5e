"""The table of Megatron-LM's arguments against its own parser and its own functions."""

import json

import pytest

from moedsl.facts import megatron_arguments as table
from tests.helpers import bridge_process

pytestmark = pytest.mark.bridge

ASK = """
import json, sys
from moedsl.bridge.verify import megatron_lm
from moedsl.bridge.verify.configs import plain
given, read = json.load(sys.stdin), {}
for action in megatron_lm.parser()._actions:
    read.setdefault(action.dest, []).append([list(action.option_strings), plain(action.default)])
del read["help"]
values = [plain(getattr(megatron_lm.parsed(words), dest)) for dest, words in given]
print(json.dumps([read, values]))
"""


def test_the_table_is_of_the_real_parser() -> None:
    tried = {"int": 3, "float": 0.5, "str": "tried", "integers": [128, 0], "pattern": [0, 0, 1, 1, 1], "bool": "x"}
    asked: list[tuple[table.Argument, object]] = []
    for a in table.arguments():
        value = a.choices[-1] if a.choices else tried.get(a.type, a.action != "false")
        many = a.nargs in ("+", "*") or isinstance(a.nargs, int)
        count = a.nargs if isinstance(a.nargs, int) else 2
        asked.append((a, [value] * count if many else value))
    given = json.dumps([(a.dest, a.words(v)) for a, v in asked])
    done = bridge_process.run("-c", ASK, text=given)
    assert not done.returncode, done.stderr
    read, values = json.loads(done.stdout.splitlines()[-1])
    of: dict[str, list[list[object]]] = {}
    for a in table.arguments():
        of.setdefault(a.dest, []).append([[*a.flags], a.default])
    assert read == of
    wrong = [(a.dest, v, got) for (a, v), got in zip(asked, values, strict=True) if a.type != "bool" and v != got]
    assert not wrong


def test_fields_have_bridge_names() -> None:
    from moedsl.facts.fields import fields

    assert len(table.arguments()) > 800
    unknown = {p for a in table.arguments() for p in (*a.fields, *a.also, *([a.named] if a.named else []))} - {
        *fields()
    }
    # of torch's FSDP, which Bridge's recipes cannot ask for so; and what the optimizer's own checks make
    assert unknown == {"ddp.reshard_after_forward", "optimizer.use_precision_aware_optimizer_no_fp8_or_ds_fp8"}
    (argument,) = table.by_field()["model.num_moe_experts"]
    assert argument.flags == ("--num-experts",)
    assert table.by_flag()["--moe-layer-freq"].words([0, 1, 1]) == ("--moe-layer-freq", "([0]*1+[1]*2)")
