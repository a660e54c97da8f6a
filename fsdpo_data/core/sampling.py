"""Sampling settings, completions, and the ids of samples and solutions."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, StrictBool, StrictInt, with_config

from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.finish_reasons import FinishReason
from fsdpo_data.core.identity import ID_VERSION, EngineRef, ModelRef, digest
from fsdpo_data.core.options import Option, Options

#: Manifest value for missing information, such as the sampling settings of recorded responses.
UNKNOWN: Final = "unknown"

#: A count, which a column of a dataset stores in 32 bits.
Count = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
#: A finite number. A whole number stays an integer, so that it is written as it was read.
Number = StrictInt | Annotated[float, Field(strict=True, allow_inf_nan=False)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class SearchCost:
    """The cost of the search that found a solution, without the solution itself."""

    #: Tokens that the search generated for other solutions and prefixes; None if unknown.
    discarded_tokens: Count | None
    prm_calls: Count  #: Number of solutions and prefixes that the reward model scored.


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled continuation of a prompt.

    A completion that is read from a file is checked against the types of its fields. Completions
    of samplers are not checked.
    """

    text: str  #: The generated text without special tokens and stop string.
    #: ``stop`` (end-of-sequence or a stop string) or ``length`` (truncated at ``max_tokens``).
    finish_reason: FinishReason
    #: Number of generated tokens, including end-of-sequence; None if unknown.
    n_tokens: Count | None = None
    seconds: Seconds = 0.0  #: Part of the sampler's wall-clock time for this completion.
    #: The stop string that ended the completion; None after end-of-sequence or truncation.
    stop_string: str | None = None
    reasoning: str = ""  #: The thinking, if a server returns it in a separate field.
    #: Token ids of the solution so far, which may exceed the text by a part of the last token. None
    #: if the engine does not tell them, or the prompt has no ids. Never recorded.
    token_ids: tuple[StrictInt, ...] | None = None
    #: Lengths in characters of the steps, which join to the text; None to split the text.
    step_chars: tuple[Count, ...] | None = None
    step_rewards: tuple[Number, ...] | None = None  #: Reward of each step; None without rewards.
    imported_labels: tuple[Number, ...] | None = None  #: Imported label of each step, from 0 to 1.
    #: Imported rating of each step: -1, 0 or 1.
    imported_ratings: tuple[StrictInt, ...] | None = None
    imported_correct: StrictBool | None = None  #: Verdict of another grader; None without one.
    #: Cost of the search that found the solution; None without a search. All solutions of a search
    #: have the same number of tokens and discarded tokens together.
    search_cost: SearchCost | None = None
    #: Whether the engine would have named the stop string. If not, ``stop_string`` is None, and the
    #: reason of a stop is unknown. Never recorded.
    is_stop_known: StrictBool = True


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, and the start of a solution that the model continues.

    Text that is encoded again may have other tokens than the model generated. An engine with a
    tokenizer therefore continues from the ids. Other engines read the text.
    """

    text: str  #: The text of the prompt, without the start of the solution.
    #: The question without a template; None if unknown. Special tokens in it are text.
    question: str | None = None
    solution_text: str = ""  #: The start of the solution; empty without one.
    #: Ids of the start, which may reach beyond its text. None if the caller does not continue from
    #: ids.
    token_ids: tuple[int, ...] | None = None
    thinking_stops: tuple[str, ...] = ()  #: Stop strings that also apply inside the thinking.

    @property
    def full_text(self) -> str:
        """The text that the model continues: the prompt and the start of the solution."""
        return self.text + self.solution_text

    def extend(self, text: str, token_ids: tuple[int, ...] | None = None) -> "Prompt":
        """Return the prompt with a longer start of the solution.

        Args:
            text: The text after the start so far.
            token_ids: The ids of the complete start; None if they are unknown. Not used if the
                caller does not continue from ids.
        """
        if not text:
            return self
        if self.token_ids is None:
            token_ids = None
        return replace(self, solution_text=self.solution_text + text, token_ids=token_ids)

    @property
    def literal_spans(self) -> list[tuple[int, int]]:
        """Start and end in the full text of the question, and of the start of the solution.

        Special tokens in them are text. A template may strip the question, or print its first line
        and its other lines at two places.
        """
        question = self.question or ""
        parts = [question if question in self.full_text else question.strip()]
        if parts[0] not in self.full_text:
            first_line, _, other_lines = question.partition("\n")
            parts = [first_line.strip(), other_lines.strip()]
        spans = []
        for part in filter(None, parts):
            start = self.text.rfind(part)
            if start >= 0:
                spans.append((start, start + len(part)))
        return [*spans, (len(self.text), len(self.full_text))]


_TEMPERATURE = Field(ge=0)
_TOP_P = Field(gt=0, le=1)
_MAX_TOKENS = Field(ge=1)
MAX_SEED = 2**63 - 1  #: Largest random seed.
Seed = Annotated[int, Field(ge=0, le=MAX_SEED), Option(panel="Run")]


class SamplingSpec(Options):
    """Sampling settings. All of them change the samples, so all of them are in the digest."""

    n: Annotated[int, Field(ge=1)] = 32
    """Completions per prompt."""
    temperature: Annotated[float, _TEMPERATURE] = 0.8
    """Sampling temperature; 0 is greedy decoding."""
    top_p: Annotated[float, _TOP_P] = 1.0
    """Probability mass of nucleus sampling; 1 samples from all tokens."""
    max_tokens: Annotated[int, _MAX_TOKENS] = 1024
    """Maximum tokens per completion."""
    stop: Annotated[tuple[str, ...], Option(has_flag=False)] = ()
    """Strings that end a completion; the completion does not include them."""
    seed: Seed = 0
    """Random seed. Sample ``i`` of a prompt depends only on (seed, prompt, i), so a larger ``n`` or
    a resumed run does not change earlier samples.
    """

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if self.temperature == 0 and self.n > 1:
            message = (
                f"greedy decoding gives the same text {self.n} times. Use `n=1`, or a temperature "
                "above 0."
            )
            raise self.field_error("temperature", message)

    def prompt_seed(self, prompt: Prompt) -> int:
        """Return the seed of sample 0 of ``prompt``; sample ``i`` uses this plus ``i``."""
        key = f"{self.seed}\0{prompt.full_text}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1


class DeclaredSampling(Options):
    """Sampling settings that differ from other settings, or that are known of a recording."""

    temperature: Annotated[float | None, _TEMPERATURE] = None
    """Sampling temperature; 0 is greedy decoding."""
    top_p: Annotated[float | None, _TOP_P] = None
    """Probability mass of nucleus sampling."""
    max_tokens: Annotated[int | None, _MAX_TOKENS] = None
    """Maximum number of tokens per completion."""

    @property
    def values(self) -> dict[str, Any]:
        """The settings that are set, by name."""
        return {name: value for name, value in self if value is not None}

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """The names of the settings that are not set, and ``seed``."""
        names = tuple(name for name, value in self if value is None)
        return ("seed", *names)


class ContinuationSettings(FileModel):
    """Everything that determines the continuations of prompts."""

    model: ModelRef  #: The model that continues.
    sampling: SamplingSpec  #: Sampling settings; ``n`` is the number of continuations.
    engine: EngineRef  #: The engine that runs the model.


def sampling_id(
    model: ModelRef,
    template: str,
    sampling: SamplingSpec,
    recording: str = "",
    search: Mapping[str, Any] | None = None,
    request_fields: Mapping[str, Any] | None = None,
) -> str:
    """Return the id of a model, a template and sampling settings together.

    The number of samples ``n`` is not included: sample 3 of 8 and sample 3 of 32 are the same.

    Args:
        model: The sampled model.
        template: Digest of the prompt template.
        sampling: The sampling settings.
        recording: Digest of the recording, if the revision of the model is unknown.
        search: Settings of the search with its reward model; None without a search.
        request_fields: Further fields of each request to a server; None without any.
    """
    settings = sampling.model_dump(exclude={"n"})
    parts: list[Any] = [recording] if recording else []
    if search:
        parts.append(search)
    if request_fields:
        parts.append({"request_fields": request_fields})
    return digest("sampling", ID_VERSION, model, template, settings, *parts)


def solution_id(problem_id: str, sampling_digest: str, index: int) -> str:
    """Return the id of sample ``index`` of a problem; it does not depend on the sampled text.

    Args:
        problem_id: Id of the problem.
        sampling_digest: Id from :func:`sampling_id`.
        index: Index of the sample, from 0.
    """
    return digest("solution", ID_VERSION, problem_id, sampling_digest, index)


def add_tokens(tokens: int | None, other_tokens: int | None) -> int | None:
    """Add two token counts; the sum is None (unknown) if a count is None."""
    if tokens is None or other_tokens is None:
        return None
    return tokens + other_tokens
