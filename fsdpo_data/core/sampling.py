"""How completions are sampled, what comes back, and the ids that follow from it."""

import hashlib
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Final, Literal, get_args

from fsdpo_data.core.identity import ID_VERSION, ModelRef, digest
from fsdpo_data.core.options import Option, Options

#: What a manifest says of what nobody has stated, such as how a recording was sampled.
UNKNOWN: Final = "unknown"

FinishReason = Literal["stop", "length"]
#: What servers and files call the end of a completion that is cut off: ``length`` here.
LENGTH_FINISH_REASONS: Final = ("length", "max_tokens", "model_length", "content_filter")


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled continuation of a prompt."""

    text: str  #: What the model wrote, special tokens and stop string removed, else untouched.
    #: ``stop`` (end-of-sequence or a stop string) or ``length`` (cut at ``max_tokens``).
    finish_reason: FinishReason
    #: Tokens generated, end-of-sequence included; None where nobody has counted.
    n_tokens: int | None = None
    seconds: float = 0.0  #: This completion's share of the sampler's wall-clock time.
    #: The stop string that ended it; None if it ended by itself or on length.
    stop_string: str | None = None
    reasoning: str = ""  #: What the model thought before, where a server tells that apart.
    thinking_tokens: int | None = None  #: Those of ``n_tokens`` that are thinking, if counted.


@dataclass(frozen=True, slots=True)
class SamplingSpec(Options):
    """How to sample. Everything in it changes what comes out, so all of it is in the digest.

    Attributes:
        n: Completions per prompt (the paper's M).
        temperature: 0 is greedy.
        max_tokens: Tokens per completion at most.
        stop: Strings that end a completion; they are not part of its text.
        seed: Sample ``i`` of a prompt depends on (seed, prompt, i) only, so raising ``n`` or
            resuming a run changes no earlier sample.
        max_think_tokens: Tokens after which thinking is closed and the answer asked for; None
            leaves the model to it.
    """

    n: Annotated[int, Option(min=1)] = 32
    temperature: Annotated[float, Option(min=0)] = 0.8
    top_p: Annotated[float, Option(exclusive_min=0, max=1)] = 1.0
    max_tokens: Annotated[int, Option(min=1)] = 1024
    stop: tuple[str, ...] = ()
    seed: int = 0
    max_think_tokens: Annotated[int | None, Option(min=1)] = None

    def __post_init__(self) -> None:
        Options.__post_init__(self)  # a class with slots has no super() of its own
        if self.max_think_tokens is not None and self.max_think_tokens >= self.max_tokens:
            told = f"expected fewer than the {self.max_tokens} tokens of all."
            raise self.field_error("max_think_tokens", told)
        if self.temperature == 0 and self.n > 1:
            told = f"greedy decoding gives the same text {self.n} times. Use `n=1`, or a "
            raise self.field_error("temperature", f"{told}temperature above 0.")

    def to_json_values(self) -> dict[str, Any]:
        """Return the fields as plain values, without what is not asked for."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def prompt_seed(self, prompt: str) -> int:
        """Return the seed of sample 0 of ``prompt``; sample ``i`` uses this plus ``i``."""
        key = f"{self.seed}\0{prompt}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1


def sampling_id(model: ModelRef, template: str, sampling: SamplingSpec) -> str:
    """Digest who was asked and how.

    ``sampling.n`` is left out: sample 3 of 8 and sample 3 of 32 are the same sample.
    """
    how = {key: value for key, value in sampling.to_json_values().items() if key != "n"}
    return digest("sampling", ID_VERSION, model, template, how)


def solution_id(problem_id: str, sampling_digest: str, index: int) -> str:
    """Return the id of sample ``index``: what was asked of whom, not what came back."""
    return digest("solution", ID_VERSION, problem_id, sampling_digest, index)


def add_tokens(tokens: int | None, other_tokens: int | None) -> int | None:
    """Add counts of tokens; the sum is as unknown (None) as they are."""
    return None if tokens is None or other_tokens is None else tokens + other_tokens


_FIELDS = {each.name for each in fields(Completion)}


def is_completion(value: Any) -> bool:
    """Whether a JSON value has the fields of a recorded :class:`Completion`, in their types."""
    return (
        isinstance(value, dict)
        and value.keys() <= _FIELDS
        and isinstance(value.get("text"), str)
        and value.get("finish_reason") in get_args(FinishReason)
        and ((n := value.get("n_tokens", -1)) is None or (isinstance(n, int) and 0 <= n < 2**31))
        and isinstance(value.get("seconds"), int | float)
    )
