"""Fit the constants of the estimates to measured runs, and report how far the estimates are from the runs."""
