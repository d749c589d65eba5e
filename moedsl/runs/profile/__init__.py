"""Read traces of training steps, and report where the time went, by wall, class and module, and next to the plan.

`kineto` and `nsight` read a file into `trace.Trace`; `steps` finds its steps and classifies the device's operations,
`budget` divides the steps by class, `report` joins ranks and prints, and `predicted` compares with a plan.
"""
