"""For each rule of the stdlib what it accepts and what it rejects, of tests/data/rule_pairs.toml and symptoms.toml."""

import tomllib
from typing import Any

from tests.helpers.diagnose_cases import HEALTHY, SYMPTOMS
from tests.helpers.layouts import DEFAULTS
from tests.helpers.paths import DATA
from tests.oracles.rule_judge import Run

_TABLES = tomllib.loads((DATA / "rule_pairs.toml").read_text(encoding="utf-8"))


def _run(words: dict[str, Any] | str) -> Run | str:
    if isinstance(words, str):
        return words  # a line of a log
    bases = _TABLES["bases"]
    layout = {**DEFAULTS, **bases["qwen"], **bases[words.pop("of", "qwen")]}
    own = words.pop("own", "")
    also = f'rules mine {{ {own} because "a test" cite ours "here" }}' if own else words.pop("also", "")
    facts = tuple(words.pop("facts", {}).items())
    others = {key: words.pop(key) for key in ("phase", "capability", "must_fit") if key in words}
    return Run({**layout, **words}, facts=facts, also=also and f"{also}\n", **others)


PAIRS = {f"std.{name}": (_run(accepted), _run(rejected)) for name, (accepted, rejected) in _TABLES["pairs"].items()} | {
    f"std.{name}": (line, "\n".join(HEALTHY)) for name, line in SYMPTOMS.items()
}
