"""What people ask of a plan: the best layouts, memory against speed, GPUs against time, what a change buys, cost."""
