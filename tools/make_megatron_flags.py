"""Write the differences of older releases' arguments of Megatron-LM to moedsl/facts/megatron_flags.json.

usage: .venv/bin/python tools/make_megatron_flags.py [FILE]     needs `moedsl targets add` of each older release
Shape: {core: {"only": {flag: [dest, default]}, "lacks": [flag], "defaults": {flag: default}}}, against the newest. The
parser of each release is asked in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import environments, stand_ins
from moedsl.facts.releases import NEWEST, RELEASES

FILE = Path(__file__).resolve().parents[1] / "moedsl" / "facts" / "megatron_flags.json"
Flags = dict[str, tuple[str, Any]]


def of_this_process() -> Flags:
    """List the flags of the Megatron-LM that this process imports."""
    stand_ins.install_engine()
    from megatron.training.arguments import add_megatron_arguments

    actions = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))._actions
    return {
        flag: (a.dest, a.default if isinstance(a.default, bool | int | float | str | list) else None)
        for a in actions
        for flag in a.option_strings
        if a.dest != "help" and flag.startswith("--")
    }


def of_release(release: Any) -> Flags:
    """Ask the parser of a release."""
    path = os.pathsep.join([*environments.folders(release), str(FILE.parents[2])])
    words = [sys.executable, __file__, "--ask"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    flags: Flags = {flag: tuple(v) for flag, v in json.loads(done.stdout.splitlines()[-1]).items()}
    return flags


def main() -> None:
    """Compare each older release with the newest."""
    new, out = of_release(NEWEST), dict[str, Any]()
    for release in RELEASES[:-1]:
        old = of_release(release)
        defaults = {flag: v for flag, (_, v) in old.items() if flag in new and new[flag][1] != v}
        only = {flag: v for flag, v in old.items() if flag not in new}
        lacks = sorted(new.keys() - old.keys())
        out[release.core] = {"only": only, "lacks": lacks, "defaults": defaults}
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    file.write_text(json.dumps(out, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--ask"]:
        print(json.dumps(of_this_process()))
    else:
        main()
