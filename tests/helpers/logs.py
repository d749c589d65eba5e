"""Iteration lines in the order of Bridge's fields."""

from datetime import datetime, timedelta

from moedsl.diagnose import log_lines

BEGIN = datetime(2026, 11, 26, 22)


def iteration_line(
    i: int, of: int, seconds: float, batch: int | None, tflops: float | None = None, at: float = 0.0, loss: bool = True
) -> str:
    """One line, with its newline; `at` is its time in seconds after `BEGIN`."""
    throughput = "" if tflops is None else f" throughput per GPU (TFLOP/s/GPU): {tflops:.1f} |"
    size = "" if batch is None else f" global batch size: {batch:5d} |"
    return (f" [{BEGIN + timedelta(seconds=at):%Y-%m-%d %H:%M:%S}] iteration {i:8d}/{of:8d} | consumed samples:"
            f" {(batch or 0) * i:12d} | elapsed time per iteration (ms): {1000 * seconds:.1f} |{throughput}"
            f" learning rate: 1.500000E-04 |{size}{' lm loss: 6.857143E+00 |' if loss else ''} loss scale: 1.0 |"
            " grad norm: 4.798 | number of skipped iterations:   0 | number of nan iterations:   0 |\n")  # fmt: skip


def iteration_lines(
    first: int, last: int, seconds: float, batch: int | None, tflops: float | None = None, after: float = 0.0
) -> str:
    """The lines of a job that begins so many seconds after `BEGIN`."""
    each = range(first, last + 1)
    return "".join(iteration_line(i, 80, seconds, batch, tflops, after + (i - first) * seconds) for i in each)


def step(i: int, seconds: float, batch: int | None) -> log_lines.Step:
    """One line as it is read."""
    found = log_lines.read_line(iteration_line(i, 80, seconds, batch))
    assert isinstance(found, log_lines.Step)
    return found
