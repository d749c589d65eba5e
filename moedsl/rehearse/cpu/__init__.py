"""Replace the GPU while NVIDIA's `pretrain()` runs on a CPU, for this process only.

cuda.py answers for torch.cuda, collectives.py bridges gloo and NCCL, packages.py imports Megatron-Core as if without
Transformer Engine, layers.py and modules.py build layers of PyTorch, and config.py changes the recipe's fields.
"""
