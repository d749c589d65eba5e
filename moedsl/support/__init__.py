"""Resources, caches, files and text."""
