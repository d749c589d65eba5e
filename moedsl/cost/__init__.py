"""First-order prices of a layout: parameters, memory and step time, for one row and for whole columns."""

from moedsl.cost.estimate import Cost as Cost
from moedsl.cost.memory import StageMemory as StageMemory
