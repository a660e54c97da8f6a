"""A sampler that returns recorded completions instead of running a model."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import orjson

from fsdpo_data.core.completion_records import load_completions
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import text_key
from fsdpo_data.core.input_files import check_regular_file, parse_json
from fsdpo_data.core.jsonl_log import LineSpan, read_spans
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers.base import SampleResult
from fsdpo_data.models.resolve import ResolvedWeights

#: Cost of a completion in a file of another tool, which may leave its fields out.
_UNKNOWN_COST = {"n_tokens": None, "seconds": 0.0}
_MAX_QUOTED_CHARS = 80  #: Characters of a prompt in an error message.


class ReplaySampler:
    """A sampler that replays the ``completions.jsonl`` of an earlier run.

    Each line of the file holds ``{"prompt": …, "completions": […]}``. Several lines with the same
    prompt are joined. The file is indexed once and read line by line, so it may be larger than
    memory. ``weights`` name the model that wrote the completions; they are not loaded.

    Raises:
        InputError: if the file cannot be read, or has too few completions of a prompt.
    """

    def __init__(self, weights: ResolvedWeights, options: SamplerOptions) -> None:
        assert options.replay is not None
        self.model = weights.ref
        self._file = Path(options.replay)
        self._spans = _index_prompts(self._file)

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield the first ``spec.n`` recorded completions of each prompt."""
        for index, prompt in enumerate(prompts):
            yield index, self._replay(prompt.full_text, spec.n)

    def _replay(self, prompt: str, n: int) -> list[Completion]:
        """Return the first ``n`` recorded completions of a prompt."""
        lines = read_spans(self._file, self._spans.get(text_key(prompt), ()))
        records = [record for line in lines for record in line["completions"]]
        quoted_prompt = repr(prompt[:_MAX_QUOTED_CHARS])
        if len(records) < n:
            raise _replay_error(
                self._file,
                f"the file has {len(records) or 'no'} completions of the prompt {quoted_prompt}, "
                f"but {n} are needed. Sample fewer, or use the file with the problems and the "
                "template of its run.",
            )
        try:
            completions = load_completions([{**_UNKNOWN_COST, **record} for record in records[:n]])
        except (TypeError, ValueError):
            raise _replay_error(
                self._file,
                f"a completion of the prompt {quoted_prompt} is incomplete, or has a field of "
                "another type. Record the completions again.",
            ) from None
        # A replay splits the text with the segmenter of its run, so recorded steps do not count.
        return [
            replace(
                completion,
                step_chars=None,
                step_rewards=None,
                imported_labels=None,
                imported_ratings=None,
            )
            for completion in completions
        ]


def _index_prompts(path: Path) -> dict[bytes, list[LineSpan]]:
    """Return the spans of the lines of each prompt, by the key of the prompt."""
    spans: dict[bytes, list[LineSpan]] = {}
    offset = 0
    try:
        check_regular_file(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                record = _read_record(line)
                if record is None:
                    raise _replay_error(
                        path,
                        f"line {number}: expected one JSON object with `prompt` and `completions`, "
                        "as in the completions.jsonl of a run.",
                    )
                spans.setdefault(text_key(record.prompt), []).append(LineSpan(offset, len(line)))
                offset += len(line)
    except OSError as error:
        raise _replay_error(path, f"{error.strerror}. Expected recorded completions.") from None
    if not spans:
        raise _replay_error(path, "the file is empty. Expected recorded completions.")
    return spans


def count_completions(path: Path, prompts: Collection[str]) -> int:
    """Return the largest number of completions of one of the prompts; 1 if the file has none.

    A recording in rounds has the lines of a prompt far apart, so all lines count. The sampler reads
    the file later, and names what is wrong with it.
    """
    counts: Counter[str] = Counter()
    try:
        check_regular_file(path)
        with path.open("rb") as file:
            for record in filter(None, map(_read_record, file)):
                if record.prompt in prompts:
                    counts[record.prompt] += record.n_completions
    except (OSError, InputError):
        return 1
    return max([1, *counts.values()])


class _Record(NamedTuple):
    """A line of recorded completions."""

    prompt: str  #: The prompt.
    n_completions: int  #: Number of its completions in this line.


def _read_record(line: bytes) -> _Record | None:
    """Return the record of a line; None if the line is not a record of completions."""
    try:
        record = parse_json(line, orjson.loads)
        prompt = str(record["prompt"])
        completions = record["completions"]
    except (ValueError, KeyError, TypeError):
        return None
    return _Record(prompt, len(completions)) if isinstance(completions, list) else None


def _replay_error(path: Path, message: str) -> InputError:
    return InputError(message, field="replay", value=path)
