"""Shrink a plan to a few CPU processes and train it with NVIDIA's own `pretrain()`."""
