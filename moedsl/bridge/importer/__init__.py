"""Turn a Hugging Face configuration into the declaration of a model."""
