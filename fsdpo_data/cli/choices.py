"""Choices that several commands offer."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """What samples."""

    auto = "auto"
    vllm = "vllm"
    transformers = "transformers"
    ray = "ray"
    scripted = "scripted"


class Device(StrEnum):
    """Where the transformers engine runs."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Dtype(StrEnum):
    """Precision of the weights; `auto` is the checkpoint's own."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class PrmEngine(StrEnum):
    """What scores."""

    auto = "auto"
    vllm = "vllm"
    transformers = "transformers"
    ray = "ray"


class PairStyle(StrEnum):
    """What a preference pair joins."""

    full = "full"
    step_dpo = "step-dpo"
