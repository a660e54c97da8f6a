"""What a checkpoint brings is used, not obeyed: no code of its own, no template without an end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import transformers

#: Lines of Python that a chat template may take, its compilation included: a second or two, and a
#: hundred times what long ones need.
MAX_TRACED_EVENTS = 5_000_000


def describe_load_error(error: Exception) -> str:
    """Return in one sentence why transformers could not load something.

    Everything is loaded with ``trust_remote_code=False``. Left out, transformers asks at the
    terminal and takes any ``y`` on standard input for an answer.
    """
    if "trust_remote_code" in str(error):
        return (
            "it brings Python code of its own, which is never run; give a checkpoint of an "
            "architecture that transformers has, without auto_map in its config."
        )
    lines = str(error).strip().splitlines()
    return lines[0] if lines else repr(error)


def read_tokenizer(path: str, revision: str | None = None) -> Any:
    """Load a tokenizer that turns a text into ids and back; damaged ones raise some error."""
    auto = transformers.AutoTokenizer
    found = auto.from_pretrained(path, revision=revision, trust_remote_code=False)
    found.decode(found("a")["input_ids"])
    return found


@contextmanager
def limit_execution(name: str, steps: int = MAX_TRACED_EVENTS) -> Iterator[None]:
    """Stop the functions called within, named ``what``, after a number of lines, calls and returns.

    A thread cannot be killed, and a process for each prompt would cost more than the prompt. Not
    covered: memory, and single calls into C.

    Raises:
        InputError: when they are spent.
    """
    left = steps

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise InputError(f"{name} does not come to an end ({steps:,} steps).")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)
