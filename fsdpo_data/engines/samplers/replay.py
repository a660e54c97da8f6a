"""Samplers that replay recorded completions: a way to rerun a build."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import text_key
from fsdpo_data.core.jsonl_log import LineSpan, read_spans
from fsdpo_data.core.sampling import Completion, SamplingSpec, is_completion
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler
from fsdpo_data.models.resolve import ResolvedWeights


class BaseReplaySampler(StreamingSampler):
    """Gives what was recorded of each prompt."""

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield the first ``spec.n`` recorded completions of each prompt."""
        for place, prompt in enumerate(prompts):
            yield place, self._replay(prompt, spec.n)

    def _replay(self, prompt: str, n: int) -> list[Completion]:
        raise NotImplementedError


class ReplaySampler(BaseReplaySampler):
    """Replays the ``completions.jsonl`` of an earlier run, matched by prompt.

    The file holds ``{"prompt": …, "completions": […]}`` a line; lines of one prompt add up. It is
    indexed once, and may be larger than memory. ``weights`` are said to have written them.

    Raises:
        InputError: for a prompt that was not recorded, or not often enough.
    """

    def __init__(self, weights: ResolvedWeights, options: SamplerOptions) -> None:
        assert options.replay is not None
        self.model = weights.ref
        self._file = Path(options.replay)
        self._spans = _index(self._file)

    def _replay(self, prompt: str, n: int) -> list[Completion]:
        lines = read_spans(self._file, self._spans.get(text_key(prompt), ()))
        recorded = [each for line in lines for each in line["completions"]]
        asked = f"recorded for the prompt {prompt[:80]!r}"
        if len(recorded) < n:
            raise _unusable(
                self._file,
                f"{len(recorded) or 'no'} completions were {asked}, {n} asked for. Ask for fewer, "
                "or use the file with the problems and the template that made it.",
            )
        # What others have recorded may not say what it took.
        untold: dict[str, Any] = {"n_tokens": None, "seconds": 0.0}
        made = [untold | each for each in recorded[:n] if isinstance(each, dict)]
        if len(made) < n or not all(map(is_completion, made)):
            raise _unusable(self._file, f"what was {asked} is not whole. Record it again.")
        return [Completion(**each) for each in made]


def _index(path: Path) -> dict[bytes, list[LineSpan]]:
    spans: dict[bytes, list[LineSpan]] = {}
    start = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    record = orjson.loads(line)
                    prompt, told = str(record["prompt"]), isinstance(record["completions"], list)
                except (ValueError, KeyError, TypeError):
                    told = False
                if not told:
                    raise _unusable(
                        path,
                        f"line {number}: expected one JSON object with `prompt` and `completions`, "
                        "as in the completions.jsonl of a run.",
                    )
                spans.setdefault(text_key(prompt), []).append(LineSpan(start, len(line)))
                start += len(line)
    except OSError as error:
        raise _unusable(path, f"{error.strerror}. Expected recorded completions.") from None
    if not spans:
        raise _unusable(path, "the file is empty. Expected recorded completions.")
    return spans


def _unusable(path: Path, message: str) -> InputError:
    return InputError(message, field="replay", value=path)
