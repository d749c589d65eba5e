"""Prices without a cost model: smooth formulas over columns, so that the search is tested apart from the estimates."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.facts.facts import Model

Columns = Mapping[str, Any]


def _members(mask: Any) -> NDArray[np.float64]:
    return np.bitwise_count(np.asarray(mask, np.int64)).astype(float)


@frozen
class FakePrices:
    """Bytes and seconds that fall with sharding and rise with what is kept or repeated. `full` recompute keeps the least."""

    model: Model
    gpus: int
    seq: int
    global_batch: int
    shown: float
    """Bytes of the GPU."""

    def held(self, c: Columns) -> NDArray[np.float64]:
        return 0.95 * self._state(c)

    def memory(self, c: Columns, policies: Sequence[Mapping[str, int]] = ()) -> NDArray[np.float64]:
        if policies:
            return np.min([self.memory({**c, **policy}) for policy in policies], axis=0)
        m = self.model
        kept = 1 - 0.1 * np.minimum(_members(c["recompute"]), 5) - 0.6 * (np.asarray(c["recompute"]) >> 7 & 1)
        activations = self.seq * c["micro_batch"] / c["tp"] / c["cp"] * m.hidden * m.layers * 40 * kept
        return np.asarray(self._state(c) + activations, float)

    def _state(self, c: Columns) -> NDArray[np.float64]:
        m = self.model
        experts = 3 * m.layers * m.hidden * m.expert_hidden * m.experts / (c["ep"] * c["etp"] * c["pp"])
        dense = 4 * m.layers * m.hidden**2 / (c["tp"] * c["pp"])
        edp = self.gpus / (c["ep"] * c["etp"] * c["pp"])
        return np.asarray((experts + dense) * (6 + np.where(np.equal(c["offload"], 1), 0, 12) / edp), float)

    def spare(
        self,
        c: Columns,
        case: str = "high",
        dispatchers: Sequence[int] = (),
        policies: Sequence[Mapping[str, int]] = (),
    ) -> NDArray[np.float64]:
        if policies:
            return np.max([self.spare({**c, **policy}, case, dispatchers) for policy in policies], axis=0)
        share = {"low": 0.95, "best": 1.05, "high": 1.15}[case]
        least = min(dispatchers) if dispatchers else np.asarray(c["dispatcher"], float)
        return self.shown - share * self.memory(c) - 1e9 * least

    def work(self, c: Columns) -> NDArray[np.float64]:
        return self.time(c)

    @property
    def overhead(self) -> float:
        return 0.0

    def time(self, c: Columns) -> NDArray[np.float64]:
        m = self.model
        dp = self.gpus / (c["tp"] * c["cp"] * c["pp"])
        microbatches = np.maximum(self.global_batch / (dp * c["micro_batch"]), 1)
        work = self.global_batch * self.seq * 18 * m.layers * m.topk * m.hidden * m.expert_hidden / self.gpus / 4e14
        talk = (
            1 + 0.02 * np.log2(c["tp"]) + 0.01 * np.log2(c["cp"]) + 0.013 * np.log2(c["ep"]) + 0.03 * np.log2(c["etp"])
        )
        again = 1 + 0.05 * _members(c["recompute"]) + 0.1 * np.asarray(c["offload"])
        saved = (
            1
            - 0.05 * np.asarray(c["dispatcher"])
            - 0.01 * _members(c["cuda_graph"])
            - 0.04 * np.asarray(c["ep_overlap"])
        )
        fewer = (
            1
            - 0.02 * np.asarray(c["delay_wgrad"])
            - 0.1 * np.asarray(c["precision"])
            - 0.03 * np.log2(c["micro_batch"])
        )
        return np.asarray(work * (1 + (c["pp"] - 1) / (microbatches * c["vpp"])) * talk * again * saved * fewer, float)
