"""Supervised fine-tuning on prompt/completion rows; the loop is ``transformers.Trainer``."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsdpo_data
from fsdpo_data.errors import InputError, RunMismatch, Unavailable
from fsdpo_data.identity import file_sha256
from fsdpo_train.config import SftConfig, resolve_model

if TYPE_CHECKING:
    import datasets
    import transformers

#: Label of a position that carries no loss.
IGNORE = -100

_STATE = "sft.json"
_COLUMNS = ("prompt", "completion")
#: Length groups are sorted inside pools of this many batches: little padding, much disorder.
_POOL = 50


@dataclass(frozen=True, slots=True)
class SftReport:
    """What a run did.

    Attributes:
        out: Directory of the trained model.
        rows: Rows trained on.
        too_long: Rows dropped because they exceed the context length.
        unusable: Rows dropped because the prompt is missing or the completion empty.
        tokens: Tokens per epoch that carry loss.
        steps: Optimizer steps, those before a resume included.
        loss: Mean loss over the last logging window.
    """

    out: Path
    rows: int
    too_long: int
    unusable: int
    tokens: int
    steps: int
    loss: float


def train_sft(config: SftConfig) -> SftReport:
    """Train as ``config`` says and write model, tokenizer and card to ``config.out``.

    Raises:
        InputError: if the data or an option cannot be used.
        RunMismatch: if ``config.out`` belongs to another run.
        Unavailable: if a model, tracker or package is not here.
    """
    import transformers

    rows = read_rows(config.data)
    identity = {**config.identity(), "data": file_sha256(config.data)}
    _check_out(config, identity)
    transformers.set_seed(config.seed)
    model, tokenizer = _start(config)
    encoded, too_long, unusable = encode_rows(rows, tokenizer, _context(config, model))
    if not len(encoded):
        raise InputError(
            f"{config.data}: no row is left to train on; {too_long} exceed the context length "
            f"and {unusable} have no prompt or an empty completion. Check the file, or raise "
            "--max-length."
        )
    trainer = _trainer(config, model, tokenizer, encoded)
    # Only now is the directory this run's: a start that failed may be tried again, and every
    # process of a distributed run has found it free.
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        (config.out / _STATE).write_text(json.dumps(identity, indent=2) + "\n")
    trainer.train(resume_from_checkpoint=_last_checkpoint(config))
    trainer.save_model(str(config.out))
    report = SftReport(
        out=config.out,
        rows=len(encoded),
        too_long=too_long,
        unusable=unusable,
        tokens=sum(encoded["loss_tokens"]),
        steps=trainer.state.global_step,
        loss=_last_loss(trainer.state.log_history),
    )
    if trainer.is_world_process_zero():
        _write_card(config, identity, report)
    return report


def read_rows(path: Path) -> datasets.Dataset:
    """Read a JSONL or parquet file with the columns ``prompt`` and ``completion``.

    Raises:
        InputError: if the file is missing, empty, malformed or lacks a column.
    """
    import datasets

    kinds = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
    kind = kinds.get(path.suffix)
    if kind is None:
        raise InputError(f"--data {path}: expected a file named .jsonl or .parquet.")
    if not path.is_file():
        raise InputError(f"--data {path}: no such file. Give a JSONL or parquet file.")
    if path.stat().st_size == 0:
        raise InputError(f"--data {path}: the file is empty; expected prompt/completion rows.")
    try:
        rows = datasets.load_dataset(kind, data_files=str(path), split="train")
    except (datasets.exceptions.DatasetGenerationError, ValueError, OSError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise InputError(f"--data {path}: not readable as {kind} rows: {reason}") from error
    missing = [name for name in _COLUMNS if name not in rows.column_names]
    if missing:
        raise InputError(
            f"--data {path}: no column {' and no column '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, rows.column_names))}. Rename the columns to 'prompt' and "
            "'completion'."
        )
    if not len(rows):
        raise InputError(f"--data {path}: no rows; expected prompt/completion rows.")
    return rows.select_columns(list(_COLUMNS))


def encode_pair(
    tokenizer: transformers.PreTrainedTokenizerBase, prompt: str, completion: str
) -> tuple[list[int], int]:
    """Return the token ids of one row, end-of-sequence included, and how many are the prompt's.

    The two parts are tokenised apart, as they are when the model continues a prompt.
    """
    head = tokenizer(prompt)["input_ids"]
    if head and head[-1] == tokenizer.eos_token_id:
        head = head[:-1]
    tail = tokenizer(completion, add_special_tokens=False)["input_ids"]
    if tail[-1:] != [tokenizer.eos_token_id]:
        tail = [*tail, tokenizer.eos_token_id]
    return head + tail, len(head)


def encode_rows(
    rows: datasets.Dataset, tokenizer: transformers.PreTrainedTokenizerBase, max_length: int
) -> tuple[datasets.Dataset, int, int]:
    """Tokenise rows; return those that fit, and how many were too long and unusable."""

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        prompt, completion = row["prompt"], row["completion"]
        if not (isinstance(prompt, str) and isinstance(completion, str) and completion.strip()):
            return {"input_ids": [], "labels": [], "length": 0, "loss_tokens": 0}
        ids, n_prompt = encode_pair(tokenizer, prompt, completion)
        labels = [IGNORE] * n_prompt + ids[n_prompt:]
        fits = {"length": len(ids), "loss_tokens": len(ids) - n_prompt}
        return {"input_ids": ids, "labels": labels, **fits}

    encoded = rows.map(encode, remove_columns=list(_COLUMNS), desc="Tokenising")
    lengths = encoded["length"]
    kept = [i for i, length in enumerate(lengths) if 0 < length <= max_length]
    unusable = sum(length == 0 for length in lengths)
    too_long = len(lengths) - len(kept) - unusable
    if too_long:
        print(f"dropped {too_long} of {len(lengths)} rows: longer than {max_length} tokens")
    if unusable:
        print(f"dropped {unusable} of {len(lengths)} rows: no prompt or an empty completion")
    return encoded.select(kept), too_long, unusable


def collate(rows: Sequence[dict[str, list[int]]], pad_id: int) -> dict[str, Any]:
    """Pad rows on the right to one width, whichever side the tokenizer pads when sampling."""
    import torch

    width = max(len(row["input_ids"]) for row in rows)

    def padded(lists: Iterable[list[int]], fill: int) -> torch.Tensor:
        return torch.tensor([values + [fill] * (width - len(values)) for values in lists])

    return {
        "input_ids": padded((row["input_ids"] for row in rows), pad_id),
        "attention_mask": padded(([1] * len(row["input_ids"]) for row in rows), 0),
        "labels": padded((row["labels"] for row in rows), IGNORE),
    }


def grouped_order(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int, group: bool = True
) -> Iterator[int]:
    """Yield row numbers so that batches hold rows of like length and still come in random order.

    A function of (seed, epoch) alone, so that a resumed run sees the order of an unbroken one.
    """
    rng = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    if not group:
        yield from order
        return
    for start in range(0, len(order), batch_size * _POOL):
        pool = sorted(order[start : start + batch_size * _POOL], key=lambda i: lengths[i])
        batches = [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
        # A short last batch must stay last, or every later batch would straddle two groups.
        tail = batches.pop() if len(batches[-1]) < batch_size else []
        rng.shuffle(batches)
        for batch in [*batches, tail]:
            yield from batch


def _check_out(config: SftConfig, identity: dict[str, str]) -> None:
    """Refuse a directory that belongs to something else."""
    state = config.out / _STATE
    if not state.exists():
        if (config.out / "config.json").exists():
            raise InputError(f"--out {config.out}: already holds a model. Choose a new --out.")
        config.out.mkdir(parents=True, exist_ok=True)
        return
    if not config.resume:
        raise InputError(
            f"--out {config.out}: already holds a run. Add --resume to continue it, or choose a "
            "new --out."
        )
    before = json.loads(state.read_text())
    changed = {key for key in before.keys() | identity if before.get(key) != identity.get(key)}
    if changed:
        raise RunMismatch(
            f"{config.out} was started with other options; these differ: {sorted(changed)}. "
            "Resume with the options of the first start, or choose a new --out."
        )


def _start(config: SftConfig) -> tuple[Any, Any]:
    """Load the checkpoint, or draw random weights for the given architecture."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    try:
        if config.from_config is not None:
            folder = config.from_config
            folder = folder.parent if folder.suffix == ".json" else folder
            architecture = AutoConfig.from_pretrained(str(config.from_config))
            tokenizer = AutoTokenizer.from_pretrained(str(folder))
            model = AutoModelForCausalLM.from_config(architecture, dtype=torch.float32)
        else:
            name = resolve_model(str(config.model))
            tokenizer = AutoTokenizer.from_pretrained(name, revision=config.revision)
            # Float32 whatever the file holds: at 1e-5, updates to bfloat16 weights round away.
            model = AutoModelForCausalLM.from_pretrained(
                name, revision=config.revision, dtype=torch.float32, use_safetensors=True
            )
    except (OSError, ValueError) as error:
        source = (
            f"--model {config.model}" if config.model else f"--from-config {config.from_config}"
        )
        reason = str(error).splitlines()[0]
        raise Unavailable(
            f"{source}: {reason} Expected config.json, tokenizer files and, for --model, "
            "safetensors weights."
        ) from error
    _check_tokenizer(tokenizer, model)
    return model, tokenizer


