"""Lines of Megatron-Core's own timers and straggler detector, without a GPU.

Run as a script: {"timers": {NAME: [seconds of each rank]}, "ranks": [{"time", "btime", "temp", "power", "util", "clock",
"flops"} of each rank]} as JSON on stdin, the text on stdout. Ranks and clocks are stand-ins; the lines are Megatron's.
"""

import json
import logging
import sys
from typing import Any
from unittest.mock import patch


def main() -> None:
    job = json.load(sys.stdin)
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    import torch
    from megatron.core import utils
    from megatron.core.timers import Timers

    names = list(job["timers"])
    table = torch.tensor([job["timers"][n] for n in names]).T
    with patch.object(Timers, "_get_elapsed_time_all_ranks", lambda *a, **k: table), _one_rank(torch):
        print(Timers(2, "minmax").get_all_timers_string(names))
        print(Timers(2, "max").get_all_timers_string(names))
    detector = utils.StragglerDetector()
    detector.rank, detector.world, detector.amp = 0, len(job["ranks"]), 1.0
    first = job["ranks"][0]
    seen = [first[n] for n in ("time", "btime", "temp", "power", "util", "clock")]
    every = [{"rank": i, **r} for i, r in enumerate(job["ranks"])]

    def gather(data: Any, object_gather_list: list[Any], dst: int) -> None:
        object_gather_list[:] = every

    with (
        patch.object(detector, "_off", False),
        patch.object(detector, "elapsed", lambda: seen),
        patch.object(torch.distributed, "gather_object", gather),
        patch.object(torch.distributed, "barrier", lambda: None),
        patch.object(detector, "_check_toggle", lambda: None),
    ):
        detector.report(total_flops=1e15, log_interval=1)


def _one_rank(torch: Any) -> Any:
    return patch.object(torch.distributed, "get_rank", lambda: 0)


if __name__ == "__main__":
    main()
