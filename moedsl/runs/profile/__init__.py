"""Read traces of training steps: what the time was spent on, by wall, class and module, and how the plan differs.

`kineto` (over `json_stream`) and `nsight` read a file into `trace.Trace`; `steps` finds its steps and names what the
device did, `budget` divides the steps by these classes, `report` joins ranks and prints, and `predicted` compares with
a plan.
"""
