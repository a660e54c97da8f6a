"""The reference model π_ref of a training run: its start model, in the precision of the policy."""

from typing import Any

import torch

from fsdpo_data.engines.cpu_bf16.weights import Bfloat16Weights, uses_bfloat16_weights
from fsdpo_data.engines.logprobs import patch_to_return_logprobs
from fsdpo_data.engines.prefix_sharing.model_attention import TreeAttention
from fsdpo_train.config import TrainConfig
from fsdpo_train.trainer.deepspeed import without_zero3_partitioning
from fsdpo_train.trainer.models import cast_parameters, load_model


class ReferenceModel:
    """The start model without gradients; as long as the policy equals it, log π/π_ref is 0.

    Args:
        config: The options of the run.
        arguments: The ``TrainingArguments`` of the run.
        attention: How the model computes a prompt once for several solutions.

    Raises:
        UnavailableError: if the model does not exist or cannot be loaded.
        InputError: if the model and its tokenizer do not fit each other.
    """

    def __init__(self, config: TrainConfig, arguments: Any, attention: TreeAttention) -> None:
        with without_zero3_partitioning(arguments):
            model, self.tokenizer = load_model(config, "AutoModelForCausalLM")
        if config.reference_dtype == "bfloat16":
            cast_parameters(model, torch.bfloat16)
        model = model.to(arguments.device).eval().requires_grad_(requires_grad=False)
        if uses_bfloat16_weights(config.dtype, arguments):
            Bfloat16Weights(model).install()
        self.model = patch_to_return_logprobs(model, attention=attention)
        #: DeepSpeed converts the policy to bfloat16. Elsewhere, Accelerate gives it autocast.
        self.uses_autocast = config.dtype == "bfloat16" and config.deepspeed is None

    def logprobs(self, **batch: torch.Tensor) -> torch.Tensor:
        """Return log π of the target tokens of a batch, shape [N].

        Args:
            batch: The batch; see :func:`~fsdpo_data.engines.logprobs.patch_to_return_logprobs`.
        """
        device_type = self.model.device.type
        autocast = torch.autocast(device_type, torch.bfloat16, enabled=self.uses_autocast)
        with torch.no_grad(), autocast:
            logp_N: torch.Tensor = self.model(**batch)
        return logp_N
