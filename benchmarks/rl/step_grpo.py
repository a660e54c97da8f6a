"""A trainer for TRL with advantages of tokens; `docs/howto/rl.md` shows the same lines."""

import torch
from trl import GRPOTrainer

from fsdpo_data.engines.samplers.tokenization import CompletionDecoder
from fsdpo_data.engines.step_tokens import find_step_ids
from fsdpo_train import advantages


class StepGRPOTrainer(GRPOTrainer):
    """GRPO with step advantages on top of the advantages of ``reward_funcs``; for one process.

    Args:
        process: A function of ``fsdpo_data.rewards.process``.
        step_weight: Factor of the step advantages.
    """

    def __init__(self, *args, process, step_weight=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.process = process
        self.step_weight = step_weight
        self.decoder = CompletionDecoder(self.processing_class)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        # The steps come from the ids that the policy generated, so each token has its step.
        texts = [self.decoder(ids, skip_special=True) for ids in completion_ids_list]
        columns = {key: [row[key] for row in inputs] for key in inputs[0] if key != "prompt"}
        scored = self.process.score_steps(prompts, texts, **columns)
        self.step_rewards = [step_rewards.rewards for step_rewards in scored]
        self.step_ids = [
            find_step_ids(self.decoder, ids, step_rewards.steps) if step_rewards.steps else []
            for ids, step_rewards in zip(completion_ids_list, scored, strict=True)
        ]
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        token_mask = output["completion_mask"].bool()
        steps = torch.full_like(output["completion_ids"], -1)
        for row, step_ids in zip(steps, self.step_ids, strict=True):
            row[: len(step_ids)] = torch.tensor(step_ids)
        rewards, step_mask = advantages.pad_step_rewards(self.step_rewards)
        rewards, step_mask = rewards.to(steps.device), step_mask.to(steps.device)
        step_advantages = advantages.min_form_advantages(
            2 * rewards - 1,  # probabilities to PURE's range
            step_mask,
            advantages.count_step_tokens(steps, step_mask.shape[1]),
            torch.arange(len(steps), device=steps.device) // self.num_generations,
        )
        outcome = advantages.broadcast_outcomes(output["advantages"], token_mask)
        token_advantages = advantages.broadcast_steps(step_advantages, steps)
        output["advantages"] = outcome + self.step_weight * token_advantages * token_mask
        return output
