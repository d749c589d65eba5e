"""Names and values reach the rank unchanged, or are refused; nothing of them runs on the machine that submits."""

import base64
import json
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moedsl.cli.main import main
from moedsl.launch.derive import Launch
from moedsl.launch.dryrun import dryrun
from moedsl.launch.script import RUNDIR, Payload, script, word
from moedsl.rules import launch_variables
from moedsl.rules.check.cluster_facts import Cluster
from tests.helpers import bridge_process, forks, rotation
from tests.helpers.tables import table_of
from tests.launch.launches import STEP, Capture, Patch, launch, plan, read, slurm

PROBE = """import base64, json, os, sys
seen = {os.fsdecode(k): base64.b64encode(v).decode() for k, v in os.environb.items()}
here = os.path.dirname(sys.argv[0])
files = {n: base64.b64encode(open(os.path.join(here, n), "rb").read()).decode() for n in os.listdir(here)}
print(json.dumps({"env": seen, "argv": sys.argv[1:], "files": files}))
"""
SRUN = """#!/bin/bash
# srun's part: keeps what it is called with, drops its own options, and runs the command as one task of a job.
printf '%s\\0' "$@" > "$TAKEN"
while [ $# -gt 0 ]; do
  case "$1" in
    --*=*|--no-container-mount-home|--container-writable) shift ;;
    --*|-w) shift 2 ;;
    *) break ;;
  esac
done
export SLURM_PROCID=3 SLURM_LOCALID=5 SLURM_NTASKS=16 SLURM_NODEID=0 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1
exec "$@"
"""
TORCHRUN = """#!{python}
# torchrun's part of `python -P -m torch.distributed.run OPTIONS FILE`: fills its macros into arguments, starts one rank
import os, string, sys
words = sys.argv[4:]
options = [w for w in words if w.startswith("--")]
rest = words[len(options):]
rest = [string.Template(w).safe_substitute(local_rank="1") for w in rest]
os.environ["LOCAL_RANK"] = "1"
command = rest if "--no-python" in options else [sys.executable, *rest]
command = [sys.executable if w == __file__ else w for w in command]
os.execvp(command[0], command)
"""
HARD_MOUNT = "/data of $USER `touch HIT` && touch HIT;:/in side"
HARD_OPTION = '--comment=it\'s "a" && touch HIT; $(touch HIT) #'
NASTY = table_of("launch", "quoting: nasty")
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
name = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,12}\Z").filter(lambda n: launch_variables.refusal(n) is None)
slow = settings(
    max_examples=rotation.examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def with_variables(values: dict[str, str], executor: str = "slurm") -> tuple[Launch, Cluster]:
    """A launch whose cluster states these variables."""
    on = slurm("h100") if executor == "slurm" else Cluster("here", "local")
    on = evolve(on, python=sys.executable, env=values)
    return launch(plan("h100", 16, {"ep": 8}), on), on


def ran(command: list[str], folder: Path, **env: str) -> dict[str, object]:
    """What the probe saw, run in `folder` with a bare environment; nothing may have made the file HIT."""
    kept = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=kept | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (folder / "HIT").exists()
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"env"')))


def decoded(seen: object) -> dict[str, str]:
    assert isinstance(seen, dict)
    return {str(k): base64.b64decode(str(v)).decode() for k, v in seen.items()}


def in_bash(text: str, folder: Path, **env: str) -> dict[str, object]:
    file = folder / "job.sh"
    file.write_text(text, encoding="ascii")
    return ran(["bash", str(file)], folder, **env)


# ---------------------------------------------------------------- any value


@given(st.lists(text, min_size=1, max_size=20))
@slow
def test_a_word_of_bash_is_what_it_was(tmp_path: Path, texts: list[str]) -> None:
    words = " ".join(map(word, texts))
    assert words.isascii()
    program = "import base64, json, os, sys; print(json.dumps([base64.b64encode(os.fsencode(a)).decode() for a in sys.argv[1:]]))"
    done = subprocess.run(
        ["bash", "-c", f"exec '{sys.executable}' -c '{program}' {words}"], capture_output=True, check=True, cwd=tmp_path
    )
    assert [base64.b64decode(a).decode() for a in json.loads(done.stdout)] == texts
    assert RUNDIR not in words


@given(st.dictionaries(name, text, max_size=8), st.lists(text, max_size=3))
@slow
def test_variables_and_arguments_reach_the_rank(tmp_path: Path, values: dict[str, str], words: list[str]) -> None:
    made, on = with_variables(values)
    seen = in_bash(script(made, on, Payload({"p.py": PROBE}, "p.py", arguments=tuple(words))), tmp_path, **STEP)
    env = decoded(seen["env"])
    assert {n: env.get(n) for n in made.variables} == made.variables
    assert made.variables.items() >= values.items()
    assert seen["argv"] == words


@given(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=200))
@slow
def test_files_reach_the_rank(tmp_path: Path, body: str) -> None:
    made, on = with_variables({})
    texts = {"p.py": PROBE, "body": f"{body}\nMOEDSL_END_OF_FILE\n$(touch HIT)\nMOEDSL_END_OF_FILE_\n"}
    seen = in_bash(script(made, on, Payload(texts, "p.py")), tmp_path, **STEP)
    assert decoded(seen["files"]).items() >= texts.items()


