"""Axes, facts, calibration constants, versions and rank groups: what plans, models and machines are made of."""
