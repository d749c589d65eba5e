"""`isolate`: one axis compared with everything else held fixed."""
