"""Translate the arguments of a Megatron-LM run to the fields of a Bridge configuration, as `lint` and `import` read it.

A field has its argument's name, or the name that the table gives. What Megatron-LM's `validate_args` makes of several
arguments is made here too. Citations are to megatron-core 0.19.2, megatron/training/arguments.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attrs import evolve

from moedsl.bridge.lint.facts import Argument, Recipe, stdlib_facts
from moedsl.bridge.megatron_lm import arguments
from moedsl.bridge.megatron_lm.arguments import Call, table
from moedsl.facts import megatron_arguments
from moedsl.facts.facts import Hardware
from moedsl.facts.fields import called
from moedsl.facts.megatron_arguments import SAME, by_flag
from moedsl.facts.values import stages
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.foreign import text_of
from moedsl.support.source import Span

LARGEST = 64 << 20
"""The most characters of a log in which the arguments are sought."""
_SECTIONS = ("model", "optimizer", "ddp", "train", "scheduler", "checkpoint", "dist", "logger", "rng", "tokenizer",
             "validation", "rerun_state_machine", "profiling", "mixed_precision", "dataset")  # fmt: skip
"""The sections that a run of Megatron-LM fills."""
_DTYPES = {word: dtype for dtype, word in megatron_arguments.DTYPES.items()}
_LAUNCHER = re.compile(r"(MASTER|NODE|RANK|LOCAL|WORLD|SLURM|NNODES|GPUS|PYTHONPATH|PATH$|LD_|CUDA_VISIBLE|HOME|\d)")
"""Variables that say where the ranks are and not how they compute."""
FREE = ("str",)
"""Types whose unknown values a plan does not need: paths and names."""


def read(
    target: str,
    gpu: str | None,
    world: int | None,
    given: Mapping[str, str],
    library: Library,
    command: Sequence[str] = (),
) -> Recipe | tuple[Diagnostic, ...] | None:
    """Read a script, a YAML recipe, a log or a command line of Megatron-LM as a recipe; None for another target."""
    if command:
        found = arguments.of_command(command)
        return (
            (error("import.megatron_lm:no-run", file="the command line"),)
            if found is None
            else recipe(found, gpu, world, library)
        )
    path = Path(target)
    if path.suffix in (".py", ".moe", ".json") or not os.path.isfile(path):
        return None
    try:
        text = text_of(path)[:LARGEST]
        if path.suffix in (".yaml", ".yml"):
            import yaml

            try:
                call = arguments.of_yaml(text, target, given)
            except (yaml.YAMLError, RecursionError, ValueError):
                return None  # the reader of run_config.yaml says what is wrong
            if call is None:
                return None
            call = _by_name(call, path, library)
        else:
            call = arguments.of_log(text, target) or arguments.of_script(text, target, given)
    except ImportError:
        return (error("import.recipe:no-yaml"),)
    except (OSError, ValueError) as wrong:
        return (error("import.recipe:not-found", file=target, reason=getattr(wrong, "strerror", None) or wrong),)
    if call is None:
        return (error("import.megatron_lm:no-run", file=target),)
    return recipe(call, gpu, world, library)


def _by_name(call: Call, path: Path, library: Library) -> Call:
    """Take the GPUs of a YAML recipe from its path, `gb200/mxfp8_256GPU_TP1PP4EP64.yaml`."""
    count = re.search(r"(\d+)gpus?(?![a-z])", path.name, re.IGNORECASE)
    kind = next((p.lower() for p in reversed(path.parts) if p.lower() in library.hardware), None)
    return evolve(call, world=int(count[1]) if count else None, gpu=kind)


def recipe(call: Call, gpu: str | None, world: int | None, library: Library) -> Recipe | tuple[Diagnostic, ...]:
    """Translate a run on `world` GPUs of type `gpu`, which the call may name itself."""
    wrong = [_refused(call, a) for a in call.arguments if a.wrong or (a.holes and _needed(a))]
    own = call.gpu if call.gpu in library.hardware else None
    found = machines(call.file, gpu or own, world or call.world, library)
    wrong += [found] if isinstance(found, Diagnostic) else []
    if wrong or isinstance(found, Diagnostic):
        return tuple(wrong)
    hardware, ranks = found
    made, places = fields(call, ranks)
    holes = [f"line {a.line}: `{a.flag}` needs {_names(a)}" for a in call.arguments if a.holes]
    family = "MLAModelProvider" if made.get("model.multi_latent_attention") else "GPTModelProvider"
    hybrid = made.get("model.hybrid_layer_pattern")
    values = call.values() | {"world_size": ranks, "accepted": bool(call.others)}
    return Recipe(
        target=call.file, function=os.path.basename(call.file), file=call.file, line=call.line, fields=made,
        hardware=hardware, world=ranks, settled=made, places=places, unread=(*call.unread, *holes),
        classes={"model": "HybridModelProvider" if hybrid else family, "dataset": "GPTDatasetConfig"},
        arguments=values, given=call.arguments,
        model=stdlib_facts(made.get("tokenizer.tokenizer_model"), library),
    )  # fmt: skip


def machines(target: str, gpu: str | None, world: int | None, library: Library) -> tuple[Hardware, int] | Diagnostic:
    """Return the GPUs of a run's own file and their number, or why they are unknown."""
    hardware = library.gpu(gpu)[0] if gpu and gpu in library.hardware else None
    if gpu and hardware is None:
        from moedsl.bridge.verify.cases import unknown

        return error("import.recipe:unknown-gpu", gpu=gpu, help=unknown(gpu))
    if hardware is None or world is None:
        options = ["--gpu gb200"] * (gpu is None) + ["--world 256"] * (world is None)
        return error("import.recipe:no-gpus", target=target, options=" ".join(options))
    return hardware, world


