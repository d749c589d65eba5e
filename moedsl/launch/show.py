"""Print a launch: each derived value with its rule, and the files to send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from moedsl.launch.derive import Launch
from moedsl.rules.check.clusters.arguments import Setting

if TYPE_CHECKING:
    from moedsl.launch.dryrun import Sent


def derived(launch: Launch) -> str:
    """Print what follows from the plan and the cluster, a line each, with the reason and the rule."""
    ranks = f"{launch.nodes} nodes of {launch.ranks_per_node} ranks" if launch.nodes > 1 else f"{launch.world} ranks"
    lines = [f"{launch.name} on {launch.cluster}: {ranks}"]
    for title, settings in (
        ("derived", launch.settings),
        ("ft_launcher", launch.ft_launcher),
        ("srun", launch.srun),
        ("sbatch", launch.sbatch),
        ("pods", launch.pods),
        ("environment of every rank", launch.environment),
    ):
        if settings:
            lines += ["", f"  {title}", *_lines(settings)]
    if launch.secrets:
        lines += ["", f"  secrets, inherited: {', '.join(launch.secrets)}"]
    return "\n".join([*lines, ""])


def _lines(settings: Sequence[Setting]) -> Iterator[str]:
    width = max(len(_said(s)) for s in settings if len(_said(s)) <= _WIDEST) if settings else 0
    for s in settings:
        rule = f"  [{s.rule}]" if s.rule else ""
        yield f"    {_said(s):{width}}  {_line(s.because or '')}{rule}".rstrip()


_WIDEST = 60


def _line(text: str) -> str:
    """Write a reason in one line, without control characters for the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def _said(s: Setting) -> str:
    """Write `name=value`; control characters are escaped, so that it stays one line."""
    if s.value is True:
        return s.name
    return f"{s.name}={s.text}" if s.text.isprintable() else f"{s.name}={s.text!r}"


def sent(s: Sent) -> str:
    """Write every file after a line with its name, and then a line for the further jobs of each chain."""
    below = f"{s.folder}/" if s.folder else ""
    head = [f"experiment {s.experiment}\n"] if s.experiment else []
    files = (f"==> {below}{name}\n{text}" for name, text in s.files.items())
    return "\n".join([*head, *files, *(f"==> {line}\n" for line in s.more)])
