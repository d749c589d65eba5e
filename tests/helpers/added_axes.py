"""What moedsl says with two more axes, as JSON: run in a process of its own, before anything else is imported.

usage: python -m tests.helpers.added_axes FOLDER
"""

import contextlib
import io
import json
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

MORE = """
    Axis("echo", "enum", "how loudly experts answer", ("none", "weak", "strong"), role="moved", least_memory="low"),
    Axis("pace", "int", "stages that a microbatch skips", role="shape", mesh="pipeline", quiet=True),
    Axis("tint", "flag", "whether gradients have a colour", role="held", quiet=True, opened=False, least_time="low"),
)  # fmt: skip
"""
"""A policy that a phase chooses, a size of the mesh, and one that is off unless the run says otherwise."""
RULES = """
rules ours {
  candidates echo = [none, weak]
    because "loud answers cost nothing in this test" cite ours "a test"
  candidates pace = [1, 2] when phase == throughput
    because "bring-up skips nothing" cite ours "a test"
  default tint = false
    because "nobody asks for it" cite ours "a test"
  effect echo = experiment
    because "other answers are other tokens" cite ours "a test"
  effect pace = execution
    because "skipping changes no sum" cite ours "a test"
  effect tint = execution
    because "a colour is no number" cite ours "a test"
}
"""
RUN = "model qwen3_30b_a3b; h100 x 8; fit first\n"


class _Loader(SourceFileLoader):
    """The module of the axes with more of them."""

    def get_data(self, path: str) -> bytes:
        text = super().get_data(path)
        if not path.endswith(".py"):
            return text
        before, marker, after = text.decode().partition("\n)  # fmt: skip\n")
        assert marker, "AXES ends otherwise than this test thinks"
        return (before + MORE + after).encode()

    def path_stats(self, path: str) -> Any:
        raise OSError  # nothing compiled is read or written


def add_axes() -> None:
    """Puts the longer module in the place of `moedsl.facts.axes`."""
    name = "moedsl.facts.axes"
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None and name not in sys.modules
    loader = _Loader(name, spec.origin)
    made = module_from_spec(ModuleSpec(name, loader, origin=spec.origin))
    made.__file__ = spec.origin
    sys.modules[name] = made
    loader.exec_module(made)


def answers(folder: Path) -> dict[str, Any]:
    """Everything that has to know an axis, asked once."""
    from moedsl.cli.reference import page
    from moedsl.compiler import compile_source
    from moedsl.lang.keywords import keywords
    from moedsl.queries import layouts, what_if
    from moedsl.runs.measured_runs import run_text
    from moedsl.support.source import Source
    from tests.helpers import axis_places

    files = {"run": "", "loud": "pin echo=strong pace=2 tint=on\n", "sweep": "sweep echo in none, strong\n"}
    files |= {"isolate": "isolate tint in off, on\n", "wrong": "pin echo=loud\n", "misspelt": "pin ecko=weak\n"}
    for name, more in files.items():
        (folder / f"{name}.moe").write_text(RULES + RUN + more, encoding="utf-8")
    done = compile_source(Source("run.moe", RULES + RUN))
    (plan,), (chosen,) = done.plans, done.chosen
    return {
        "plan": plan.to_json(),
        "text": _printed("plan", "--full", folder / "run.moe"),
        "loud": _printed("plan", "--full", folder / "loud.moe"),
        "loud plan": json.loads(_printed("plan", "--json", folder / "loud.moe")),
        "wrong": _printed("check", folder / "wrong.moe"),
        "misspelt": _printed("check", folder / "misspelt.moe"),
        "diff": _printed("diff", folder / "run.moe", folder / "loud.moe"),
        "explained": _printed("explain", folder / "run.moe", "echo"),
        "reference": page.page("echo", done.library),
        "sweep": _printed("plan", folder / "sweep.moe"),
        "sweep messages": [
            d.message for d in compile_source(Source("sweep.moe", RULES + RUN + files["sweep"])).diagnostics
        ],
        "isolate": _printed("plan", folder / "isolate.moe"),
        "what_if": [c.label for c in what_if.changes(chosen, done.library)],
        "headings": what_if.KINDS,
        "top": [x.layout for x in layouts.top(chosen, 2)],
        "calibration": run_text(plan),
        "words": keywords().to_json(),
        "unknown": axis_places.unknown(plan),
        **_editor(),
    }


def _editor() -> dict[str, Any]:
    """What the language server offers, says and plans."""
    from lsprotocol import types

    from moedsl.lsp import actions, describe
    from tests.lsp.lsp_ask import NAME, document, labels

    text = RULES + RUN + "pin echo=weak\n"
    d = document(text)
    said = describe.hover(d, types.HoverParams(NAME, d.lines.position(text.index("echo=weak") + 1)))
    assert said is not None and isinstance(said.contents, types.MarkupContent)
    return {
        "completed": labels(RULES + RUN + "pin |"),
        "values": labels(RULES + RUN + "pin echo=|"),
        "hover": said.contents.value,
        "hinted": [a.name for a in (*actions.ALWAYS, *actions.WHERE_ON)],
    }


def _printed(*words: object) -> str:
    from moedsl.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main([str(w) for w in words])
    return out.getvalue() or err.getvalue()


if __name__ == "__main__":
    add_axes()
    print(json.dumps(answers(Path(sys.argv[1]))))
