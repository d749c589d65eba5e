"""A plan as one self-contained HTML page: memory by stage, the step by wall, the schedule, both meshes."""
