"""Several threads of a fork may compute at once."""

from tests.helpers import bridge_process

FORKS = """
import os, sys, threading, torch
from moedsl.rehearse.cpu import cuda
cuda.keep_one_thread()
torch.ones(1 << 20).sum()  # the thread that forks knows its number of threads and asks for no pool
def compute(start, failed):
    start.wait()
    try:
        torch.ones(1 << 20).sum()
    except RuntimeError as e:
        failed.append(e)
def child():
    start, failed = threading.Barrier(6), []
    at_once = [threading.Thread(target=compute, args=(start, failed)) for _ in range(6)]
    for thread in at_once: thread.start()
    for thread in at_once: thread.join()
    for e in failed[:1]: print(e, file=sys.stderr, flush=True)
    os._exit(len(failed))
for _ in range(30):
    if not os.fork(): child()
    if os.wait()[1]: sys.exit(1)
"""


def test_threads_of_a_fork_that_start_at_once_find_pytorchs_pool() -> None:
    ran = bridge_process.run("-c", FORKS, stage="torch")
    assert not ran.returncode, ran.stderr
