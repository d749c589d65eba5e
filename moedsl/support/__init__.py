"""Provide resources, caches, files and text."""
