"""One thread of PyTorch's own in a process and in each of its forks."""

from __future__ import annotations

import os

import torch


def keep_one() -> None:
    """Compute on one thread, here and in every fork.

    PyTorch makes its pool of threads anew in a fork for the first thread that asks. A second that asks meanwhile finds
    none: "Invalid thread pool!" (aten/src/ATen/ParallelOpenMP.cpp:64). So each fork asks before it has a second thread.
    """
    torch.set_num_threads(1)
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
