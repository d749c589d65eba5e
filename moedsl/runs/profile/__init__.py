"""Read traces of training steps: what the time was spent on, by wall, class and module, and how the plan differs."""
