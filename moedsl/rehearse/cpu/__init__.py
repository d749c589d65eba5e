"""What stands in for a GPU while NVIDIA's `pretrain()` runs on a CPU: one module a reason, for this process alone."""
