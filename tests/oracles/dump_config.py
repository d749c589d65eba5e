"""Bridge's own `run_config.yaml` of a recipe, as it saves one with a checkpoint.

Usage: python tests/oracles/dump_config.py TARGET FILE, with TARGET as `moedsl verify` takes it. Run as a script where Bridge is
installed.
"""

import os
import sys
import tempfile
from pathlib import Path

from moedsl.bridge.verify import cases, environments, resolve, stand_ins
from moedsl.bridge.verify.cases import Case
from moedsl.support.resources import stdlib_dir


def main(target: str, file: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environments.build_hub(home, stdlib_dir() / "hf", home / "none")
        os.environ.update(environments.hub_environment(home))
        stand_ins.install_engine()
        stand_ins.install_mamba()
        environments.stay_offline(home / "hub")
        case = cases.read(target)
        assert isinstance(case, Case), case
        stand_ins.answer(case.device, case.world, 0)
        config, _ = resolve.load(case)
        from megatron.bridge.training.config import runtime_config_update

        with stand_ins.checkpoint(config):
            runtime_config_update(config)
        config.to_yaml(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
