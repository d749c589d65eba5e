"""Lines of logs for the symptoms, see rule_pairs.py."""

from __future__ import annotations

from rule_runs import Pair

SYMPTOMS: dict[str, Pair] = {}
