"""The prompt template of a training, which is written next to the trained weights."""

from collections.abc import Sequence
from typing import Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord, lacks_chat_format
from fsdpo_data.models.prompts import (
    TEMPLATES,
    Template,
    TemplateRef,
    add_chat_format,
    find_template,
    template_of_ref,
    with_chat_format,
)
from fsdpo_data.models.trained_template import (
    has_template,
    recognise_template,
    write_trained_template,
)
from fsdpo_train.config import SftConfig, TrainConfig
from fsdpo_train.trainer.row_source import RowSource, TrainingData


def stated_template(config: TrainConfig) -> Template | None:
    """Return the template that the options name, without the chat format of a tokenizer.

    Raises:
        InputError: if there is no such template.
    """
    if not isinstance(config, SftConfig) or config.template is None:
        return None
    return find_template(config.template)


def check_stated_template(config: SftConfig, data: TrainingData, tokenizer: Any) -> None:
    """Check that the prompts of the training have the template that the options name.

    Raises:
        InputError: if a prompt has another text around its question.
    """
    template = stated_template(config)
    if template is None:
        return
    template = with_chat_format(template, tokenizer, str(config.model))
    for prompt in _distinct_prompts(data.sources):
        if not has_template([prompt], template):
            raise InputError(
                f"the prompts do not have this template, so the model would be sampled with other "
                f"prompts. One starts with {prompt[:60]!r}. Give the template of the prompts.",
                field="template",
                value=config.template,
            )


def write_template(config: TrainConfig, data: TrainingData) -> None:
    """Write the prompt template of the training, so that the model is sampled with the same one.

    The options or the datasets name it, and the prompts of files show it. It is unknown if the
    sources have several.
    """
    write_trained_template(config.out, _training_template(config, data))


def _training_template(config: TrainConfig, data: TrainingData) -> TemplateRef | None:
    """Return the one template of all prompts; None if it is unknown."""
    stated = stated_template(config)
    if stated is not None:
        return add_chat_format(stated, str(config.out)).ref
    refs = [_sampled_template(config, manifest) for manifest in data.manifests]
    files = [source for source in data.sources if source.manifest is None]
    if files:
        refs.append(recognise_template(_distinct_prompts(files), str(config.out)))
    first_ref = refs[0]
    if first_ref is None or {ref and ref.digest for ref in refs} != {first_ref.digest}:
        return None
    return first_ref if first_ref.text is not None or first_ref.name in TEMPLATES else None


def _sampled_template(config: TrainConfig, manifest: Manifest) -> TemplateRef | None:
    """Return the template of the prompts of a dataset; None if no template renders them.

    A template has no place for messages before the question, and none for another template inside
    the chat format of a server.
    """
    sample = manifest.get(SAMPLE_STAGE, SampleRecord).options
    if not lacks_chat_format(manifest):
        return sample.template
    ref = sample.template
    is_chat_template = ref.name in TEMPLATES and TEMPLATES[ref.name].needs_chat
    if sample.engine.first_messages or not is_chat_template:
        return None
    return add_chat_format(template_of_ref(ref), str(config.out)).ref


def _distinct_prompts(sources: Sequence[RowSource]) -> list[str]:
    """Return the prompts of all rows; a file may have prompts of several templates."""
    prompts = (row.get("prompt") for source in sources for _, row in source.rows())
    return list(dict.fromkeys(prompt for prompt in prompts if isinstance(prompt, str)))
