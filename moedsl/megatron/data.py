"""Fields of the dataset that a run file sets by a word."""

from __future__ import annotations

from collections.abc import Mapping

from moedsl.megatron.values import Call

BUILDERS = "megatron.bridge.data.builders"
"""The module of Bridge's dataset configurations."""
PREPROCESSING = "dataset.preprocessing"
CHOICES: Mapping[str, Mapping[str, Call]] = {
    PREPROCESSING: {
        # what Bridge makes of None (bridge data/builders/gpt_sft.py:71), and asks new callers to say (:105)
        "prompts": Call(
            BUILDERS,
            "PromptCompletionSFTPreprocessingConfig",
            {"prompt_column": "input", "completion_column": "output", "separator": " "},
        ),
        "chat": Call(BUILDERS, "ChatSFTPreprocessingConfig"),
    }
}
"""Fields that a run file sets by a word, and what the dataset is given for it; the first is what no word means."""
