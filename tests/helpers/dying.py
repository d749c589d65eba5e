"""A test of a nested run that ends its worker."""

import os


def test_that_ends_its_worker() -> None:
    os._exit(1)
