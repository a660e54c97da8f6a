"""The data side of SFT: rows read, tokenised and batched."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_data.problems.hub_datasets import HubSource, load_hub

if TYPE_CHECKING:
    import datasets
    import torch
    import transformers

log = logging.getLogger(__name__)

#: Label of a position that carries no loss.
IGNORE = -100

_COLUMNS = ("prompt", "completion")


def read_rows(data: Path) -> tuple[str, datasets.Dataset]:
    """Read rows of ``prompt`` and ``completion``; return what identifies them by content, too.

    Args:
        data: A JSONL or parquet file, or ``org/name[@revision]`` on the Hub.

    Raises:
        InputError: if there are none, or they are malformed or lack a column.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    source = None if data.exists() else HubSource.parse(str(data), {})
    if source is not None:
        import datasets

        commit, ((_, records),) = load_hub(source, "train")
        identity = f"{source.name}@{commit}"
        rows = datasets.Dataset.from_list([dict(each.fields) for each in records])
    else:
        identity, rows = file_sha256(data) if data.is_file() else "", _file_rows(data)
    missing = [name for name in _COLUMNS if name not in rows.column_names]
    if not len(rows):
        raise _unusable(data, "no rows; expected prompt/completion rows.")
    if missing:
        raise _unusable(
            data,
            f"no column {' and no column '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, rows.column_names))}. Rename the columns to 'prompt' and "
            "'completion'.",
        )
    return identity, rows.select_columns(list(_COLUMNS))


def _file_rows(path: Path) -> datasets.Dataset:
    import datasets

    kind = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}.get(path.suffix)
    if kind is None:
        raise _unusable(path, "expected a file named .jsonl or .parquet, or org/name of the Hub.")
    if not path.is_file():
        raise _unusable(path, "no such file. Give a JSONL or parquet file.")
    if path.stat().st_size == 0:
        raise _unusable(path, "the file is empty; expected prompt/completion rows.")
    try:
        return datasets.load_dataset(kind, data_files=str(path), split="train")
    except (datasets.exceptions.DatasetGenerationError, ValueError, OSError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise _unusable(path, f"not readable as {kind} rows: {reason}") from error


def _unusable(data: Path, reason: str) -> InputError:
    return InputError(reason, field="data", value=str(data))


def encode_pair(
    tokenizer: transformers.PreTrainedTokenizerBase, prompt: str, completion: str
) -> tuple[list[int], int]:
    """Return the token ids of one row, end-of-sequence included, and how many are the prompt's.

    They are those of PRM and preference training: what a model generates after the prompt.
    """
    ended = completion.endswith(tokenizer.eos_token)
    encoded = _encoder(tokenizer).encode(prompt, [completion], end=not ended)
    return encoded.ids, encoded.n_prompt


#: Made once for all rows, and out of sight of ``datasets``, which hashes what it maps.
_encoder = lru_cache(maxsize=1)(StepTokenizer)


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
        log.info(f"dropped {too_long} of {len(lengths)} rows: longer than {max_length} tokens")
    if unusable:
        log.info(f"dropped {unusable} of {len(lengths)} rows: no prompt or an empty completion")
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
