"""Answer questions about a run: the best layouts, memory against speed, what a change buys, what a budget costs."""
