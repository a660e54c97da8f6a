"""Step-annotated mathematical reasoning data: sample, segment, grade, label, seal.

Importing this package is cheap: no torch, transformers, vllm, datasets or sympy, as
``tests/fsdpo_data/cli/test_light.py`` proves. Heavy libraries load inside the call that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "FsdpoError",
    "Pair",
    "Problem",
    "SamplingSpec",
    "Solution",
    "SteppedText",
    "Verdict",
    "build",
    "decontaminate",
    "grade",
    "load_sampler",
    "load_scorer",
    "open_dataset",
    "pull",
    "push",
    "segment",
]


if TYPE_CHECKING:
    from fsdpo_data.api import (
        Dataset,
        FsdpoError,
        Pair,
        Problem,
        SamplingSpec,
        Solution,
        SteppedText,
        Verdict,
        build,
        decontaminate,
        grade,
        load_sampler,
        load_scorer,
        open_dataset,
        pull,
        push,
        segment,
    )
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return getattr(import_module("fsdpo_data.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
