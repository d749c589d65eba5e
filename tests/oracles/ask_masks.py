"""The attention masks that Megatron-Core's own TECudaGraphHelper makes: JSON lines on stdout, one for each stage.

Usage: python tests/oracles/ask_masks.py FOLDER..., folders of plans. Run as a script where Bridge is installed. A line has the
folder, the stage, the different masks among the inputs of its graphs with their bytes, and the bytes of the one that a
replay makes for a layer.
"""

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import cases, environments, host
from moedsl.support.resources import stdlib_dir


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environments.build_hub(home, stdlib_dir() / "hf", environments.user_cache())
        os.environ.update(host.child_environment(home))
        from moedsl.bridge.verify import client

        said = os.dup(1)
        os.dup2(2, 1)  # what the libraries print is no answer
        client.load()
        for asked in sys.argv[1:]:
            pid = os.fork()
            if not pid:
                os._exit(_judge(asked, said))
            assert os.waitpid(pid, 0)[1] == 0, asked


def _judge(folder: str, said: int) -> int:
    from moedsl.bridge.verify import worker

    graphs: Any = importlib.import_module("megatron.core.transformer.cuda_graphs")
    inputs = graphs.TECudaGraphHelper._get_cuda_graph_input_data

    def spy(self: Any) -> Any:
        args, more = inputs(self)
        kept = {id(g["attention_mask"]): _size(g["attention_mask"]) for g in more["sample_kwargs"] if g is not None}
        layer, entered = self.flattened_callables[0], next(a for a in args if a is not None)
        _, again = layer._get_te_cuda_graph_replay_args(*entered, attention_mask=None)
        line = {"folder": folder, "stage": self.pp_group.rank(), "masks": len(kept), "bytes": sum(kept.values())}
        os.write(said, (json.dumps({**line, "replay": _size(again["attention_mask"])}) + "\n").encode())
        return args, more

    graphs.TECudaGraphHelper._get_cuda_graph_input_data = spy
    report = worker.judge(cases.read(folder))  # type: ignore[arg-type]
    print(report.to_json(), file=sys.stderr, flush=True)
    return 0 if report.ok else 1


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


if __name__ == "__main__":
    main()
