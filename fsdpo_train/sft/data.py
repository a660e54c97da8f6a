"""The data side of SFT: rows read, tokenised and batched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.samplers.tokens import encode_prompt

if TYPE_CHECKING:
    import datasets
    import torch
    import transformers

#: Label of a position that carries no loss.
IGNORE = -100

_COLUMNS = ("prompt", "completion")


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
    head = encode_prompt(tokenizer, prompt)
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
