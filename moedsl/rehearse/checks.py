"""Check a rehearsal: finite losses, groups as planned, parameters as counted, replicas that stay equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from attrs import frozen

from moedsl.facts import rank_groups
from moedsl.rehearse.prepare import Prepared

Answers = Sequence[Mapping[str, Any]]


@frozen
class Check:
    """One check and its result in words; `wrong` has a line for each difference."""

    name: str
    ok: bool
    says: str
    wrong: tuple[str, ...] = ()


def checks(prepared: Prepared, answers: Answers) -> tuple[Check, ...]:
    """Run all checks on the answers of ranks that finished training."""
    asked = (loss, groups, parameters, replicas)
    return tuple(ask(prepared, answers) for ask in asked)


def loss(prepared: Prepared, answers: Answers) -> Check:
    """Check that each rank of the last stage has a finite loss in every iteration."""
    ranks, stages, wrong = prepared.rehearsal.ranks, prepared.rehearsal.layout["pp"], list[str]()
    last = [a for a in answers if a["rank"] >= ranks - ranks // stages]
    for answer in last:
        found = answer["losses"]
        if len(found) != prepared.iterations:
            wrong.append(f"rank {answer['rank']}: {len(found)} iterations of {prepared.iterations}")
        wrong += [_infinite(answer["rank"], i, losses) for i, losses in enumerate(found, 1) if not _finite(losses)]
    if len(last) != ranks // stages:
        wrong.append(f"{len(last)} of {ranks // stages} ranks of the last stage answered")
    values = ", ".join(f"{losses['lm loss']:.4f}" for losses in last[-1]["losses"]) if last and not wrong else "none"
    return Check("loss", not wrong, f"finite in each of {prepared.iterations} iterations: {values}", tuple(wrong))


def _finite(losses: Mapping[str, float]) -> bool:
    return "lm loss" in losses and all(isfinite(v) for v in losses.values())


def _infinite(rank: int, iteration: int, losses: Mapping[str, float]) -> str:
    return f"rank {rank}, iteration {iteration}: {dict(losses) or 'no loss'}"


def groups(prepared: Prepared, answers: Answers) -> Check:
    """Compare each rank's groups, from Megatron-Core's state, with both meshes of the layout."""
    planned = rank_groups.groups(prepared.rehearsal.layout)
    wrong = [line for a in answers for line in _strange(a, planned)]
    count = sum(len(family) for family in planned.values())
    says = f"{len(planned)} families of both meshes, {count} groups over {prepared.rehearsal.ranks} ranks, as planned"
    return Check("groups", not wrong and len(answers) == prepared.rehearsal.ranks, says, tuple(wrong))


def _strange(answer: Mapping[str, Any], planned: rank_groups.Groups) -> list[str]:
    rank, made = answer["rank"], answer["groups"]
    wanted = {name: next(g for g in family if rank in g) for name, family in planned.items()}
    return [
        f"rank {rank}: {name} is {made.get(name)}, planned {ranks}"
        for name, ranks in wanted.items()
        if made.get(name) != ranks
    ]


def parameters(prepared: Prepared, answers: Answers) -> Check:
    """Compare each rank's parameters, dense and experts', with moedsl's count for its stage."""
    per_stage = prepared.rehearsal.ranks // prepared.rehearsal.layout["pp"]
    wrong = list[str]()
    for a in answers:
        want, has = prepared.parameters[a["rank"] // per_stage], a["parameters"]
        for kind, count in (("dense", want.dense), ("expert", want.expert)):
            if has[kind] != count:
                wrong.append(f"rank {a['rank']}: {has[kind]:,} {kind} parameters, counted {count:,}")
    each = "; ".join(f"stage {i}: {p.dense:,} + {p.expert:,}" for i, p in enumerate(prepared.parameters))
    says = f"as counted on every rank, dense + expert: {each}"
    return Check("parameters", not wrong and len(answers) == prepared.rehearsal.ranks, says, tuple(wrong))


def replicas(prepared: Prepared, answers: Answers) -> Check:
    """Check that ranks of one data-parallel group end with the same values, which differ from the initial ones.

    Dense parameters are reduced over DP x CP, those of experts over EDP; gradients sent to wrong ranks would make them
    differ.
    """
    planned, after = rank_groups.groups(prepared.rehearsal.layout), {a["rank"]: a["after"] for a in answers}
    wrong = [f"rank {a['rank']}: no dense parameter has changed" for a in answers if _same(a, "dense")]
    for kind, family in (("dense", "DP_CP"), ("expert", "EDP")):
        differing = [g for g in planned[family] if len({after[r][kind] for r in g if r in after}) > 1]
        wrong += [f"{family} group {g}: {kind} parameters differ after training" for g in differing]
    says = "parameters are equal within each DP x CP and EDP group after the last step, and changed since the first"
    return Check("replicas", not wrong and len(answers) == prepared.rehearsal.ranks, says, tuple(wrong))


def _same(answer: Mapping[str, Any], kind: str) -> bool:
    return answer["before"][kind] == answer["after"][kind]
