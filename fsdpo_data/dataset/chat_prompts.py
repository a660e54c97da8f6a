"""The prompts that the model saw, of datasets that a server sampled with the API ``chat``.

The rows of such a dataset have the messages of the user, and the server put its chat format around
them. A model that reads these prompts reads them in its own chat format, or is refused.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias

from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord, lacks_chat_format
from fsdpo_data.models.prompts import ChatFormat, require_chat_format

PromptRenderer: TypeAlias = Callable[[str], str]  #: Turns the prompt of a row into the model's.


def prompt_renderer(
    manifest: Manifest, dataset: str, load_tokenizer: Callable[[], Any], model: str
) -> PromptRenderer:
    """Return a function from the prompts of a dataset to the prompts that its model saw.

    Args:
        manifest: The manifest of the dataset.
        dataset: The dataset, for messages.
        load_tokenizer: Loads the tokenizer of the model that reads the prompts. Called only if the
            prompts lack their chat format.
        model: That model, for messages.

    Raises:
        InputError: if the prompts lack their chat format, and the model has no chat template.
    """
    if not lacks_chat_format(manifest):
        return _keep_prompt
    sample = manifest.get(SAMPLE_STAGE, SampleRecord).options
    render = partial(
        require_server_format(dataset, load_tokenizer(), model).render,
        arguments=sample.template.chat_arguments,
        first_messages=sample.engine.first_messages,
    )
    return lru_cache(maxsize=1024)(render)  # the solutions of a problem share their prompt


def require_server_format(dataset: str, tokenizer: Any, model: str) -> ChatFormat:
    """Return the chat format of a model that reads prompts which lack it.

    Raises:
        InputError: if the tokenizer has no chat template, or one that cannot be used.
    """
    try:
        return require_chat_format(tokenizer, model)
    except InputError as error:
        raise InputError(
            f"{missing_format(dataset)}, and {error.message} Name a model with the chat template "
            "of the server, or sample with `api=completions`.",
            field="data",
            value=dataset,
        ) from None


def refuse_missing_format(manifest: Manifest, dataset: str) -> None:
    """Refuse prompts that lack their chat format, where a model would continue them.

    Raises:
        InputError: if the prompts lack it.
    """
    if lacks_chat_format(manifest):
        raise InputError(
            f"{missing_format(dataset)}, so a model would continue another text than the model of "
            "the samples. Sample with `api=completions`, or label with `judge`.",
            field="data",
            value=dataset,
        )


def missing_format(dataset: str) -> str:
    """Return the start of a message about prompts that lack their chat format."""
    return f"the prompts of {dataset} lack the chat format of the server that sampled it"


def _keep_prompt(prompt: str) -> str:
    """Return a prompt that is complete."""
    return prompt
