"""The embedded model as a base model: it ends its solutions with an ordinary special token."""

import json
import shutil
from pathlib import Path

from fsdpo_data.problems.embedded import CHECKPOINT

END_OF_TURN = "<|endoftext|>"  #: The token that ends a solution; no end-of-sequence token.


def write_base_model(folder: Path) -> Path:
    """Write the model with another end-of-sequence token, which it never generates."""
    shutil.copytree(CHECKPOINT, folder)
    for name, key, value in (
        ("tokenizer_config.json", "eos_token", "<|pad|>"),
        ("generation_config.json", "eos_token_id", 1),
        ("config.json", "eos_token_id", 1),
    ):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**settings, key: value}))
    return folder
