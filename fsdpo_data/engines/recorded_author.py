"""The model that wrote the completions of a recording."""

from pathlib import Path

from fsdpo_data.core.identity import ModelRef, file_sha256
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.engines.options import ReplayOptions


def solution_author(options: ReplayOptions, model: ModelRef, *, is_model_named: bool) -> ModelRef:
    """Return the reference of the model that wrote the solutions.

    Args:
        options: The options of the run.
        model: The model that the options resolve to.
        is_model_named: Whether the user named ``model``. If not, it is only a default, and the
            author of a recording is ``model_name`` with the digest of the file.
    """
    replay = options.engine.replay
    if replay is None or (is_model_named and options.model_name is None):
        return model
    return ModelRef(options.model_name or UNKNOWN, f"sha256:{file_sha256(Path(replay))}")


def author_entry(options: ReplayOptions) -> dict[str, str]:
    """Return ``{"author": "model"}`` for a recording by a named model, else an empty dict.

    The spec stores this entry, because the revision of a local model and the digest of a recording
    look the same.
    """
    is_written_by_model = options.model is not None and options.model_name is None
    return {"author": "model"} if options.is_replay and is_written_by_model else {}
