"""Follow runs while they train: their progress next to the plan, their goodput, slow nodes, and alarms.

`sources` lists the runs of a target again and again, `reading` reads what their logs gained, `view` makes the answer of
a moment as JSON and prints it, and `page` writes it as an HTML page with curves.
"""
