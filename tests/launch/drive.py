"""The command line with a program for the CPU in the recipe's place: drive.py PROGRAM.py and moedsl's own words."""

import sys
from pathlib import Path

from moedsl.cli.commands import launch
from moedsl.cli.main import main

program = Path(sys.argv[1]).read_text()
launch.recipe_text = lambda plan: program
sys.exit(main(sys.argv[2:]))
