"""Turn a plan and a cluster into a job, and submit it through NeMo-Run.

The job runs on Slurm, on Kubernetes or on this machine. The input is a `Plan` and a `Cluster` (`rules.check`). The
output is the job's script, what NeMo-Run needs to submit it, an experiment that any later process can follow or cancel,
and diagnostics.

The modules, in the order of a run:

- derive.py applies the rules `of launch` and makes the `Launch`: nodes, ranks, environment and scheduler arguments,
  each with its rule. It also maps paths in the job to paths on the node.
- script.py writes the job's only bash script, with the programs of in_job/ inside: the recipe or the conversion of
  weights, and the preflight check.
- preflight.py checks what it can before the submission: the recipe, paths, and the scheduler's nodes.
- executors.py makes NeMo-Run's executors and their arguments for Slurm, and kubeflow.py makes them for Kubernetes;
  nemo.py imports NeMo-Run and opens its SSH tunnels.
- submit.py submits all jobs of an experiment or none; local.py runs a job on this machine instead.
- store.py chooses ids and folders and reopens experiments; follow.py waits for their jobs and reads the jobs' logs.
- dryrun.py shows what would be submitted, or writes it as launch.py and job.sh, to keep and to edit.

NeMo-Run takes seconds to import, so only functions import it. This package may import `diagnose`, `bridge` and all
packages below them, but no command, no results of runs and no language server; in_job/ may import nothing of moedsl.
"""