def _needed(a: Argument) -> bool:
    """Whether a plan needs the value of an argument: not that of a path, a name or an unknown argument."""
    found = by_flag().get(a.flag)
    return found is not None and (found.type not in FREE or bool(found.choices))


def _names(a: Argument) -> str:
    return " and ".join(f"`{n}`" for n in a.holes)


def label(call: Call, line: int) -> tuple[Label, ...]:
    """Label a line of the call's file; none for a command line."""
    try:
        lines = text_of(Path(call.file)).split("\n")
    except (OSError, ValueError):
        return ()
    start = sum(len(before) + 1 for before in lines[: line - 1])
    text = lines[line - 1] if line <= len(lines) else ""
    indent = len(text) - len(text.lstrip())
    return (Label(Span(call.file, start + indent, start + max(len(text.rstrip()), indent + 1)), "given here"),)


def _refused(call: Call, a: Argument) -> Diagnostic:
    at = label(call, a.line)
    if a.wrong:
        return error("import.megatron_lm:wrong", *at, flag=a.flag, why=a.wrong)
    said = " ".join(f"--env {n if n.isidentifier() or n.isdigit() else 'NAME'}=VALUE" for n in a.holes)
    return error("import.megatron_lm:unset", *at, flag=a.flag, names=_names(a), env=said, file=call.file)


_WITH = {"tokenizer.use_tokenizer_vocab_size": "tokenizer_type", "checkpoint.async_save": "save"}
"""Fields that a run states even without an argument of theirs, each with the argument beside which it does."""
_MIXED = "mixed_precision."
_CHUNKS = ("model.virtual_pipeline_model_parallel_size",)
_OPTIMIZER_DTYPES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


@cache
def paths(dest: str) -> Mapping[str, Any]:
    """Return the fields that an argument decides: with "=" those that take its value, otherwise what a switch makes.

    They follow from the notes, the table, or the argument's name.
    """
    if (said := megatron_arguments.notes()["decides"].get(dest)) is not None:
        return dict.fromkeys(said, SAME)
    own = {p: v for e in table().get(dest, ()) for p, v in e.fields.items() if v == SAME or _switches(e, v)}
    return {p: v for p, v in (own or dict.fromkeys(called(dest), SAME)).items() if p.partition(".")[0] in _SECTIONS}


