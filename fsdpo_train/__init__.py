"""Training on step-annotated data: SFT, process reward models, step-wise DPO.

    from fsdpo_train import DpoConfig, train_dpo

    report = train_dpo(DpoConfig(data="runs/pairs", model="tiny", out="runs/full-step"))

Each stage has a config class, which is frozen and checks its fields, and a function that takes a
config and returns a report. Progress messages go to the logger ``fsdpo_train``; nothing is printed.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import UnavailableError, install_command
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig

if TYPE_CHECKING:
    from fsdpo_train.preference.train import DpoReport, train_dpo
    from fsdpo_train.prm.train import PrmReport, train_prm
    from fsdpo_train.sft.train import SftReport, train_sft

__all__ = [
    "DpoConfig",
    "DpoReport",
    "PrmConfig",
    "PrmReport",
    "SftConfig",
    "SftReport",
    "train_dpo",
    "train_prm",
    "train_sft",
]

#: Packages of the extra ``train`` that every stage imports.
_REQUIRED_PACKAGES = ("torch", "transformers", "accelerate", "safetensors", "tokenizers")
#: Packages of the stages. They load torch, so they are imported at the first use.
_STAGE_PACKAGES = {"dpo": "preference", "prm": "prm", "sft": "sft"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing = [package for package in _REQUIRED_PACKAGES if find_spec(package) is None]
    if missing:
        raise UnavailableError(
            f"training needs {', '.join(missing)}. Install the missing packages: "
            f"{install_command('train')}."
        )
    stage = name.lower().removeprefix("train_").removesuffix("report")
    return getattr(import_module(f"fsdpo_train.{_STAGE_PACKAGES[stage]}.train"), name)


def __dir__() -> list[str]:
    return __all__
