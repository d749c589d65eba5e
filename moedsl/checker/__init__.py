"""A run checked: every statement read, every name resolved, every value typed."""
