"""Write a plan as a Megatron Bridge recipe: a Python module whose public function returns a ``ConfigContainer``.

The comment on a decision gives its whole reason once, without figures, which would change with the batch.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from moedsl.emit.fields import Setting
from moedsl.emit.settings import environment, function_name, stated
from moedsl.facts import common, fine_tuning
from moedsl.facts.families import family
from moedsl.facts.releases import BY_VERSION
from moedsl.facts.symbols import FINE_TUNES
from moedsl.facts.values import Call, Dtype, Member, parts, python
from moedsl.planner.plan import Plan

_TASKS = {"pretrain": "Pretrain", "sft": "Fine-tune", "peft": "Train adapters of"}


_NSYS = "nsys profile -s none -t nvtx,cuda --capture-range=cudaProfilerApi --capture-range-end=stop -o profile_%h"
"""The command that Megatron's `use_nsys_profiler` requires (megatron/training/config/common_config.py:29). Nsight
captures only the profiled steps."""
_IMPORTED = (
    "fine-tuning starts from weights: import them once with AutoBridge.import_ckpt and name that folder in the run "
    'file, set checkpoint.pretrained_checkpoint = "..."; without it finetune() needs checkpoint.load (bridge '
    "training/finetune.py:50); if neither has weights, the run ends after building the model (training/setup.py:185)"
)
_CONVERTED = (
    "FSDP loads fsdp_dtensor, not an imported torch_dist (bridge training/checkpointing.py:3633): convert it first "
    "with checkpoint_inspector.py convert-torch-dist-to-fsdp-dtensor (bridge recipes/qwen_vl/h100/qwen35_vl.py:910)"
)


def recipe_text(plan: Plan) -> str:
    """Write the recipe's source. The same plan gives the same bytes; Bridge and torch are not imported."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    sections, fields, tunes = stated(plan), {**plan.derived, **plan.set}, plan.task in FINE_TUNES
    values = [p for _, settings in sections for s in settings for p in parts(s.value)]
    # The module of each name that the recipe imports
    names = {
        "AutoBridge": "megatron.bridge", "ConfigContainer": "megatron.bridge.training.config",
        common.COMMON[plan.task].function: common.MODULE,
        **{v.name: v.module for v in values if isinstance(v, Call)},
        **{v.enum: v.module for v in values if isinstance(v, Member)},
        **({"AutoConfig": "transformers"} if family(plan.family).config_only else {}),
        **({common.ENVIRONMENT: common.ENVIRONMENT_MODULE} if environment(plan)[0] else {}),
    }  # fmt: skip
    run = "torchrun --nproc-per-node gpu recipe.py"
    # How a fine-tuning run gets its weights, unless the run states it
    weights = comment(_IMPORTED) if tunes and fields.get(fine_tuning.FIELD) is None else []
    weights += comment(_CONVERTED) if tunes and plan.policy.sharding == "fsdp" else []
    # What ranks the chosen values best, for the docstring
    by, best = plan.search.ranks_by, list[str]()
    if by is not None and by.because and any(d.origin == "chosen" and d.rule == by.rule for d in plan.decisions):
        text = plain(f"Best by {by.rule.rpartition('.')[2]}: {by.because}.")
        best = textwrap.wrap(text, WIDTH, break_on_hyphens=False)
    # The output is Python, not HTML: every value is already a Python literal or a cleaned comment
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return env.get_template("recipe.py.j2").render(
        title=plain(f"{_TASKS[plan.task]} {plan.model} on {plan.gpus} {plan.hardware}"),
        target=plain(str(plan.target.bridge)),
        function=function_name(plan),
        launch=f"{_NSYS} \\\n        {run}" if fields.get("profiling.use_nsys_profiler") else run,
        imports=[(m, sorted(n for n in names if names[n] == m)) for m in sorted({*names.values()})],
        torch=any(isinstance(v, Dtype) for v in values),
        ranking=best,
        common=common.COMMON[plan.task].function,
        model=_model(plan),
        sections=[
            *([("Weights", weights)] if weights else []),
            *((title, list(_lines(plan, settings))) for title, settings in sections),
            ("Environment: defaults, which the launcher and the shell override", list(_environment(plan))),
        ],
        os=not BY_VERSION[plan.target.bridge].env_vars,
        step=family(plan.family).step,
        entry="finetune" if tunes else "pretrain",
    )


def _model(plan: Plan) -> str:
    """Write the statement for the model's provider, at its configuration's commit if known."""
    kin = family(plan.family)
    given = python(plan.hf)
    given += f", revision={python(plan.revision)}" if plan.revision else ""
    given += ", trust_remote_code=True" if kin.remote_code else ""
    source = "from_hf_config(AutoConfig.from_pretrained({}))" if kin.config_only else "from_hf_pretrained({})"
    made = f"cfg.model = AutoBridge.{source}.to_megatron_provider(load_weights=False)"
    made += f".{kin.language}()" if kin.language else ""
    text = made.format(given)
    return text if len(text) <= WIDTH else made.format(f"\n    {given}\n")


def _lines(plan: Plan, settings: Iterable[Setting]) -> Iterator[str]:
    """Yield the statements, grouped by reason, each group below its comment."""
    for because, group in grouped(plan, settings):
        yield from comment(because)
        for s in group:
            text = f"cfg.{s.path} = {python(s.value)}"
            if len(text) > WIDTH and isinstance(s.value, Call):
                inside = "".join(f"    {k}={python(v)},\n" for k, v in s.value.kwargs.items())
                text = f"cfg.{s.path} = {s.value.name}(\n{inside})"
            yield text


def _environment(plan: Plan) -> Iterator[str]:
    shared, own = environment(plan)
    inside = BY_VERSION[plan.target.bridge].env_vars
    yield "cfg.env_vars = {" if inside else "variables = {"
    if shared:
        yield f"    **{common.ENVIRONMENT},"
    for because, group in grouped(plan, [Setting(f"env_vars.{n}", None, n) for n in own]):
        yield from comment(because, "    ")
        for name in (s.word or "" for s in group):
            yield f"    {python(name)}: {python(own[name] if inside else str(own[name]))},"
    yield "}"
    if not inside:
        yield from ("for name, value in variables.items():", "    os.environ.setdefault(name, value)")


WIDTH = 115
"""The most characters of a line in the recipe's function, without its indent."""


def grouped(plan: Plan, settings: Iterable[Setting]) -> Iterator[tuple[str, list[Setting]]]:
    """Yield comments with their settings: all settings for one reason together, those without a comment first.

    A comment starts with the language's keywords where the fields have other names.
    """
    decisions = {d.name: d for d in plan.decisions}
    out: dict[str, list[Setting]] = {"": []}
    for s in settings:
        d = decisions.get(s.word or "")
        because = d.because or "" if d else ""
        if d and d.origin == "chosen":  # without the alternatives after the first part, which are in the plan
            because = because.partition("; ")[0]
        out.setdefault(s.why or because, []).append(s)
    for because, group in out.items():
        words = (s.word for s in group if s.word and not s.why and s.word != s.path.rpartition(".")[2])
        named = ", ".join(dict.fromkeys(w for w in words if "." not in w))
        if group:
            yield f"{named}: {because}" if named and because else because, group


def comment(text: str, indent: str = "") -> list[str]:
    """Wrap a text as comment lines."""
    return textwrap.wrap(
        plain(text), WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def plain(text: str) -> str:
    """Clean text for a comment or a docstring: one printable line that cannot end it."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line.replace("\\", "/").replace('"""', "'''")
