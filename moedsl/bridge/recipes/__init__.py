"""Turn an existing recipe into a program: its words, its pins, and a line for everything else that it sets."""
