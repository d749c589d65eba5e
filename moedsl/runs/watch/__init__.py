"""Follow runs while they train: their progress next to the plan, their goodput, slow nodes, and alarms."""
