"""From measured runs to the constants of `moedsl.constants`, and how far the estimates are from the runs."""
