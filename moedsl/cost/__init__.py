"""Estimate parameters, memory and step time of layouts, for one row or for whole columns."""

from moedsl.cost.estimate import Cost as Cost
from moedsl.cost.memory import StageMemory as StageMemory