def _switches(entry: megatron_arguments.Argument, value: Any) -> bool:
    return entry.action in ("true", "false") and isinstance(value, bool)


def fields(call: Call, world: int) -> tuple[dict[str, Any], dict[str, tuple[tuple[str, int], ...]]]:
    """Return the configuration's fields, and the line that decides each one that an argument decides."""
    values, given = call.values(), call.given
    out: dict[str, Any] = {}
    places: dict[str, tuple[tuple[str, int], ...]] = {}
    for dest, entries in table().items():
        latent = entries[0].group != "mla" or values["multi_latent_attention"]
        said, value = given.get(dest), values[dest]
        if isinstance(value, list) and len(value) == 1 and dest not in ("data_path", "recompute_modules"):
            value = value[0]
        value = _DTYPES.get(str(value), value) if dest in _OPTIMIZER_DTYPES else value
        for path, takes in paths(dest).items():
            if not (values["position_embedding_type"] == "yarn" if path.startswith("model.yarn_") else latent):
                continue
            made = value if takes == SAME else takes if said is not None else not takes
            if said is not None or (path not in out and made is not None):
                out[path] = made
            if said is not None:
                places[path] = ((call.file, said.line),)
    for a in call.arguments:  # rules read the arguments themselves, too
        places |= {f"args.{a.dest}": ((call.file, a.line),)} if a.dest else {}
    out |= _settled(values, given, world)
    for path, dest in _WITH.items():
        if path in out and dest in given:
            places.setdefault(path, ((call.file, given[dest].line),))
    names = {n: w for n, w in call.environment.items() if not (_LAUNCHER.match(n) or w.holes or " --" in w.text)}
    out["env_vars"] = {n: w.text for n, w in names.items()}
    places["env_vars"] = tuple((call.file, w.line) for w in names.values())[:1]
    return {p: v for p, v in out.items() if v is not None}, places


