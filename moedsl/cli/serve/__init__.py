"""Serve a page to plan on: an editor, and the plan of what is typed."""
