"""Choose the dataset and the tokenizer of a run among Bridge's configurations.

Mock data, text or images, is Bridge's. A path is a Megatron blend (text for pretraining), a folder of JSONL (text for
fine-tuning) or an Energon dataset (images). A name is a Hugging Face data set (text for fine-tuning).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.facts import releases
from moedsl.facts.families import BUILDERS, CHOICES, PREPROCESSING, dataset_class, family, preprocessing
from moedsl.facts.fields import fields
from moedsl.facts.values import Call, Ref
from moedsl.planner.plan import Plan

_CONFIG = "megatron.bridge.training.config"
BY_FUNCTION = "_make_energon_dataset"
"""Bridge's function for an image dataset whose path is a field, not an argument."""


def is_mock(plan: Plan) -> bool:
    """Whether a plan trains on random tokens."""
    return plan.policy.data == "mock"


def dataset(plan: Plan) -> Call:
    """Return the dataset configuration to build, with the plan's sequence length."""
    size, path, s, kin = {"seq_length": plan.batch.seq}, plan.policy.data, plan.samples, family(plan.family)
    kind = dataset_class(kin.vision, plan.task, is_mock(plan))
    module, name = releases.place(kind, plan.target.bridge) or (BUILDERS, kind)
    own_code = {"trust_remote_code": True} if kin.remote_code else {}  # for the processor in the model's repository
    match name:
        case "MockVLMSFTDatasetConfig" | "MockVLMConversationProvider":
            # bridge recipes/qwen_vl/h100/qwen3_vl.py:109
            return Call(module, name, {
                **size, "hf_processor_path": plan.hf, "dataloader_type": "single", "num_workers": 1,
                "data_sharding": True, "pin_memory": True, "persistent_workers": False, "pad_to_max_length": True,
                **own_code,
            })  # fmt: skip
        case "EnergonDatasetConfig":
            encoder = Call(BUILDERS, kin.encoder or "", {"hf_processor_path": plan.hf} | own_code)
            return Call(BUILDERS, name, {
                "path": path, **size, "micro_batch_size": plan.batch.micro_batch, "num_workers": 2,
                "pad_to_max_length": True, "task_encoder": encoder,
            })  # fmt: skip
        case "EnergonProvider":
            # before Bridge 0.6, a function makes the tokenizer, the processor and the encoder, and the path is set
            # afterwards (bridge 0.5.1 recipes/qwen_vl/qwen3_vl.py:296)
            batch = {"micro_batch_size": plan.batch.micro_batch, "global_batch_size": plan.batch.global_batch}
            return Call("megatron.bridge.recipes.qwen_vl.qwen3_vl", BY_FUNCTION, {"hf_path": plan.hf, **size, **batch})
        case "GPTSFTDatasetConfig":
            source: dict[str, Any] = {"dataset_root": path}
            if s and s.source == "hf":
                # a data set that Bridge knows, with its columns, by short name, or any other by full name
                named = {"path_or_dataset" if "/" in path else "dataset_name": path}
                named |= {k: v for k, v in (("split", s.split), ("subset", s.subset)) if v is not None}
                # bridge recipes/utils/dataset_utils.py:182
                call = Call(BUILDERS, "HFDatasetSourceConfig", named)
                source = {"hf_dataset": call, "hf_validation_proportion": 0.05}
            packing = dict[str, Any]()
            if s and s.pack:
                specs = _packing(plan, s.multiple, _PACKING)
                packing = {"enable_offline_packing": True, "offline_packing_specs": specs}
            return Call(BUILDERS, name, {
                **size, **source, "preprocessing": CHOICES[PREPROCESSING][preprocessing(path, plan.set)],
                "dataset_kwargs": {"pad_to_max_length": True}, **packing, "do_test": False,
            })  # fmt: skip
        case "FinetuningDatasetConfig":
            # before Bridge 0.6, chat is a keyword of the dataset (bridge 0.5.1 data/datasets/sft.py:125), and the field
            # with the sizes for packing has another name (training/config.py:527)
            chat = {"chat": True, "use_hf_tokenizer_chat_template": True}
            chat = chat if preprocessing(path, plan.set) == "chat" else {}
            packing = {"packed_sequence_specs": _packing(plan, s.multiple, _OLD_PACKING)} if s and s.pack else {}
            return Call(_CONFIG, name, {
                **size, "dataset_root": path, "dataset_kwargs": {"pad_to_max_length": True, **chat}, **packing,
                "do_test": False,
            })  # fmt: skip
        case _:
            # bridge recipes/common.py:90, except the split of a corpus: with 9999,8,2, a corpus below about 2,500
            # documents has none to test or validate on, and Megatron adds epochs without tokens forever
            # (core datasets/gpt_dataset.py:693); 99,1,0 works from about 50 documents on and needs no test set
            paths, split = (None, "9999,8,2") if is_mock(plan) else ([path], "99,1,0")
            return Call(_CONFIG, "GPTDatasetConfig", {
                **size, "data_path": paths, "random_seed": 1234, "split": split, "reset_attention_mask": False,
                "reset_position_ids": False, "eod_mask_loss": False, "num_dataset_builder_threads": 1,
                "data_sharding": True, "dataloader_type": "single", "skip_getting_attention_mask_from_dataset": True,
            })  # fmt: skip


