"""Run the command line: the parser of arguments, and one module for each command."""
