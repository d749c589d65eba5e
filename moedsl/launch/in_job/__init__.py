"""Programs that jobs include unchanged: they run on the cluster, without moedsl, and on Python 3.8.

`script.py` copies their text into a job. Each is one file that imports nothing of moedsl:

- rank.py runs the program of one rank, and says when and how it fails; rank_log.py gives the rank a log of its own;
- numa.py binds a rank to the CPUs and the memory of its GPU;
- chain.py decides whether a job of a chain has anything left to train;
- head_check.py checks in the first seconds whether this is the machine that the plan is for, node_check.py compares the
  nodes of the job with each other;
- convert.py imports weights from Hugging Face, or exports them.
"""
