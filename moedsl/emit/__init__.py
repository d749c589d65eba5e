"""Write a plan as files: a Megatron Bridge recipe, the same as overrides, and a lock file."""
