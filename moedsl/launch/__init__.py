"""Turn a plan and a cluster into a job, and submit it through NeMo-Run.

The job runs on Slurm, on Kubernetes or on this machine.
In go a `Plan` and a `Cluster` (`rules.check`); out come the script of a job, what NeMo-Run needs to submit it, an
experiment that any later process can follow or cancel, and diagnostics.

The way of a run:

- derive.py applies the rules `of launch` and makes the `Launch`: nodes, ranks, environment, arguments of the scheduler,
  each with its rule, and maps paths of the job to paths on the node.
- script.py writes the job's one bash script, with the programs of in_job/ inside: the recipe or the conversion of
  weights, and the preflight check.
- preflight.py checks what it can before the submission: the recipe, paths, and the nodes of the scheduler.
- executors.py makes NeMo-Run's executors and their arguments for Slurm, kubeflow.py those for Kubernetes; nemo.py
  imports NeMo-Run and opens its SSH tunnels.
- submit.py submits all jobs of an experiment or none; local.py runs a job on this machine instead.
- store.py chooses ids and folders and opens experiments again, follow.py waits for their jobs and reads
  what they print.
- dryrun.py shows what would be sent, or writes it as launch.py and job.sh, to keep and to edit.

NeMo-Run takes seconds to import, so only functions import it. This package may import `diagnose`, `bridge` and all
rooms below them, but no command, no results of runs and no language server; in_job/ may import nothing of moedsl.
"""
