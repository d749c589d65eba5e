"""Say why a release of Bridge cannot build a model of the stdlib."""

from __future__ import annotations

from moedsl.facts.facts import Model
from moedsl.facts.fields import data, fields, provided
from moedsl.facts.releases import BY_VERSION


def why(model: Model, bridge: str) -> str | None:
    """The release's own words, or the part that it leaves out; None if it builds the model, or if that is unknown."""
    refused = data(bridge)["unbuilt"].get(model.hf)
    if refused is not None:
        return refused
    if model.indexer_every > 1 and "model.dsa_indexer_topk_freq" not in fields(bridge):
        return "it builds an indexer in each layer, where layers of the model share the keys of one"
    if model.sandwich_norms and not BY_VERSION[bridge].gemma4_inputs:
        return "it builds layers without the norms of the inputs of the shared experts and the router"
    given = provided(model.hf, bridge)
    if model.attention_gate and given and not given.get("attention_output_gate"):
        return "it builds attention without its gate"
    normless = model.qk_norm and given.get("qk_layernorm") is False
    return "it builds the model without its QK norm" if normless else None
