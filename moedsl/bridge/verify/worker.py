"""Ask all questions about one recipe in one process: Megatron keeps global state, so a process checks only one
recipe."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch.distributed as dist
from attrs import define, field

from moedsl.bridge.verify import resolve, runtime, stages, stand_ins
from moedsl.bridge.verify.cases import Case, Mismatch, Refusal, Report, failed, is_theirs, refusal
from moedsl.bridge.verify.configs import unknown
from moedsl.bridge.verify.resolve import UnbuiltError
from moedsl.bridge.verify.stages import initialise
from moedsl.emit.settings import stated

T = TypeVar("T")
_QUIET = ("DEPRECATED", "CUDA runtime", "trust_remote_code")


class _RefusedError(Exception):
    """Raised to end the questions: later ones depend on the refused one."""


@define
class _Findings:
    """The answers so far; a report can be made from them at any time."""

    refusals: list[Refusal] = field(factory=list)
    mismatches: list[Mismatch] = field(factory=list)
    cautions: list[str] = field(factory=list)
    stood_in: tuple[str, ...] = ()
    seconds: dict[str, float] = field(factory=dict)
    more: dict[str, Any] = field(factory=dict)

    def ask(self, question: str, answer: Callable[[], T]) -> T:
        """Ask and time one question. Record a refusal and raise _RefusedError; any other exception is a bug."""
        start = time.monotonic()
        try:
            return answer()
        except UnbuiltError:
            raise
        except (Exception, SystemExit) as error:
            if question not in ("recipe", "update") and not is_theirs(error):
                raise
            self.refusals.append(refusal(error, question))
            raise _RefusedError from error
        finally:
            self.seconds[question] = round(time.monotonic() - start, 3)


def judge(case: Case, stand_ins: str = "") -> Report:
    """Ask every question about `case`. `stand_ins` is the folder of stand-in model configurations."""
    found, start = _Findings(), time.monotonic()
    failure = ""
    with _listening(stand_ins) as (messages, opened):
        try:
            _questions(case, found)
        except _RefusedError:
            pass
        except UnbuiltError as error:
            return failed(case.file, "verify.recipe", f"line {error.line}: {error}", error.help)
        except Exception:
            failure = traceback.format_exc()[-3000:]
    if any(r.lacks_configuration for r in found.refusals):
        text = found.refusals[0].message.partition(". This might be")[0]
        text = f"the model's configuration is not on this machine, so Bridge was not asked: {text}"
        return failed(
            case.file, "verify.no_configuration", text, "run `verify` where the folder is, or put it in HF_HOME"
        )
    found.seconds["total"] = round(time.monotonic() - start, 3)
    hub = [f"the Hugging Face config of {name} (from moedsl's stdlib)" for name in sorted(opened)]
    return Report(
        case.file,
        "failed" if failure else "refused" if found.refusals else "accepted",
        refusals=tuple(found.refusals),
        mismatches=tuple(found.mismatches),
        cautions=tuple(found.cautions),
        warnings=tuple(messages[:20]),
        stood_in=(*hub, *found.stood_in),
        seconds=found.seconds,
        message=failure,
        id="verify.crash" if failure else "",
        **found.more,
    )


def _questions(case: Case, found: _Findings) -> None:
    stand_ins.answer(case.device, case.world, 0)
    stand_ins.be_current()
    with stand_ins.processors() as replaced:
        config, code = found.ask("recipe", lambda: resolve.load(case))
    nothing = "no such field: Bridge never reads it"
    found.mismatches += [Mismatch(name, value, None, nothing) for name, value in unknown(config, code)]
    written = {s.path for _, settings in stated(case.plan) for s in settings} if case.plan else set[str]()
    with stand_ins.checkpoint(config) as elsewhere:
        found.stood_in = (*dict.fromkeys(replaced), *elsewhere, *stand_ins.absent_packages(config.model))
        found.more["changed"] = found.ask("update", lambda: resolve.run_update(config, written))
    collection, made = found.ask("groups", lambda: initialise(config, case.world, 0))
    found.ask("overlap", lambda: runtime.make_user_buffers(config))
    refused, count = found.ask("runtime", lambda: runtime.ask(config, collection))
    found.refusals += refused
    found.more["settled"] = {
        "data_parallel_size": config.data_parallel_size,
        "num_microbatches": count,
        "dispatcher": config.model.moe_token_dispatcher_type,
        "backend": getattr(config.model, "moe_flex_dispatcher_backend", None),
    }
    found.mismatches += resolve.compare_config(config, case, count)
    found.more["groups"], differing = stages.compare_groups(made, config, case)
    found.mismatches += differing
    found.stood_in += stand_ins.vocabulary(config)
    if not case.stages:
        return

    def look(chunks: list[Any], of_stage: Any) -> None:
        """Check one stage, and record each new finding; skipped if the number of microbatches is unknown."""
        if count is not None:
            refused, cautions = runtime.ask_stage(config, chunks, of_stage)
            found.refusals += [r for r in refused if r not in found.refusals]
            found.cautions += [c for c in cautions if c not in found.cautions]

    ranks = dist.get_process_group_ranks(collection.pp)
    counted, whole = found.ask("stages", lambda: stages.count(config, case, ranks, look))
    pairs, differing = resolve.compare_stages(counted, case.plan)
    found.more |= {"stages": tuple(pairs), "parameters": whole}
    found.mismatches += [*differing, *resolve.compare_experts(config.model, counted, whole)]


@contextmanager
def _listening(folder: str) -> Generator[tuple[list[str], set[str]]]:
    """Collect each distinct message that NVIDIA's code logs at WARNING or above, and the models (org/name) whose
    stand-in configuration in `folder` this process opens from now on."""
    messages: list[str] = []
    opened: set[str] = set()
    prefix = os.path.join(os.path.realpath(folder), "models--")

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage().strip()
            if text not in messages and not any(quiet in text for quiet in _QUIET):
                messages.append(text)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(prefix):
            opened.add(arguments[0][len(prefix) :].split(os.sep)[0].replace("--", "/", 1))

    if folder:
        sys.addaudithook(hook)
    warnings.filterwarnings("ignore")
    listener = Listener(logging.WARNING)
    logging.getLogger().addHandler(listener)
    try:
        yield messages, opened
    finally:
        logging.getLogger().removeHandler(listener)
