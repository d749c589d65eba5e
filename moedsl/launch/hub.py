"""Ask the Hugging Face hub whether a job may read the weights of a model."""

from __future__ import annotations

import os
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from moedsl.rules.check.clusters.facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error, note

ENDPOINT = "https://huggingface.co"
TOKEN = "HF_TOKEN"
SECONDS = 10.0
_WHY = {
    "GatedRepo": "is gated",
    "RepoNotFound": "does not exist, or is private",
    "RevisionNotFound": "has no such revision",
    "EntryNotFound": "has no config.json",
}
"""What the hub's X-Error-Code means (huggingface_hub/utils/_http.py:841)."""


def refusals(model: str, revision: str | None, cluster: Cluster) -> list[Diagnostic]:
    """Report why the hub does not give a job the configuration of a model, which it guards as it does the weights."""
    if cluster.offline:
        return []
    endpoint = os.environ.get("HF_ENDPOINT") or ENDPOINT
    inherits = cluster.executor == "local" or TOKEN in cluster.secrets
    token = os.environ.get(TOKEN) if inherits else None
    address = f"{endpoint.rstrip('/')}/{quote(model)}/resolve/{quote(revision or 'main')}/config.json"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(address, method="HEAD", headers=headers), timeout=SECONDS):
            return []
    except HTTPError as answer:
        if answer.code < 500:
            return [_refused(model, answer, inherits, bool(token))]
        problem: Exception = answer
    except (OSError, HTTPException, ValueError) as refused:
        problem = refused
    text = f"the Hugging Face hub did not answer whether the job may read {model}: {problem}"
    return [note("preflight.hub", text, help="the job that imports the weights asks it")]


def _refused(model: str, answer: HTTPError, inherits: bool, has_token: bool) -> Diagnostic:
    why = _WHY.get(answer.headers.get("X-Error-Code", ""), f"is not given: {answer.code} {answer.reason}")
    text = f"{model} on Hugging Face {why}"
    if has_token:
        help = f"accept its terms on the page of the model with the account of {TOKEN}, or name another model"
    elif inherits:
        help = f"export {TOKEN}=... with a token of an account that may read it, or name another model"
    else:
        help = f"write `secrets [{TOKEN}]` into the cluster, and export {TOKEN}, or name another model"
    return error("preflight.gated", text, help=help)
