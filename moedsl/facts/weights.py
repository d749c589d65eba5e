"""Say where the weights of fine-tuning lie, and which of them a job imports from Hugging Face."""

from __future__ import annotations

FIELD = "checkpoint.pretrained_checkpoint"
"""The field of Bridge that names the folder of the weights."""
FOLDER = "nemo_experiments/weights"
"""The folder of imported weights where no cluster names one, from the folder of the job."""


def imported(name: str, folder: str = FOLDER) -> str:
    """The folder of a model of Hugging Face that was imported."""
    return f"{folder}/{name.replace('/', '--')}"
