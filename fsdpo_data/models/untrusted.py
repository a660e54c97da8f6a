"""Safe use of untrusted checkpoints: no code from them, and a limit on their chat templates."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import transformers

#: Limit of traced Python events for a chat template, including its compilation. This takes one or
#: two seconds; long templates need a hundredth of it.
MAX_TRACED_EVENTS = 5_000_000


def describe_load_error(error: Exception) -> str:
    """Return one sentence with the reason why transformers cannot load a checkpoint.

    All loads use ``trust_remote_code=False``. Without this argument, transformers asks at the
    terminal, and accepts any ``y`` on standard input.
    """
    if "trust_remote_code" in str(error):
        return (
            "the model needs Python code from the checkpoint, which fsdpo never runs; use a "
            "checkpoint with an architecture of transformers, without auto_map in its config."
        )
    lines = str(error).strip().splitlines()
    return lines[0] if lines else repr(error)


def read_tokenizer(path: str, revision: str | None = None) -> Any:
    """Load a tokenizer, and test it with one token; a damaged one may raise any exception."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        path, revision=revision, trust_remote_code=False
    )
    tokenizer.decode(tokenizer("a")["input_ids"])
    return tokenizer


@contextmanager
def limit_execution(name: str, max_events: int = MAX_TRACED_EVENTS) -> Iterator[None]:
    """Stop Python functions inside the block after a number of trace events.

    Events are executed lines, calls and returns. Tracing is used because a thread cannot be killed,
    and a process per prompt would cost more than the prompt. The limit does not cover memory and
    single C calls.

    Args:
        name: Name of the executed code, for the error.
        max_events: Maximum number of events.

    Raises:
        InputError: if the code exceeds the limit.
    """
    remaining_events = max_events

    def count_event(frame: Any, event: str, argument: Any) -> Any:
        """Count one trace event; called by the interpreter."""
        nonlocal remaining_events
        remaining_events -= 1
        if remaining_events < 0:
            raise InputError(f"{name} does not come to an end ({max_events:,} steps).")
        return count_event

    previous_trace = sys.gettrace()
    sys.settrace(count_event)
    try:
        yield
    finally:
        sys.settrace(previous_trace)
