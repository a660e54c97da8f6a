"""The prompt template of a trained model, in a file next to its weights."""

import json
from collections.abc import Sequence
from pathlib import Path

from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.input_files import read_json
from fsdpo_data.models.prompts import TEMPLATES, get_template

TEMPLATE_FILE = "prompt_template.json"  #: File with the name of the template, in the directory.
_MARKED_QUESTION = "What is 20 + 22, the marked question?"  #: A question that no prompt contains.
_MIN_TEMPLATE_CHARS = 8  #: A template with less text around the question fits many prompts.


def write_trained_template(folder: Path, name: str | None) -> None:
    """Write the name of the template that a model was trained with; None if it is unknown."""
    write_text(folder / TEMPLATE_FILE, json.dumps({"template": name}) + "\n")


def read_trained_template(path: str | Path) -> str | None:
    """Return the template that a model was trained with; None if this release does not know it."""
    try:
        name = read_json(Path(path) / TEMPLATE_FILE)["template"]
    except (OSError, InputError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) and name in TEMPLATES else None


def recognise_template(prompts: Sequence[str], tokenizer_path: str) -> str | None:
    """Return the template whose text is around the question of all prompts; None without one.

    Args:
        prompts: Prompts of training rows.
        tokenizer_path: Directory with the tokenizer, for chat templates.
    """
    best_name = None
    best_length = _MIN_TEMPLATE_CHARS - 1
    for name in TEMPLATES if prompts else ():
        try:
            rendered = get_template(name, tokenizer_path).render(_MARKED_QUESTION)
        except FsdpoError:  # the tokenizer has no chat template, or a plug-in is broken
            continue
        prefix, _, suffix = rendered.partition(_MARKED_QUESTION)
        length = len(prefix) + len(suffix)
        is_around_all = all(
            prompt.startswith(prefix) and prompt.endswith(suffix) and len(prompt) > length
            for prompt in prompts
        )
        if is_around_all and length > best_length:
            best_name = name
            best_length = length
    return best_name
