"""Compare solutions per second of `fsdpo-data serve` with eight clients and of scoring in process.

    python benchmarks/perf/serve.py [--solutions 400] [--clients 8] [--rounds 4] [--threads 2] \
        [--problems ../shared/data/stepwise/processbench/gsm8k.json] [--dtype bfloat16]

The solutions come from ProcessBench. The PRM has the shape of SmolLM2-135M, random weights and a
head with one output. Every client has a part of the solutions and a thread of its own. The
solutions are divided among the rounds. Each round scores its part in both ways, in alternating
order, and the times are sums over the rounds. The rewards must agree to 1e-5 for float32.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import typer

from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ConnectionOptions, ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
import real_tokenizers
from prm_server import serving_prm
from random_model import save_random_prm

ROOT = Path(__file__).parents[2]
#: The shape of SmolLM2-135M.
SMOLLM2_SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
PROCESSBENCH = Path("shared/data/stepwise/processbench/gsm8k.json")
Rewards = list[list[float] | None]


def main(
    solutions: int = 400,
    clients: int = 8,
    rounds: int = 4,
    threads: int = 2,
    problems: Path = ROOT.parent / PROCESSBENCH,
    dtype: str = "float32",
) -> None:
    """Time both ways of scoring in alternating order."""
    # An exception, so that the server stops too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    items = read_solutions(problems)[:solutions]
    n_steps = sum(len(item.steps) for item in items)
    print(f"{len(items)} solutions of ProcessBench, {n_steps} steps, {clients} clients, {dtype}")
    seconds = {"in process": 0.0, "served": 0.0}
    max_difference = 0.0
    with tempfile.TemporaryDirectory() as folder:
        prm = save_model(Path(folder))
        options = ScorerOptions(engine="transformers", device="cpu", dtype=dtype)
        scorer = load_scorer(str(prm), options)
        flags = ("--engine", "transformers", "--device", "cpu", "--dtype", dtype)
        pool = ThreadPoolExecutor(clients)
        with pool, serving_prm(prm, *flags, OMP_NUM_THREADS=str(threads)) as server:

            def score_served(part: Sequence[ScorerInput]) -> Rewards:
                parts = [part[index::clients] for index in range(clients)]
                arguments = ([server.url] * clients, [prm.name] * clients, parts)
                rewards: Rewards = [None] * len(part)
                for index, client_rewards in enumerate(pool.map(score_as_client, *arguments)):
                    rewards[index::clients] = client_rewards
                return rewards

            score_functions: dict[str, Callable[[Sequence[ScorerInput]], Rewards]] = {
                "in process": scorer.score,
                "served": score_served,
            }
            for score in score_functions.values():  # warm up: starts the clients
                score(items[:clients])
            for round_index in range(rounds):
                part = items[round_index::rounds]
                rewards = {}
                for name in (
                    list(score_functions) if round_index % 2 else list(reversed(score_functions))
                ):
                    started = time.perf_counter()
                    rewards[name] = score_functions[name](part)
                    seconds[name] += time.perf_counter() - started
                difference = find_max_difference(rewards["in process"], rewards["served"])
                max_difference = max(max_difference, difference)
    for name, total_seconds in seconds.items():
        n_solutions = len(items) / total_seconds
        print(f"{name:<11} {n_solutions:7.2f} solutions/s {n_steps / total_seconds:7.1f} steps/s")
    ratio = seconds["in process"] / seconds["served"]
    print(f"served: {ratio:.2f} x the throughput in process")
    print(f"the rewards differ by at most {max_difference:.1e}")
    assert max_difference < (1e-5 if dtype == "float32" else 2e-2)


def read_solutions(file: Path) -> list[ScorerInput]:
    """Return the solutions of a file of ProcessBench, with a plain prompt."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [
        ScorerInput(
            f"{row['problem']}\n\n", [f"{step}\n\n" for step in row["steps"]], row["problem"]
        )
        for row in rows
    ]


def save_model(folder: Path) -> Path:
    """Write a PRM with the shape of SmolLM2-135M and random weights."""
    tokenizer = real_tokenizers.load(ROOT.parent / "shared" / "tokenizers" / "mistral")
    policy = folder / "policy"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SMOLLM2_SHAPE)
    transformers.LlamaForCausalLM(config).save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    return save_random_prm(folder / "prm", policy)


def score_as_client(url: str, prm: str, items: Sequence[ScorerInput]) -> Rewards:
    """Score the part of one client."""
    connection = ConnectionOptions(base_url=url)
    return load_scorer(prm, ScorerOptions(engine="openai", server=connection)).score(items)


def find_max_difference(rewards: Rewards, expected: Rewards) -> float:
    """Return the largest difference of two lists of step rewards."""
    return max(
        abs(reward - expected_reward)
        for solution_rewards, expected_rewards in zip(rewards, expected, strict=True)
        for reward, expected_reward in zip(
            solution_rewards or [], expected_rewards or [], strict=True
        )
    )


if __name__ == "__main__":
    typer.run(main)
