"""Refuse a plan that uses what its release of Bridge does not have."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.emit.dataset import is_mock
from moedsl.emit.settings import lacking
from moedsl.facts.families import QWEN_VL, family
from moedsl.facts.fields import first_with, has
from moedsl.facts.releases import BY_VERSION, NEWEST, place
from moedsl.planner.model.plan import Plan
from moedsl.rules.check.program import Program
from moedsl.support.diagnostics import Diagnostic, error

ID = "plan.not_in_release"


def refused(p: Program, plan: Plan) -> Iterator[Diagnostic]:
    """Report each field that the release does not have, with the oldest release that has it."""
    for s in lacking(plan):
        text = f"Bridge {p.target} has no `{s.path}`, which `{s.word}` needs"
        help = f"write `target bridge {first_with(s.path)}`, or another value of `{s.word}`"
        yield error(ID, text, p.spans.get(s.word or "", p.spans["hardware"]), help=help)
    if plan.samples and plan.samples.source == "hf" and not has("dataset.hf_dataset", p.target):
        text = f"Bridge {p.target} fine-tunes on folders of JSONL, not on a data set of Hugging Face by its name"
        help = f"write `target bridge {first_with('dataset.hf_dataset')}`, or name a folder"
        yield error(ID, text, p.spans["data"], help=help)
    if _images_of_others(plan):
        text = f"Bridge {p.target} reads real images with Qwen-VL's processor alone"
        help = f"write `target bridge {NEWEST.bridge}`, or `data mock`"
        yield error(ID, text, p.spans["data"], help=help)
    if p.model.attention == "mla" and _ends_in_mtp(plan) and not BY_VERSION[p.target].mtp_alone:
        text = f"Bridge {p.target} builds MTP with ordinary attention on a last stage without a decoder layer"
        help = (
            "`set model.mtp_num_layers = 0`",
            "or pin a `pipeline_layout` that ends in `tmL`",
            "or take a newer release: `target bridge 0.5`",
        )
        yield error(ID, text, p.spans["hardware"], help=help)


def _images_of_others(plan: Plan) -> bool:
    """Whether a model with another processor than Qwen-VL's reads images that a function of the release reads."""
    encoder = family(plan.family).encoder
    by_function = place("EnergonDatasetConfig", plan.target.bridge) is not None
    return encoder not in (None, QWEN_VL) and by_function and not is_mock(plan)


def _ends_in_mtp(plan: Plan) -> bool:
    """Whether the last stage has MTP and no decoder layer."""
    last = (plan.layout.pipeline_layout or "").rpartition("|")[2]
    return "m" in last and "t" not in last