def _settled(v: Mapping[str, Any], given: Mapping[str, Argument], world: int) -> dict[str, Any]:
    """Return the fields that `validate_args` makes of several arguments, as it does."""
    tp, pp = v["tensor_model_parallel_size"] or 1, v["pipeline_model_parallel_size"] or 1
    replicas = max(world // max(tp * pp * (v["context_parallel_size"] or 1), 1), 1)
    heads, hidden, experts = v["num_attention_heads"], v["hidden_size"] or 0, v["num_experts"] or None
    rope = "rope" if v["use_rotary_position_embeddings"] else v["position_embedding_type"]
    ffn = v["ffn_hidden_size"] or (int(hidden * 8 / 3 / 64) * 64 if v["swiglu"] else 4 * hidden)
    impl, modules = v["cuda_graph_impl"], [*(v["cuda_graph_scope_deprecated"] or v["cuda_graph_modules"] or ())]
    impl = "local" if v["enable_cuda_graph"] else "transformer_engine" if v["external_cuda_graph"] else impl
    if "full_iteration" in modules:  # an older spelling (core transformer/cuda_graph_config.py:129)
        impl, modules = "full_iteration", []
    flex = v["moe_token_dispatcher_type"] == "flex"
    # delayed scaling is priced as the nearest kind
    scaling = "tensorwise" if v["fp8_recipe"] == "delayed" else v["fp8_recipe"]
    chunks = chunks_of(v, pp)
    fp32 = bool(v["bf16"]) and not v["grad_reduce_in_bf16"]
    return {
        "model.num_moe_experts": experts,
        "model.num_query_groups": v["num_query_groups"] if v["group_query_attention"] else heads,
        "model.kv_channels": v["kv_channels"] or (hidden // heads if heads else None),
        "model.ffn_hidden_size": ffn,
        "model.moe_ffn_hidden_size": (v["moe_ffn_hidden_size"] or ffn) if experts else None,
        "model.gated_linear_unit": bool(v["swiglu"] or v["quick_geglu"]),
        "model.activation_func": "<silu>" if v["swiglu"] else None,
        "model.position_embedding_type": rope,
        "model.sequence_parallel": bool(v["sequence_parallel"]) and tp > 1,
        "model.expert_tensor_parallel_size": v["expert_tensor_parallel_size"] or tp,
        _CHUNKS[0]: chunks,
        "model.num_layers_in_first_pipeline_stage": v["decoder_first_pipeline_num_layers"],
        "model.num_layers_in_last_pipeline_stage": v["decoder_last_pipeline_num_layers"],
        "model.recompute_granularity": "selective" if v["recompute_activations"] else v["recompute_granularity"],
        "model.recompute_modules": v["recompute_modules"],
        "model.cuda_graph_impl": impl,
        "model.cuda_graph_modules": [m for m in modules if m != "full"],
        "model.moe_token_dispatcher_type": "flex" if flex else "alltoall",
        "model.moe_flex_dispatcher_backend": v["moe_flex_dispatcher_backend"] if flex else None,
        "train.global_batch_size": v["global_batch_size"] or (v["micro_batch_size"] or 1) * replicas,
        "ddp.grad_reduce_in_fp32": fp32,
        "dataset.data_path": None if v["mock_data"] else given["data_path"].value if "data_path" in given else None,
        "checkpoint.async_save": bool(v["async_save"] and v["use_persistent_ckpt_worker"]),  # both (:1740)
        "model.vocab_size": v["padded_vocab_size"] or v["vocab_size"],
        # otherwise the tokenizer's (core tokenizers/utils/build_tokenizer.py:140)
        "tokenizer.use_tokenizer_vocab_size": not (v["padded_vocab_size"] or v["vocab_size"]) or None,
        "model.mtp_num_layers": v["mtp_num_layers"] or 0,
        f"{_MIXED}fp8_recipe": scaling if v["fp8"] else None,
        "model.overlap_p2p_comm": bool(chunks and v["overlap_p2p_comm"]),
        "model.batch_p2p_comm": not (chunks and v["overlap_p2p_comm"]),
        "ddp.align_param_gather": bool(chunks and v["align_param_gather"]),
    }  # fmt: skip


def chunks_of(v: Mapping[str, Any], pp: int) -> int | None:
    """Return the virtual stages of a pipeline rank, None for one (arguments.py:851-905)."""
    if v["pipeline_model_parallel_layout"]:
        chunks = len(stages(v["pipeline_model_parallel_layout"])) // pp
    elif v["num_virtual_stages_per_pipeline_rank"]:
        chunks = v["num_virtual_stages_per_pipeline_rank"]
    elif v["num_layers_per_virtual_pipeline_stage"]:
        ends = bool(v["account_for_embedding_in_pipeline_split"]) + bool(v["account_for_loss_in_pipeline_split"])
        chunks = ((v["num_layers"] or 0) + ends) // pp // v["num_layers_per_virtual_pipeline_stage"]
    else:
        return None
    return chunks if chunks > 1 else None


def replaced(v: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each setting of a run that the language cannot state, with the one that a plan prices in its place."""
    if v["moe_token_dispatcher_type"] == "allgather" and v["num_experts"]:
        yield "the dispatcher allgather, Megatron-LM's default,", "alltoall"
    if v["fp8"] and v["fp8_recipe"] == "delayed":
        yield "delayed FP8 scaling, the default of `--fp8-format`,", "fp8_current"
    if not v["bf16"]:
        yield "a run in FP16" if v["fp16"] else "a run in FP32 (without `--bf16`)", "a precision of the plan's choice"
    if not (v["use_distributed_optimizer"] or v["use_megatron_fsdp"]):
        yield "an optimizer that each rank keeps whole (without `--use-distributed-optimizer`)", "a sharded one"
