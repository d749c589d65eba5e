"""A call that ends its process, as the kernel does with one that takes too much."""

import os
import signal


def at_once(*_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
