"""Ask the real Megatron Bridge: everything that touches it is here.

Importing this package is fast. One warm process imports Bridge once and forks for each recipe. The modules named for a
question (update, groups, stages, runtime) run inside the fork, as do te, gpu and meta; the others run in the parent.
"""
