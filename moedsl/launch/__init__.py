"""Turn a plan and a cluster into a job, and submit it through NeMo-Run.

The job runs on Slurm, on Kubernetes or on this machine.
In go a `Plan` and a `Cluster` (`rules.check.clusters`); out come the script of a job, what NeMo-Run needs to submit it,
an experiment that any later process can follow or cancel, and diagnostics.

The way of a run:

- derive.py applies the rules `of launch` and makes the `Launch`: nodes, ranks, environment, arguments of the scheduler,
  each with its rule. mounts.py maps paths of the job to paths on the node.
- script.py writes the job's one bash script, with the programs of in_job/ inside; head.py adds the preflight check, and
  weights.py makes the jobs that import or export weights. quote.py quotes for bash.
- preflight.py checks what it can before the submission, with nodes.py for the nodes of the scheduler.
- slurm.py and kubeflow.py translate a launch into arguments of NeMo-Run's executors, which executors.py makes;
  nemo.py imports NeMo-Run, connections.py opens its SSH tunnels.
- submit.py submits all jobs of an experiment or none; local.py runs a job on this machine instead.
- experiment_dirs.py chooses ids and folders, store.py opens experiments again, follow.py waits for their jobs, and
  logs.py reads what they print.
- dryrun.py shows what would be sent, emit.py writes it as launch.py and job.sh, to keep and to edit.

NeMo-Run takes seconds to import, so only functions import it. This package may import `diagnose`, `bridge` and all
rooms below them, but no command, no results of runs and no language server; in_job/ may import nothing of moedsl.
"""
