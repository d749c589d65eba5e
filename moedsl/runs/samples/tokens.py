"""Count the tokens of a sample: with a tokenizer, or by its bytes."""

from __future__ import annotations

from typing import Any

from moedsl.runs.samples.lines import Sample
from moedsl.runs.samples.measure import Tokens

BYTES = 4
"""Bytes of UTF-8 for a token: a rule of thumb for English; code and other languages have fewer."""
_AROUND = 5
"""Tokens that a chat template puts around a turn: its start, the role, its end and line breaks."""
_END = 1
"""Bridge adds the end of the text (bridge data/datasets/gpt_sft.py)."""


def estimated(sample: Sample) -> int:
    """Count by bytes, without a tokenizer."""
    if sample.turns:
        return sum(_AROUND + len(t["content"].encode()) // BYTES for t in sample.turns)
    return _END + -(-len(sample.text.encode()) // BYTES)


def of_tokenizer(name: str) -> Tokens:
    """Load a tokenizer of Hugging Face, by its folder or name; raises what transformers raises."""
    from transformers import AutoTokenizer  # imported only where a tokenizer is named

    loaded: Any = AutoTokenizer.from_pretrained(name)

    def count(sample: Sample) -> int:
        if not sample.turns:
            return _END + len(loaded(sample.text, add_special_tokens=False)["input_ids"])
        if loaded.chat_template:
            return len(loaded.apply_chat_template([*sample.turns], tokenize=True, return_dict=False))
        return sum(_AROUND + len(loaded(t["content"], add_special_tokens=False)["input_ids"]) for t in sample.turns)

    return count
