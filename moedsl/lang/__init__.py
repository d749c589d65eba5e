"""Read and write the .moe language: from text to syntax tree and back."""
