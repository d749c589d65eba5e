"""Replace the GPU while `pretrain()` runs on a CPU. Only a rank of a rehearsal imports this, with torch.

cuda.py replaces torch.cuda and NCCL, bridge.py imports Megatron-Core as if without Transformer Engine and changes the
recipe's fields, and layers.py builds layers from PyTorch modules.
"""
