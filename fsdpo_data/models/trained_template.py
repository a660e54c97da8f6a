"""The prompt template of a trained model, in a file next to its weights."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.input_files import read_json
from fsdpo_data.models.prompts import (
    TEMPLATES,
    Template,
    TemplateRef,
    get_template,
    template_of_ref,
)

TEMPLATE_FILE = "prompt_template.json"  #: File with the template, in the directory of a model.
_MIN_TEMPLATE_CHARS = 8  #: A template with less text around the question fits many prompts.


def write_trained_template(folder: Path, template: TemplateRef | None) -> None:
    """Write the template that a model was trained with; None if it is unknown.

    The text of a template file is part of the reference, so that the model is complete.
    """
    content = {"template": template and template.model_dump(mode="json", exclude_none=True)}
    write_text(folder / TEMPLATE_FILE, json.dumps(content, ensure_ascii=False) + "\n")


def read_trained_template(path: str | Path) -> TemplateRef | None:
    """Return the template that a model was trained with; None if this release does not know it."""
    try:
        ref = TemplateRef.model_validate(read_json(Path(path) / TEMPLATE_FILE)["template"])
        template_of_ref(ref)
    except (OSError, FsdpoError, KeyError, TypeError, ValidationError):
        return None
    return ref


def recognise_template(prompts: Sequence[str], tokenizer_path: str) -> TemplateRef | None:
    """Return the template whose text is around the question of all prompts; None without one.

    Args:
        prompts: Prompts of training rows.
        tokenizer_path: Directory with the tokenizer, for chat templates.
    """
    best_template = None
    best_length = _MIN_TEMPLATE_CHARS - 1
    for name in TEMPLATES if prompts else ():
        try:
            template = get_template(name, tokenizer_path)
            length = len("".join(template.text_around_question()))
        except FsdpoError:  # the tokenizer has no chat template, or a plug-in is broken
            continue
        if length > best_length and has_template(prompts, template):
            best_template = template.ref
            best_length = length
    return best_template


def has_template(prompts: Iterable[str], template: Template) -> bool:
    """Return whether the text of a template is around the question of all prompts."""
    prefix, suffix = template.text_around_question()
    return all(
        (
            prompt.startswith(prefix)
            and prompt.endswith(suffix)
            and len(prompt) > len(prefix) + len(suffix)
        )
        or (template.multiline and template.find_question(prompt) is not None)
        for prompt in prompts
    )
