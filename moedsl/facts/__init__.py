"""Define axes, facts, calibration constants, versions and rank groups: the parts of plans, models and machines."""
