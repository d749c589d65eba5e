"""The .moe language: from text to syntax tree and back."""