def test_the_rank_knows_which_it_is(tmp_path: Path) -> None:
    made, on = with_variables({})
    env = decoded(in_bash(script(made, on, Payload({"p.py": PROBE}, "p.py")), tmp_path, **STEP)["env"])
    expected = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "NODE_RANK": "0"}
    assert {n: env[n] for n in expected} == expected
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.1", "24711")


# ---------------------------------------------------------------- the way that NeMo-Run sends it


@pytest.mark.parametrize("container", ["", "nvcr.io/nvidia/nemo:26.02", "/images/it's a $HOME && touch HIT.sqsh"])
@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_the_sbatch_file_gives_each_rank_its_values(container: str, launcher: str, tmp_path: Path) -> None:
    """The file as NeMo-Run writes it, run by bash, with an srun that starts one task."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool, body in (("srun", SRUN), ("scontrol", "#!/bin/sh\n"), ("torchrun", TORCHRUN)):
        (tools / tool).write_text(body.format(python=sys.executable) if tool == "torchrun" else body)
        (tools / tool).chmod(0o755)
    python = sys.executable if launcher == "srun" else str(tools / "torchrun")
    on = slurm("h100", f'launcher {launcher}; python "{python}"')
    options = {"mounts": (HARD_MOUNT,), "srun_args": (HARD_OPTION,)} if container else {"srun_args": (HARD_OPTION,)}
    on = evolve(on, env=NASTY, container=container, job_dir=str(tmp_path), **options)
    made = launch(plan("h100", 16, {"ep": 8}), on)
    sent = dryrun([(made, Payload({"p.py": PROBE}, "p.py", arguments=tuple(NASTY.values())))], on)
    sbatch, job = sent.files.values()
    folder = Path(sent.folder) / made.name
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / f"{made.name}.sh").write_text(job)
    inside = sbatch.replace(f"{RUNDIR}/scripts", str(folder / "scripts")) if container else sbatch
    (tmp_path / "sbatch.sh").write_text(inside)
    path = f"{tools}:{os.environ['PATH']}"
    taken = str(tmp_path / "words")
    job_of = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n", "TAKEN": taken}
    seen = ran(["bash", str(tmp_path / "sbatch.sh")], tmp_path, PATH=path, **job_of)
    words = Path(taken).read_text().split("\0")
    assert HARD_OPTION in words
    if container:
        assert words[words.index("--container-image") + 1] == container
        assert words[words.index("--container-mounts") + 1].startswith(f"{HARD_MOUNT},")
    assert decoded(seen["env"]).items() >= NASTY.items()
    assert seen["argv"] == list(NASTY.values())


def test_this_machine_gives_each_rank_its_values(tmp_path: Path) -> None:
    (tmp_path / "python").write_text(TORCHRUN.format(python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    made, on = with_variables(NASTY, "local")
    own = evolve(on, python=str(tmp_path / "python"))
    derived = {"TOKENIZERS_PARALLELISM": "the shell's"}
    seen = in_bash(script(made, own, Payload({"p.py": PROBE}, "p.py")), tmp_path, **derived, GLOBS="the shell's")
    env = decoded(seen["env"])
    assert env.items() >= NASTY.items() | derived.items()


def test_a_secret_is_inherited_and_written_nowhere(tmp_path: Path) -> None:
    made, on = with_variables({})
    text = script(evolve(made, secrets=("HF_TOKEN",)), on, Payload({"p.py": PROBE}, "p.py"))
    assert decoded(in_bash(text, tmp_path, HF_TOKEN="a 'b' $c", **STEP)["env"])["HF_TOKEN"] == "a 'b' $c"
    without = subprocess.run(
        ["bash", "-c", text], env={**os.environ, **STEP}, capture_output=True, text=True, check=False
    )
    assert without.returncode == 78 and "secret HF_TOKEN is not set" in without.stderr


# ---------------------------------------------------------------- this machine


def test_nothing_in_a_run_file_runs_here(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """Every place of a run file that takes a text, with texts that a shell would run."""
    hit = "$(touch HIT)`touch HIT`'; touch HIT; '"
    (tmp_path / "run.moe").write_text(f"""
      qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; pin tp=1 pp=1 ep=8 cp=1 etp=1
      data "/data/{hit}"
      set checkpoint.save = "/data/{hit}"
      cluster lab {{
        executor slurm; hardware h100; job_dir "{tmp_path}/runs"
        container "{hit}"; mounts ["{hit}:/data"]; env {{ A "{hit}" }}
        sbatch {{ comment "{hit}"; reservation "{hit}" }}; srun_args ["--comment={hit}"]
      }}
    """)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "run.moe", "--cluster", "--dryrun"]) == 0
    assert main(["compile", "run.moe", "--emit", "launch"]) == 0
    assert "touch HIT" in capsys.readouterr().out
    made = forks.run("out/launch.py", "--dryrun")
    assert made.returncode == 0, made.stderr
    assert sorted(p.name for p in tmp_path.rglob("HIT")) == []


@pytest.mark.parametrize("hard", sorted(set(string.printable) - set(string.ascii_letters + string.digits)))
def test_a_sign_of_the_shell_in_a_path_is_refused_or_plain(hard: str) -> None:
    """NeMo-Run puts `job_dir`, host, user and key into commands as they stand."""
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}.get(hard, hard)
    if hard in "\r\t\x0b\x0c":
        return
    found = read(f'executor slurm; hardware h100; job_dir "/runs{escaped}x"')[1]
    assert bool(found) == (hard not in "_./@%+=~-")


def test_a_reserved_path_is_refused_without_a_container(tmp_path: Path, capsys: Capture) -> None:
    """NeMo-Run would put another path in the place of /nemo_run in the recipe."""
    run = 'qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; pin tp=1 pp=1 ep=8 cp=1 etp=1; data "/nemo_run/data"\n'
    lab = 'cluster lab {{ executor slurm; hardware h100; job_dir "{0}"{1} }}'
    for more, code in (("", 1), ('; container img; mounts ["/lustre:/nemo_run"]', 0)):
        (tmp_path / "run.moe").write_text(run + lab.format(tmp_path, more))
        assert main(["run", str(tmp_path / "run.moe"), "--cluster", "--dryrun"]) == code
    assert "launch.reserved_path" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["a b.py", "../x.py", "", "-x", "a$b"])
def test_a_file_of_the_job_has_a_plain_name(wrong: str) -> None:
    with pytest.raises(ValueError, match="plain names"):
        Payload({wrong: ""}, wrong)


def test_torchrun_itself_gives_each_rank_its_values(tmp_path: Path) -> None:
    """PyTorch's own launcher, two ranks on this machine's CPUs."""
    program = (
        "import json, os, sys, base64\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "seen = [None] * dist.get_world_size()\n"
        "own = {os.fsdecode(k): base64.b64encode(v).decode() for k, v in os.environb.items()}\n"
        "dist.all_gather_object(seen, {'env': own, 'argv': sys.argv[1:]})\n"
        "if dist.get_rank() == 0:\n"
        "    print(json.dumps({'env': seen[1]['env'], 'argv': seen[1]['argv']}))\n"
        "dist.destroy_process_group()\n"
    )
    on = evolve(Cluster("here", "local"), python=str(bridge_process.python(tmp_path)), env=NASTY)
    made = launch(plan("h100", 2, {"ep": 2}), on)
    text = script(made, on, Payload({"p.py": program}, "p.py", arguments=tuple(NASTY.values())))
    seen = in_bash(text, tmp_path, OMP_NUM_THREADS="1")
    env = decoded(seen["env"])
    assert env.items() >= NASTY.items() and (env["RANK"], env["WORLD_SIZE"]) == ("1", "2")
    assert seen["argv"] == list(NASTY.values())
