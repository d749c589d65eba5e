"""Make frozen classes that cost a start little."""
