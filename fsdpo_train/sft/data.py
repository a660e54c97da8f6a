"""The data side of SFT: rows tokenised and batched."""

import logging
from typing import Any

import numpy as np
import transformers

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_train.trainer.row_source import RowSource

log = logging.getLogger(__name__)

COLUMNS = ("prompt", "completion")  #: What a row needs.


def encode_rows(
    source: RowSource, tokenizer: transformers.PreTrainedTokenizerBase, max_length: int
) -> tuple[list[dict[str, Any]], int, int]:
    """Tokenise rows; return those that fit, and how many were too long and unusable.

    Token ids are those of PRM and preference training: what a model generates after the prompt.

    Returns:
        Rows of ``input_ids`` (int32 arrays), ``n_prompt``, the tokens without loss, and ``length``;
        those of one ``group`` have one prompt.

    Raises:
        InputError: if there is no row, or none has a column.
    """
    encoder = StepTokenizer(tokenizer)
    found: list[dict[str, Any]] = []
    columns: dict[str, None] = {}
    groups: dict[str, int] = {}
    rows = too_long = unusable = 0
    for _, row in source.rows():
        rows += 1
        columns |= dict.fromkeys(row)
        prompt, completion = (row.get(name) for name in COLUMNS)
        if not (isinstance(prompt, str) and isinstance(completion, str) and completion.strip()):
            unusable += 1
            continue
        ended = completion.endswith(str(tokenizer.eos_token))
        encoded = encoder.encode(prompt, [completion], add_eos=not ended)
        if len(encoded.input_ids) > max_length:
            too_long += 1
            continue
        made = {
            "input_ids": np.array(encoded.input_ids, np.int32),
            "n_prompt": max(1, encoded.prompt_length),  # nothing predicts the first token
            "length": len(encoded.input_ids),
            "group": groups.setdefault(prompt, len(groups)),
        }
        found.append(made)
    if not rows:
        raise InputError("the file is empty; expected prompt/completion rows.", field="data")
    if missing := [name for name in COLUMNS if name not in columns]:
        raise InputError(
            f"no column {' and no column '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, columns))}. Rename the columns to 'prompt' and 'completion'.",
            field="data",
        )
    if too_long:
        log.info(f"dropped {too_long} of {rows} rows: longer than {max_length} tokens")
    if unusable:
        log.info(f"dropped {unusable} of {rows} rows: no prompt or an empty completion")
    return found, too_long, unusable
