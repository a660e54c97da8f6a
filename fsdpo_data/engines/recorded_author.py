"""The model that wrote the completions of a recording."""

from pathlib import Path

from fsdpo_data.core.identity import ModelRef, file_sha256
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.engines.options import ReplayOptions


def solution_author(
    options: ReplayOptions, model: ModelRef, *, is_model_named: bool, title: str = ""
) -> ModelRef:
    """Return the reference of the model that wrote the solutions.

    Args:
        options: The options of the run.
        model: The model that the options resolve to.
        is_model_named: Whether the user named ``model``. If not, it is only a default, and the
            author of a recording is ``model_name`` with an unknown revision.
        title: Name of the author in the recording; empty if the recording does not name it.
    """
    if _is_written_by(options, is_model_named=is_model_named):
        return model
    return ModelRef(options.model_name or title or UNKNOWN, UNKNOWN)


def recording_digest(options: ReplayOptions, *, is_model_named: bool) -> str | None:
    """Return the digest of a recording whose model has an unknown revision; None for others.

    It separates the recordings of different models. A recording of a known model gives the same
    solutions as the model itself, so its manifest is that of sampling.
    """
    replay = options.engine.replay
    if replay is None or _is_written_by(options, is_model_named=is_model_named):
        return None
    return f"sha256:{file_sha256(Path(replay))}"


def _is_written_by(options: ReplayOptions, *, is_model_named: bool) -> bool:
    """Return whether the model of the options wrote the solutions."""
    is_recording = options.engine.replay is not None
    return not is_recording or (is_model_named and options.model_name is None)
