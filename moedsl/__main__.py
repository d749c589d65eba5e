"""Run the command line: `python -m moedsl`."""

from __future__ import annotations

import sys

from moedsl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
