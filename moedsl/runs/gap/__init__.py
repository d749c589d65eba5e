"""Explain a measured speed: against the estimate, the nearest published run and NVIDIA's recipe."""
