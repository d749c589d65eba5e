"""pytest-lsp is imported by the files that start the server: it takes half a second in each process of a run."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.option.devtools = None  # what pytest-lsp would read from the command line
