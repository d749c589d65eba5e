"""Bridge's and Megatron-Core's own datasets, sampler, tokenizer and MTP loss on what recipes say of them: JSON on stdout.

Usage: python tests/oracles/ask_data.py QUESTION FOLDER, with what is asked in FOLDER/asked.json. Run as a script where Bridge is
installed.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import stand_ins

CORPUS = 200
"""Documents of the corpus."""
PATIENCE = 3
"""Seconds of a core for a build that takes a fraction of one."""


TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:{% if m['role'] == 'assistant' %}{% generation %}"
    "{{ m['content'] }}{% endgeneration %}{% else %}{{ m['content'] }}{% endif %};{% endfor %}"
)


def _letters(folder: Path) -> Any:
    """Bridge's tokenizer of a Hugging Face one that makes a token of every letter, with a chat template."""
    import tokenizers
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer
    from transformers import PreTrainedTokenizerFast

    known = {"<s>": 0, "</s>": 1} | {chr(c): c for c in range(2, 128)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="<s>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE)
    made.save_pretrained(folder / "letters")
    config = TokenizerConfig()
    config.tokenizer_type, config.tokenizer_model = "HuggingFaceTokenizer", str(folder / "letters")
    return build_tokenizer(config)


def _made(said: Any) -> Any:
    """An object from {"target", "kwargs"}, as a recipe builds it."""
    if not isinstance(said, dict) or "target" not in said:
        return said
    module, _, name = said["target"].rpartition(".")
    return getattr(importlib.import_module(module), name)(**{k: _made(v) for k, v in said["kwargs"].items()})


def corpus(folder: Path) -> Any:
    """What the dataset configuration makes of a small corpus: the samples to train, to validate and to test on."""
    import numpy
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    asked = json.loads((folder / "asked.json").read_text())
    prefix = str(folder / "corpus")
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.int32)
    for _ in range(CORPUS):
        builder.add_document(torch.arange(100), [100])
    builder.finalize(f"{prefix}.idx")
    asked["kwargs"] |= {"data_path": [prefix], "seq_length": 64}
    config = _made(asked)
    config.finalize()
    config.tokenizer, config.token_dtype_code = _letters(folder), 4
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        built = BlendedMegatronDatasetBuilder(GPTDataset, [64, 64, 64], lambda: True, config).build()
    except TimeoutError as late:
        return str(late)
    return [None if d is None else len(d) for d in built]


def _late(*_: Any) -> None:
    raise TimeoutError("still building")


def lines(folder: Path) -> Any:
    """What the dataset configuration reads of the folder's training.jsonl: the text, and how much of it is learned."""
    builders = importlib.import_module("megatron.bridge.data.builders.gpt_sft")
    asked = json.loads((folder / "asked.json").read_text())
    asked["kwargs"] |= {"dataset_root": str(folder), "seq_length": 64}
    config = _made(asked)
    config.finalize()
    sample = builders.GPTSFTDatasetBuilder(config, _letters(folder)).build()[0][0]
    ids = [int(i) for i in sample["input_ids"]]
    mask = sample.get("loss_mask")
    learned = (
        [i for i, m in zip(ids, mask, strict=True) if m] if mask is not None else ids[sample["answer_start_idx"] :]
    )
    return ["".join(map(chr, text)) for text in (ids, learned)]


def packed(folder: Path) -> Any:
    """What the dataset configuration makes of the folder: the width of its sequences, and where the samples of each
    end."""
    builders = importlib.import_module("megatron.bridge.data.builders.gpt_sft")
    asked = json.loads((folder / "asked.json").read_text())
    asked["kwargs"] |= {"dataset_root": str(folder)}
    config = _made(asked)
    config.finalize()
    train = builders.GPTSFTDatasetBuilder(config, _letters(folder)).build()[0]
    batch = train.collate_fn([train[i] for i in range(len(train))])
    return [batch["tokens"].shape[1], batch["cu_seqlens_q_padded"].tolist()]


def batches(folder: Path) -> Any:
    """Whole batches of a validation set of 40 rows for 8 replicas, by the batch that is asked; else the refusal."""
    from megatron.bridge.data.samplers import MegatronPretrainingBatchSampler

    out = []
    for batch in json.loads((folder / "asked.json").read_text()):
        sampler = MegatronPretrainingBatchSampler(40, 0, 1, batch, 0, 8, drop_last=True, seed=1)
        try:
            out.append(len(sampler))
        except AssertionError as error:
            out.append(str(error))
    return out


def tokenizers(folder: Path) -> Any:
    """Whether code of the tokenizer's own folder runs once Bridge has validated the fields: with each set of fields."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer

    out = []
    for fields in json.loads((folder / "asked.json").read_text()):
        config = TokenizerConfig()
        for name, value in {**fields, "tokenizer_model": str(folder / "own")}.items():
            setattr(config, name, value)
        config.__post_init__()  # as ConfigContainer.validate does
        try:
            out.append(type(build_tokenizer(config)._tokenizer.tokenizer).__module__.startswith("transformers_modules"))
        except Exception as error:
            out.append(type(error).__name__)
    return out


def mtp(folder: Path) -> Any:
    """Rows of 64 that MTP's loss gives a gradient, where 10 are answers: by the factor, without a mask and with it."""
    import torch
    from megatron.core.transformer.multi_token_prediction import process_mtp_loss

    def rows(factor: float, masked: bool, per_token: bool) -> Any:
        torch.manual_seed(0)
        hidden = torch.randn(128, 1, 11, requires_grad=True)
        mask = torch.zeros(1, 64)
        mask[0, 10:20] = 1
        config = type("Config", (), {})()
        vars(config).update(
            mtp_num_layers=1, mtp_detach_heads=False, mtp_loss_scaling_factor=factor, calculate_per_token_loss=per_token
        )

        def loss(labels: Any, logits: Any) -> Any:
            flat = logits.transpose(0, 1).reshape(-1, 11)
            return torch.nn.functional.cross_entropy(flat, labels.reshape(-1), reduction="none").view(1, 64)

        out = process_mtp_loss(
            hidden, torch.randint(0, 11, (1, 64)), mask if masked else None, lambda x, **_: (x, None), None, None, False,
            loss, config, cp_group=None,
        )  # fmt: skip
        out.sum().backward()
        mine = hidden.grad[64:, 0]  # type: ignore[index]
        return int((mine.abs().sum(-1) > 0).sum()) if bool(torch.isfinite(mine).all()) else "not finite"

    asked = [(0.1, False), (0.1, True), (0, False), (0, True)]
    return {str(per_token): [rows(f, m, per_token) for f, m in asked] for per_token in (True, False)}


def packs(folder: Path) -> Any:
    """The packs that Bridge makes of samples of these lengths."""
    import numpy
    from megatron.bridge.data.packing.algorithms import first_fit_shuffle

    numpy.random.seed(1)
    return first_fit_shuffle(*json.loads((folder / "asked.json").read_text()))


QUESTIONS: tuple[Callable[[Path], Any], ...] = (packed, packs, corpus, lines, batches, tokenizers, mtp)


def main() -> None:
    said = os.dup(1)
    os.dup2(2, 1)  # what the libraries print is no answer
    stand_ins.install_engine()
    signal.signal(signal.SIGPROF, _late)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577", RANK="0", WORLD_SIZE="1")
    ask = next(q for q in QUESTIONS if q.__name__ == sys.argv[1])
    os.write(said, json.dumps(ask(Path(sys.argv[2]))).encode())


if __name__ == "__main__":
    main()
