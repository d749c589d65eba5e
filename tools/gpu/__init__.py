"""Measure on a GPU what the speed estimate states: one module for each part of `tools/measure_gpu.py`."""