_PACKING, _OLD_PACKING = "megatron.bridge.data.packing", "megatron.bridge.data.datasets.packed_sequence"


def _packing(plan: Plan, multiple: int, module: str) -> Call:
    # graphs that capture attention need sequence boundaries of one shape (bridge training/config.py:1181)
    captured = not {"attn", "full_iteration"}.isdisjoint(plan.policy.cuda_graph)
    keywords = {"packed_sequence_size": plan.batch.seq, "pad_seq_to_mult": multiple, "pad_cu_seqlens": captured}
    return Call(module, "PackedSequenceSpecs", keywords)


def preprocessed(plan: Plan) -> Mapping[str, Any]:
    """Return the fields for how samples are read, by path, with their class's defaults; empty if the data has none."""
    call = dataset(plan).kwargs.get("preprocessing")
    return fields_of(call) if call is not None else {}


def fields_of(call: Call) -> Mapping[str, Any]:
    """Return a preprocessing's fields by path, with its class's defaults."""
    every = (f for f in fields().values() if f.path.startswith(f"{PREPROCESSING}."))
    own = (f for f in every if not f.classes or call.name in f.classes)
    defaults = {f.path: f.others.get(call.name, f.default) for f in own}
    return defaults | {f"{PREPROCESSING}.{name}": value for name, value in call.kwargs.items()}


def masks_tokens(plan: Plan) -> bool:
    """Whether a rank may hold only masked tokens: true for fine-tuning and image datasets.

    Bridge then requires the loss per token under context parallelism (bridge training/config.py:1438).
    """
    return dataset(plan).name != "GPTDatasetConfig"


def tokenizer(plan: Plan) -> Mapping[str, Any]:
    """Return the tokenizer's fields. The model keeps its published vocabulary, whose parameters the plan counts."""
    published = {"use_tokenizer_vocab_size": False}
    if is_mock(plan) or family(plan.family).vision:
        none = {"tokenizer_type": "NullTokenizer", "tokenizer_model": None, "vocab_size": Ref("model.vocab_size")}
        return none | published
    # Bridge's validation overwrites `tokenizer.trust_remote_code` with these keywords, so setting the field alone has
    # no effect (bridge training/config.py:1277, training/tokenizers/config.py:98)
    loading: dict[str, Any] = {}
    if plan.revision and plan.set.get("tokenizer.tokenizer_model", plan.hf) == plan.hf:
        loading["revision"] = plan.revision
    if (trusts := {**plan.derived, **plan.set}.get("tokenizer.trust_remote_code")) is not None:
        loading["trust_remote_code"] = trusts
    keywords = {"hf_tokenizer_kwargs": loading} if loading else {}
    return {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": plan.hf, **keywords, **published}
