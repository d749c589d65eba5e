"""From measured runs to the constants of `moedsl.schema.calibration`, and how far the estimates are from the runs."""
