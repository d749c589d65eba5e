"""A Hugging Face configuration to a declaration of a model."""
