"""Read memory snapshots of PyTorch: what was allocated at the peak, by kind and by place in the code."""
