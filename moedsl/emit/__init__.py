"""From a plan to files: a Megatron Bridge recipe, the same as overrides, and a lock of what was decided."""
