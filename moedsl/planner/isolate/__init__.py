"""Vary one axis while every variant keeps the same layout otherwise."""
