"""Training data of SFT: prompt/completion rows are checked and tokenised."""

import logging
from collections.abc import Collection
from typing import NamedTuple

import transformers

from fsdpo_data.core.sampling import Prompt
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_train.trainer.batching import SolutionRow
from fsdpo_train.trainer.row_source import TrainingData, read_question

log = logging.getLogger(__name__)


class SftData(NamedTuple):
    """Tokenised prompt/completion rows."""

    rows: list[SolutionRow]  #: The rows; their ``group`` is the index of the prompt.
    too_long: int  #: Number of dropped rows that exceed the maximum length.
    unusable: int  #: Number of dropped rows without a prompt or with an empty completion.


def encode_rows(
    data: TrainingData,
    tokenizer: transformers.PreTrainedTokenizerBase,
    max_length: int,
    eos_ids: Collection[int],
) -> SftData:
    """Tokenise rows, and drop rows that are too long or unusable.

    SFT, PRM training and preference training use the same token ids. A model generates the same ids
    after the prompt.

    Args:
        data: The rows.
        tokenizer: The tokenizer of the model.
        max_length: Maximum number of tokens of prompt and completion.
        eos_ids: All ids that end a sequence of the model.
    """
    step_tokenizer = StepTokenizer(tokenizer, eos_ids)
    encoded_rows: list[SolutionRow] = []
    group_indices: dict[str, int] = {}
    n_rows = too_long = unusable = 0
    for _, row in data.rows():
        n_rows += 1
        prompt = row.get("prompt")
        completion = row.get("completion")
        if not (isinstance(prompt, str) and isinstance(completion, str) and completion.strip()):
            unusable += 1
            continue
        solution = step_tokenizer.encode(
            Prompt(prompt, read_question(row)), [completion], add_eos=True
        )
        if len(solution.input_ids) > max_length:
            too_long += 1
            continue
        group = group_indices.setdefault(prompt, len(group_indices))
        encoded_rows.append(
            SolutionRow(solution=solution, length=len(solution.input_ids), group=group)
        )
    if too_long:
        log.info(f"dropped {too_long} of {n_rows} rows: longer than {max_length} tokens")
    if unusable:
        log.info(f"dropped {unusable} of {n_rows} rows: no prompt or an empty completion")
    return SftData(rows=encoded_rows, too_long=too_long, unusable=unusable)
