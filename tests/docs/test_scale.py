"""docs/scale.md: its tables are those of its script, and a launch is as small for 100,000 ranks as for 1,000."""

from __future__ import annotations

import make_scale
import pytest


def test_the_tables_are_up_to_date() -> None:
    assert make_scale.main(check=True) == 0, "run tools/make_scale.py"


@pytest.mark.parametrize("file", make_scale.FILES)
def test_no_file_grows_with_the_ranks(file: str) -> None:
    small, large = (make_scale.written(gpus)[1][file] for gpus in (make_scale.GPUS[0], make_scale.GPUS[-1]))
    assert large < 1.25 * small