def _check_tokenizer(tokenizer: Any, model: Any) -> None:
    if tokenizer.eos_token_id is None:
        raise InputError("the tokenizer has no end-of-sequence token; SFT could not end an answer.")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    size = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > size:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens but the model embeds only {size}. "
            "Use the tokenizer the model was made with, or set vocab_size in config.json."
        )


def _context(config: SftConfig, model: Any) -> int:
    context = getattr(model.config, "max_position_embeddings", None) or config.max_length
    if config.max_length > context:
        raise InputError(f"--max-length {config.max_length}: the model reads {context} tokens.")
    return config.max_length or context or 2**31


def _trainer(config: SftConfig, model: Any, tokenizer: Any, rows: datasets.Dataset) -> Any:
    """Set up ``transformers.Trainer`` with an order of its own."""
    import torch
    import transformers

    class Order(torch.utils.data.Sampler):  # type: ignore[type-arg]
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return len(lengths)

        def __iter__(self) -> Iterator[int]:
            size, group = config.batch_size, config.group_by_length
            return grouped_order(lengths, size, config.seed, self.epoch, group)

    class Trainer(transformers.Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Order:
            return Order()

    lengths = rows["length"][:]
    return Trainer(
        model=model,
        args=_arguments(config),
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=lambda batch: collate(batch, tokenizer.pad_token_id),
    )


def _arguments(config: SftConfig) -> Any:
    import torch
    from transformers import TrainingArguments
    from transformers.integrations import get_available_reporting_integrations
    from transformers.trainer_utils import SchedulerType

    schedules = [kind.value for kind in SchedulerType]
    if config.schedule not in schedules:
        raise InputError(f"--schedule {config.schedule}: expected one of {', '.join(schedules)}.")
    known = ["none", *get_available_reporting_integrations()]
    if config.report_to not in known:
        raise Unavailable(
            f"--report-to {config.report_to}: not installed here; expected {' or '.join(known)}."
        )
    try:
        return TrainingArguments(
            output_dir=str(config.out / "checkpoints"),
            num_train_epochs=config.epochs,
            max_steps=config.max_steps or -1,
            per_device_train_batch_size=config.batch_size,
            gradient_accumulation_steps=config.grad_accum,
            learning_rate=config.lr,
            lr_scheduler_type=config.schedule,
            warmup_steps=config.warmup,
            weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
            max_grad_norm=config.max_grad_norm,
            bf16=config.bf16,
            use_cpu=not torch.cuda.is_available(),
            gradient_checkpointing=config.gradient_checkpointing,
            deepspeed=str(config.deepspeed) if config.deepspeed else None,
            report_to=config.report_to,
            logging_steps=config.log_every,
            save_strategy="steps" if config.save_every else "no",
            save_steps=config.save_every or 500,
            save_total_limit=config.save_limit,
            seed=config.seed,
            dataloader_pin_memory=torch.cuda.is_available(),
        )
    except ImportError as error:
        raise Unavailable(f"{error} Install fsdpo[train], or fsdpo[deepspeed].") from error
    except ValueError as error:
        raise InputError(f"these options do not go together: {error}") from error


def _last_checkpoint(config: SftConfig) -> str | None:
    """Return the newest checkpoint to resume from; None starts at the beginning."""
    from transformers.trainer_utils import get_last_checkpoint

    folder = config.out / "checkpoints"
    return get_last_checkpoint(str(folder)) if config.resume and folder.is_dir() else None


def _last_loss(history: list[dict[str, float]]) -> float:
    losses = [entry["loss"] for entry in history if "loss" in entry]
    return losses[-1] if losses else float("nan")


def _write_card(config: SftConfig, identity: dict[str, str], report: SftReport) -> None:
    """Write a model card: what the weights were made from, and how."""
    import torch
    import transformers

    versions = {
        "fsdpo": fsdpo_data.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    table = "\n".join(f"| {key} | `{value}` |" for key, value in {**identity, **versions}.items())
    (config.out / "README.md").write_text(
        f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [sft, fsdpo]
---

# {config.out.resolve().name}

Supervised fine-tuning of `{config.model or config.from_config}`: {report.rows} rows,
{report.tokens} tokens with loss per epoch, {report.steps} optimizer steps, final loss
{report.loss:.4f}. {report.too_long} rows exceeded the context length and {report.unusable} were
unusable; they were left out.

| option | value |
| --- | --- |
{table}

`data` is the SHA-256 of the training file.
"""
    )
