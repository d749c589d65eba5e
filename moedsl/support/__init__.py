"""Resources, caches and files."""
