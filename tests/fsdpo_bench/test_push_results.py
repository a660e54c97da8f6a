"""Results on the Hub: on the loopback one, by its real client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench_runs import config, make_records, write_run
from fsdpo_bench.publish.push import plan_push
from fsdpo_bench.tasks.table import builtin_tasks
from hub_server import TOKEN, HubServer, client_env, run_client, running_hub
from huggingface_hub import ModelCard, parse_eval_result_entries

from fsdpo_data.core.errors import InputError

COMMIT = "c" * 40
THEIRS = """---
license: mit
tags: [math]
model-index:
- name: m
  results:
  - task: {type: text-generation}
    dataset: {name: MMLU, type: cais/mmlu}
    metrics: [{type: acc, value: 61.5, name: acc}]
---
# Their model

Do not touch.
"""


def run_of(folder: Path, **changes: Any) -> Path:
    """Write a run of GSM8K from the Hub, whole, and of MATH's first problems."""
    made = config({"gsm8k": 20, "math": 10})
    made["tasks"]["gsm8k"] |= {
        "rows": 20,
        "source": {"name": "openai/gsm8k:main", "revision": COMMIT, "split": "test"},
        **changes,
    }
    return write_run(folder, made, make_records({"gsm8k": 20, "math": 10}))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as made:
        yield made


def pushed(hub: HubServer, home: Path, *arguments: str, token: str = TOKEN) -> tuple[int, str]:
    code = f"""
import sys
from fsdpo_bench.cli.app import main
sys.argv = ["fsdpo-bench", "push", *{list(arguments)!r}]
main()
"""
    ran = run_client(code, client_env(hub.url, home, **({"HF_TOKEN": token} if token else {})))
    assert TOKEN not in ran.stdout + ran.stderr and "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, ran.stdout + ran.stderr


def entries(files: dict[str, bytes]) -> dict[str, Any]:
    """Return what the Hub's own parser reads of each file."""
    found = {}
    for path, content in files.items():
        if path.startswith(".eval_results/"):
            [found[path]] = parse_eval_result_entries(yaml.safe_load(content))
    return found


def test_results_stand_on_the_models_page(hub: HubServer, tmp_path: Path) -> None:
    repo = hub.add("model", "o/m", {"README.md": THEIRS.encode(), "model.safetensors": b"w"})
    run = run_of(tmp_path / "run")
    code, said = pushed(hub, tmp_path / "home", str(run), "o/m")
    assert code == 0, said
    assert "math is left out: 10 of its 13 problems" in said
    assert len(repo.commits) == 2 and repo.at()["model.safetensors"] == b"w"
    found = entries(repo.at())
    ways = ["avg-4", "bon-4-min", "greedy", "sbs-2-1", "sc-2", "sc-4"]
    assert sorted(found) == [f".eval_results/gsm8k-{way}.yaml" for way in ways]
    greedy = found[".eval_results/gsm8k-greedy.yaml"]
    records = [json.loads(line) for line in (run / "records/gsm8k.jsonl").read_text().splitlines()]
    right = sum(each["decoded"]["greedy"]["correct"] for each in records)
    assert greedy.value == pytest.approx(100 * right / 20)
    assert (greedy.dataset_id, greedy.task_id) == ("openai/gsm8k", "gsm8k")
    assert greedy.dataset_revision == COMMIT and re.fullmatch(r"\d{4}-\d\d-\d\d", greedy.date)
    assert greedy.source_url == f"{hub.url}/o/m" and greedy.source_name == "fsdpo-bench"
    assert greedy.notes.startswith("greedy, n=20, 95 % [")
    card = ModelCard(repo.at()["README.md"].decode())
    assert card.data.license == "mit" and "Do not touch." in card.text
    told = {
        (each.dataset_type, each.metric_name): each.metric_value for each in card.data.eval_results
    }
    assert told["cais/mmlu", "acc"] == 61.5 and len(told) == 1 + 5
    assert told["openai/gsm8k", "accuracy, greedy"] == pytest.approx(greedy.value)


def test_the_same_measurement_is_replaced(hub: HubServer, tmp_path: Path) -> None:
    """Of a model without a card, whose results then stand in one of their own."""
    repo = hub.add("model", "o/m", {"config.json": b"{}"})
    for name in ("one", "two"):
        code, said = pushed(hub, tmp_path / "home", str(run_of(tmp_path / name)), "o/m")
        assert code == 0, said
    assert len(ModelCard(repo.at()["README.md"].decode()).data.eval_results) == 5


def test_a_pull_request_changes_nothing_until_it_is_merged(hub: HubServer, tmp_path: Path) -> None:
    repo = hub.add("model", "o/m", {"README.md": THEIRS.encode()})
    run = str(run_of(tmp_path / "run"))
    code, said = pushed(hub, tmp_path / "home", run, "o/m", "--pull-request")
    assert code == 0 and "/o/m/discussions/1" in said, said
    assert set(repo.at()) == {"README.md"} and len(repo.at("refs/pr/1")) == 7


def test_a_dry_run_needs_neither_token_nor_network(tmp_path: Path, hub: HubServer) -> None:
    run = str(run_of(tmp_path / "run"))
    code, said = pushed(hub, tmp_path / "home", run, "o/m", "--dry-run", token="")
    assert code == 0 and "task_id: gsm8k" in said and hub.requests == []
    code, said = pushed(hub, tmp_path / "home", run, "o/m", token="")
    assert code != 0 and "no token" in said
    code, said = pushed(hub, tmp_path / "home", run, "o/m")
    assert code != 0 and "there is no model o/m" in said


def test_a_file_with_the_datasets_problems_is_the_dataset(tmp_path: Path) -> None:
    local = {"name": "gsm8k/test.jsonl", "revision": "sha256:" + "0" * 64, "split": "test"}
    run = run_of(tmp_path / "run", source=local, digest=builtin_tasks()["gsm8k"].digest)
    [text] = (text for path, text in plan_push(run, "o/m").files.items() if "greedy" in path)
    assert yaml.safe_load(text)[0]["dataset"] == {"id": "openai/gsm8k", "task_id": "gsm8k"}


@pytest.mark.parametrize(
    ("changes", "name", "message"),
    [
        ({"rows": 1319}, "o/m", "gsm8k: 20 of its 1,319 problems"),
        ({"source": {"name": "my", "revision": "1", "split": ""}}, "o/m", "no dataset on the Hub"),
        ({}, "o/m@v1", "is not a repository name"),
    ],
)
def test_what_is_not_pushed(tmp_path: Path, changes: Any, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_push(run_of(tmp_path / "run", **changes), name)
