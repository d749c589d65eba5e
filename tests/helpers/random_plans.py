"""Random programs that parse: a model, machines, sizes, and pins and candidates of every axis, one gene each."""

import random
from collections.abc import Callable, Mapping

from moedsl.facts.axes import AXES, Axis
from moedsl.facts.fine_tuning import EXPERTS, METHODS
from moedsl.facts.releases import BY_VERSION
from moedsl.rules.check.options import SECTIONS
from moedsl.support.resources import stdlib_dir
from tests.helpers.small_programs import EXTRAS, WHY

MODELS = sorted(p.stem for p in (stdlib_dir() / "models").glob("*.moe"))
MACHINES = sorted(p.stem for p in (stdlib_dir() / "hardware").glob("*.moe"))
GPUS = (8, 64, 72, 240, 360, 1024, 2520, 5040, 8192, 10_080, 16_384, 27_720, 55_440, 65_536)
LENGTHS = ("128", "4k", "5040", "16k", "55440", "128k", "1M")
BATCHES = (1, 64, 720, 1024, 5040, 8192, 27_720, 55_440, 65_536, 720_720)
COMMANDS = (
    "compile", "plan", "plan --ladder", "plan --lengths", "plan --top 20", "plan --pareto", "what-if", "explain",
    "compile --emit launch --cluster ours",
)  # fmt: skip
STATEMENTS = [e for e in EXTRAS if e.startswith(("require", "prefer", "risk", "allow memory"))]

Gene = Callable[[random.Random], str]
Genes = Mapping[str, str]


def _statement(rng: random.Random) -> str:
    return rng.choice([*STATEMENTS, *[""] * len(STATEMENTS)])


def _axis(axis: Axis) -> Gene:
    def gene(rng: random.Random) -> str:
        how = rng.random()
        if how < 0.7:
            return ""
        if how < 0.75:
            return pin(axis, rng)
        values = dict.fromkeys(_value(axis, rng) for _ in range(rng.randint(1, 30)))
        return f"rules of_{axis.name} {{ candidates {axis.name} = [{', '.join(values)}] {WHY} }}"

    return gene


def pin(axis: Axis, rng: random.Random) -> str:
    return f"pin {axis.name}={_value(axis, rng)}"


def _value(axis: Axis, rng: random.Random) -> str:
    if axis.kind == "int":
        return str(rng.choice([1, 2, 4, 8, rng.randint(1, 64)]))
    if axis.kind == "set":
        words = rng.sample(axis.words, rng.randint(0, len(axis.words)))
        return f"[{', '.join(words)}]" if words else "none"
    return rng.choice(axis.words or ("true", "false"))


def _tuning(rng: random.Random) -> str:
    """Fine-tuning with its adapter, samples and weights; nothing is pretraining."""
    task = rng.choice(["", "", "sft", "peft"])
    if not task:
        return rng.choice(["", 'data "/data/corpus"'])
    weights = rng.choice(['weights hf "ORG/NAME"', 'weights "/weights"', ""])
    return "\n".join([f"task {task}", *([_adapter(rng)] if task == "peft" else []), _samples(rng), weights])


def _adapter(rng: random.Random) -> str:
    method = rng.choice(METHODS)
    experts = f" experts={rng.choice(EXPERTS)}" if method == "lora" else ""
    return f"adapter {method} rank={rng.choice([1, 8, 32, 8192])} alpha={rng.choice([1, 32])}{experts}"


def _samples(rng: random.Random) -> str:
    source = rng.choice(['"/data/conversations"', 'hf "gsm8k"', 'hf "ORG/NAME" subset="main"'])
    lengths = ", ".join(str(rng.choice([1, 17, 300, 4096, 60_000])) for _ in range(rng.randint(1, 40)))
    known = rng.choice(["", f" lengths=[{lengths}]"])
    return f"data {source} pack={rng.choice(['on', 'off'])}{known}"


def _cluster(rng: random.Random) -> str:
    """A Slurm cluster, which states what a checkpoint and a failure cost; with `chain on` its jobs follow each other."""
    facts = ["chain on", "gpu_mtbf_days 200", "storage_write 1 GB/s", "most_lost_minutes 5", 'local_disk "/raid"']
    some = "\n  ".join(rng.sample(facts, rng.randint(0, len(facts))))
    return rng.choice(["", f"cluster ours {{\n  executor slurm\n  hardware HARDWARE\n  {some}\n}}"])


GENES: Mapping[str, Gene] = {
    "command": lambda rng: rng.choice(COMMANDS),
    "model": lambda rng: rng.choice(MODELS),
    "machines": lambda rng: f"{rng.choice(MACHINES)} x {rng.choice(GPUS)}",
    "phase": lambda rng: f"{rng.choice(['fit', 'scale', 'throughput'])} first",
    "seq": lambda rng: f"seq {rng.choice(LENGTHS)}",
    "batch": lambda rng: f"batch {rng.choice(BATCHES)}",
    "precision": lambda rng: rng.choice(["", "precision auto", "precision fp8", "precision mxfp8"]),
    "target": lambda rng: rng.choice(["", "", f"target bridge {rng.choice([*BY_VERSION])}"]),
    "tuning": _tuning,
    "resilience": lambda rng: "\n".join(f"resilience {s}" for s in rng.sample([*SECTIONS], rng.choice([0, 0, 1, 2]))),
    "save": lambda rng: rng.choice(["", 'set checkpoint.save = "/shared/checkpoints"']),
    "length": lambda rng: rng.choice(["", "", "for 2T tokens", "for 14 days"]),
    "cluster": _cluster,
    "first": _statement,
    "second": _statement,
    **{a.name: _axis(a) for a in AXES if a.name != "precision"},
}


def drawn(rng: random.Random) -> Genes:
    return {name: gene(rng) for name, gene in GENES.items()}


def changed(genes: Genes, rng: random.Random) -> Genes:
    """With one to three genes drawn again."""
    return {**genes, **{name: GENES[name](rng) for name in rng.sample([*GENES], rng.randint(1, 3))}}


def text(genes: Genes) -> str:
    lines = "\n".join(g for name, g in genes.items() if name != "command" and g) + "\n"
    return lines.replace("HARDWARE", genes["machines"].split()[0])
