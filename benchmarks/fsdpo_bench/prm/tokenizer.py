"""Whether a process reward model can read what a policy writes."""

from __future__ import annotations

from collections.abc import Callable

from fsdpo_data.core.errors import InputError
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.prompts import load_tokenizer
from fsdpo_data.models.resolve import Weights


def check_tokenizer(prm: Weights, policy: Weights, warn: Callable[[str], None]) -> None:
    """Refuse a process reward model whose tokenizer is not the one of its weights.

    One that merely differs from the policy's is fine (rewards are read off text), but seldom
    meant, so it is said.

    Raises:
        InputError: if its tokenizer has ids that its embedding does not.
    """
    tokenizer = load_tokenizer(prm.path, prm.commit)
    vocabulary = tokenizer.get_vocab()
    size = load_config(prm).vocab_size
    highest = max(vocabulary.values())
    if highest >= size:
        raise InputError(
            f"its tokenizer has ids up to {highest}, its weights know {size}. This is not the "
            "tokenizer it was trained with: copy the tokenizer files of the model it was trained "
            "from into its directory.",
            field="prm",
            value=str(prm.path),
        )
    if vocabulary != load_tokenizer(policy.path, policy.commit).get_vocab():
        warn(
            f"the reward model {prm.ref.name} has another vocabulary than {policy.ref.name}; it "
            "was most likely trained on another model's solutions"
        )
