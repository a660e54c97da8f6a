"""The blocks of the page about RL in verl: its reward managers and its advantages call them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter_cases import CASES
from page_files import page_block

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("manager", ["naive", "dapo"])
def test_the_reward_manager_calls_the_function(tmp_path: Path, manager: str) -> None:
    import numpy as np
    import torch
    import verl
    from hydra import compose, initialize_config_dir
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    from fsdpo_data.problems.embedded import CHECKPOINT

    function = page_block("rl.md", "from fsdpo_data import rewards\n\ncompute_score")
    (tmp_path / "my_reward.py").write_text(function, encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)

    def make_batch(gold: str, response: str) -> DataProto:
        """Return a batch of one response, with two tokens of padding."""
        ids = torch.tensor([[*tokenizer.encode(response, add_special_tokens=False), 0, 0]])
        mask = torch.ones(1, ids.shape[1] + 1, dtype=torch.long)
        mask[:, -2:] = 0
        fields: dict[str, Any] = {
            "data_source": "gsm8k",
            "reward_model": {"ground_truth": gold},
            "extra_info": {"index": 0},
        }
        return DataProto.from_dict(
            tensors={"prompts": ids[:, :1], "responses": ids, "attention_mask": mask},
            non_tensors={key: np.array([value], dtype=object) for key, value in fields.items()},
        )

    async def score_cases() -> list[dict[str, Any]]:
        configs = str(Path(verl.__file__).parent / "trainer/config")
        options = [
            f"reward.custom_reward_function.path={tmp_path}/my_reward.py",
            f"reward.reward_manager.name={manager}",
        ]
        with initialize_config_dir(configs, version_base=None):
            config = compose("ppo_trainer", overrides=options)
        reward_manager = load_reward_manager(config, tokenizer)
        return [
            await reward_manager.run_single(make_batch(case.gold, case.response)) for case in CASES
        ]

    results = asyncio.run(score_cases())
    assert [result["reward_score"] for result in results] == [case.score for case in CASES]
    undecided = [result["reward_extra_info"]["undecided"] for result in results]
    assert undecided == [case.reward is None for case in CASES]


def test_verl_computes_advantages_with_the_estimator() -> None:
    """By hand: the reward to go, less the mean reward per token of the other completion."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    # The file that the page copies.
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples/rl"))
    exec(page_block("rl.md", "# step_estimator.py"), {})
    rewards = torch.tensor([[0.0, 1.0, 0.0, 0.5], [0.0, 0.25, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    batch = DataProto.from_dict(
        tensors={"token_level_rewards": rewards, "response_mask": mask},
        non_tensors={"uid": np.array(["a", "a"], dtype=object)},
    )
    output = compute_advantage(batch, adv_estimator="step_reward_to_go", config={})
    other_means = torch.tensor([[0.25 / 2], [1.5 / 4]])
    rewards_to_go = torch.tensor([[1.5, 1.5, 0.5, 0.5], [0.25, 0.25, 0.0, 0.0]])
    remaining_tokens = torch.tensor([[4, 3, 2, 1], [2, 1, 0, 0]])
    expected = rewards_to_go - remaining_tokens * other_means
    torch.testing.assert_close(output.batch["advantages"], expected)
    torch.testing.assert_close(output.batch["returns"], expected)
