"""The Python API that `moedsl/__init__.py` re-exports."""
