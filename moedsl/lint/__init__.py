"""Judging a recipe that exists: its fields as Bridge builds them, or as its source says them, against every rule."""
