"""`moedsl rehearse`: a plan shrunk to a few CPU processes, through NVIDIA's own `pretrain()`."""
