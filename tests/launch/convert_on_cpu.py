"""Run moedsl/launch/in_job/convert.py on a CPU: `convert_on_cpu.py FOLDER`, which has the job's files, in a fork of
tests/helpers/bridge_process.py.

Megatron-Core's own layers stand for Transformer Engine's, and gloo for NCCL; the rest is Bridge's.
"""

import runpy
import sys
from pathlib import Path
from typing import Any


def replaced() -> None:
    """Replace what needs a GPU."""
    import torch

    from moedsl.rehearse.cpu import bridge, cuda

    cuda.stand_in()
    cuda.keep_tensors()
    cuda.adapt_collectives()
    cuda.adapt_megatron()

    from megatron.bridge.models import gpt_provider, transformer_config
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    found: Any = gpt_provider
    found.transformer_engine_layer_spec = lambda c: get_gpt_layer_local_spec(
        c.num_moe_experts, False, c.qk_layernorm, normalization=c.normalization
    )
    finalize = transformer_config.TransformerConfig.finalize
    changed = [c for c in bridge.CHANGES if c.path.startswith("model.")]

    def on_cpu(self: Any) -> None:
        for change in changed:
            setattr(self, change.path.removeprefix("model."), change.value)
        self.moe_grouped_gemm = False
        finalize(self)

    transformer_config.TransformerConfig.finalize = on_cpu  # type: ignore[method-assign]
    start: Any = torch.distributed.init_process_group
    distributed: Any = torch.distributed
    distributed.init_process_group = lambda backend=None, **more: start("gloo", **more)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    replaced()
    runpy.run_path(str(folder / "convert.py"), run_name="__main__")
