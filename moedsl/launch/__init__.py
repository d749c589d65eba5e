"""From a plan and a cluster to a job: what follows from both, the script of the job, and NeMo-Run's executors."""
