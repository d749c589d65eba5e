"""Turn a plan and a cluster into a job, and submit it through NeMo-Run."""
