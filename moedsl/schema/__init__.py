"""What plans, models and machines are made of."""
