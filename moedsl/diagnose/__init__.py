"""`moedsl diagnose`: what a log says of its symptoms, and the edit of the run file that fixes them."""
