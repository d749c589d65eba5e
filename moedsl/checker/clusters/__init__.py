"""Clusters: their facts, and what a run file may say of them."""
