"""`moedsl diff`: what changes the experiment between two runs, and what only how it runs."""
