"""Replace the GPU while NVIDIA's `pretrain()` runs on a CPU: one module for each reason, for this process only."""
