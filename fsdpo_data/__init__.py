"""Step-annotated mathematical reasoning data: sample, segment, grade, label, seal.

Importing this package is cheap: no torch, transformers, vllm, datasets or sympy, as
``tests/fsdpo_data/cli/test_light.py`` proves. Heavy libraries load inside the call that needs them.
``grade`` loads only the grader.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fsdpo_data.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if name == "grade":
            return import_module("fsdpo_data.answers.response").grade
        api = import_module("fsdpo_data.api")
        if name in api.__all__:
            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*import_module("fsdpo_data.api").__all__, "__version__"])
