"""Read memory snapshots of PyTorch: what was allocated at the peak, by kind and by place in the code.

`replay` reads the file and finds the peak, `report` sums it up, compares it with a plan and prints it.
"""
