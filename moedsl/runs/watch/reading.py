"""What the lines of one log say so far: its attempts, memory, checkpoints, slow ranks and symptoms."""

from __future__ import annotations

from attrs import define, field

from moedsl.diagnose.scan import Scan
from moedsl.runs.results.line import Clock, Memory, Saved, Slow, Step, time_of
from moedsl.runs.results.log import lines
from moedsl.runs.watch.attempts import Attempt
from moedsl.runs.watch.feeds import Feed
from moedsl.runs.watch.slow import Found


@define
class Reading:
    """One log, and what was read of it."""

    feed: Feed
    scan: Scan
    attempts: list[Attempt] = field(factory=list)
    peak: float | None = None
    """Bytes at the peak of the fullest rank that printed them."""
    saves: list[int] = field(factory=list)
    """The iterations of the checkpoints that are written whole."""
    slow: list[Found] = field(factory=list)
    _clock: float | None = None
    """The first time that is named after the last iteration line."""

    def more(self, whole: bool) -> None:
        """Read what the log has gained."""
        for block in self.feed.blocks(whole):
            self.scan.block(block)
            for line in lines(block):
                if isinstance(line, Step):
                    self._step(line)
                elif isinstance(line, Memory):
                    self.peak = max(self.peak or 0.0, line.peak)
                elif isinstance(line, Saved):
                    self.saves.append(line.iteration)
                elif isinstance(line, Slow):
                    self.slow.append(Found(self.attempts[-1].last.iteration if self.attempts else 0, line))
                elif isinstance(line, Clock) and self._clock is None:
                    self._clock = time_of(line.stamp)

    def _step(self, step: Step) -> None:
        current = self.attempts[-1] if self.attempts else None
        if current is not None and step.iteration > current.last.iteration:
            current.add(step)
        elif current is None or step != current.last:  # two ranks may print one line
            self.attempts.append(Attempt(step, self._clock))
        self._clock = None
