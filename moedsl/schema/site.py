"""What a cluster states of its storage and its failures; None where it states nothing."""

from __future__ import annotations

from moedsl.classes.fields import frozen


@frozen
class Site:
    """The facts of a cluster that decide how a run saves."""

    storage_write: float | None = None
    """Bytes/s that the shared file system takes from all nodes together."""
    gpu_mtbf: float | None = None
    """Seconds that a GPU trains between failures that end the job."""
    most_lost: float | None = None
    """The most seconds of training to lose to one failure."""
