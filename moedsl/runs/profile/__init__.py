"""Read traces of training steps: what the time was spent on, by wall, class and module, and how the plan differs.

`kineto` (over `json_stream`) and `nsight` read a file into `trace.Trace`; `steps` finds its steps, `budget` divides
them by the classes of `kinds`, `report` joins ranks, `predicted` compares with a plan, and `text` prints.
"""
