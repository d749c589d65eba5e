"""Start a program of Megatron-LM in this rank: `rank.py megatron_lm.py WANTED.json`.

The file has {"folder": the checkout, "entry": the program in it, "arguments", "environment"}. Every job includes this
program unchanged; it needs no package. A variable that the job has keeps its value.
"""

from __future__ import annotations

import json
import os
import runpy
import sys


def main(wanted: str) -> None:
    """Run the program as `python3 FOLDER/ENTRY ARGUMENTS...` does."""
    with open(wanted, encoding="utf-8") as file:
        asked = json.load(file)
    for name, value in asked["environment"].items():
        os.environ.setdefault(name, value)
    path = os.path.join(asked["folder"], asked["entry"])
    sys.path.insert(0, asked["folder"])
    sys.argv = [path, *asked["arguments"]]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main(os.path.join(os.path.dirname(os.path.abspath(__file__)), "megatron_lm.json"))
