"""The line of Megatron-LM's `validate_args` that refuses each run of FILE, or null: [{"words", "world", "env"}, ...].

Usage: python tests/oracles/validate_args.py FILE, as a script where Megatron-Core is installed.
"""

import contextlib
import copy
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import Device

H100 = Device("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, 132)


def main(file: str) -> None:
    stand_ins.install_engine()
    stand_ins.install_mamba()
    stand_ins.install_sparse_attention()
    stand_ins.answer(H100, 1, 0)
    from argparse import ArgumentParser

    from megatron.training import arguments

    parser = arguments.add_megatron_arguments(ArgumentParser(allow_abbrev=False))
    defaults = parser.parse_args([])
    asked = json.loads(Path(file).read_text())
    variables = {name for question in asked for name in question["env"]}
    lines: list[int | None] = []

    def refused(question: dict[str, Any]) -> int | None:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(question["env"])
        args = parser.parse_args(question["words"], copy.deepcopy(defaults))
        args._is_global_batch_size_explicitly_specified = args.global_batch_size is not None
        args.rank, args.world_size = 0, question["world"]
        try:
            arguments.validate_args(args)
        except (Exception, SystemExit) as error:
            places = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.name == "validate_args"]
            return places[-1] if places else None
        return None

    with contextlib.redirect_stdout(io.StringIO()):
        lines = [refused(question) for question in asked]
    print(json.dumps(lines))


if __name__ == "__main__":
    main(sys.argv[1])
