"""Training data of SFT: prompt/completion rows are checked and tokenised."""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import transformers

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_train.trainer.row_source import Row, TrainingData
from fsdpo_train.trainer.training_rows import CompletionRow

log = logging.getLogger(__name__)

COLUMNS = ("prompt", "completion")  #: The columns that a row needs.


class SftData(NamedTuple):
    """Tokenised prompt/completion rows."""

    rows: list[CompletionRow]  #: The rows; their ``group`` is the index of the prompt.
    too_long: int  #: Number of dropped rows that exceed the maximum length.
    unusable: int  #: Number of dropped rows without a prompt or with an empty completion.


def encode_rows(
    data: TrainingData, tokenizer: transformers.PreTrainedTokenizerBase, max_length: int
) -> SftData:
    """Tokenise rows, and drop rows that are too long or unusable.

    SFT, PRM training and preference training use the same token ids. A model generates the same ids
    after the prompt.

    Raises:
        InputError: if a source has no rows, or no row of it has a required column.
    """
    step_tokenizer = StepTokenizer(tokenizer)
    encoded_rows: list[CompletionRow] = []
    group_indices: dict[str, int] = {}
    n_rows = too_long = unusable = 0
    for row in _checked_rows(data):
        n_rows += 1
        prompt = row.get("prompt")
        completion = row.get("completion")
        if not (isinstance(prompt, str) and isinstance(completion, str) and completion.strip()):
            unusable += 1
            continue
        has_eos = completion.endswith(str(tokenizer.eos_token))
        encoded = step_tokenizer.encode(prompt, [completion], add_eos=not has_eos)
        if len(encoded.input_ids) > max_length:
            too_long += 1
            continue
        encoded_row = CompletionRow(
            input_ids=np.array(encoded.input_ids, np.int32),
            n_prompt=max(1, encoded.prompt_length),  # no token predicts the first token
            length=len(encoded.input_ids),
            group=group_indices.setdefault(prompt, len(group_indices)),
        )
        encoded_rows.append(encoded_row)
    if too_long:
        log.info(f"dropped {too_long} of {n_rows} rows: longer than {max_length} tokens")
    if unusable:
        log.info(f"dropped {unusable} of {n_rows} rows: no prompt or an empty completion")
    return SftData(rows=encoded_rows, too_long=too_long, unusable=unusable)


def _checked_rows(data: TrainingData) -> Iterator[Row]:
    """Yield all rows, and check the columns at the end of each source."""
    for source in data.sources:
        columns: dict[str, None] = {}  # an ordered set
        for _, row in source.rows():
            columns |= dict.fromkeys(row)
            yield row
        _check_columns(source.name, columns)


def _check_columns(source_name: str, columns: Iterable[str]) -> None:
    """Raise an InputError if a source is empty, or a column is missing in all rows."""
    column_names = list(columns)
    if not column_names:
        raise InputError(
            "the file is empty; expected prompt/completion rows.", field="data", value=source_name
        )
    missing = [name for name in COLUMNS if name not in column_names]
    if missing:
        raise InputError(
            f"the columns {', '.join(map(repr, missing))} are missing. The file has "
            f"{', '.join(map(repr, column_names))}. Rename the columns to 'prompt' and "
            "'completion'.",
            field="data",
            value=source_name,
        )
