"""Publishing results with the real Hub client to a local server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench_runs import make_entry, report_run, write_run
from fsdpo_bench.publish.push import plan_push
from fsdpo_bench.tasks.table import builtin_tasks
from hub_server import READ_TOKEN, TOKEN, HubServer, client_env, run_client, running_hub
from huggingface_hub import ModelCard, parse_eval_result_entries

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import SourceRef

COMMIT = "c" * 40
CARD = """---
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


def make_run(folder: Path, **changes: Any) -> Path:
    """Write a run of all GSM8K problems of the Hub and the first problems of MATH."""
    source = SourceRef("openai/gsm8k:main", COMMIT, "test")
    entry = make_entry("gsm8k", 20, **{"count": 20, "source": source, **changes})
    run = write_run(folder, {"gsm8k": 20, "math": 10}, entries={"gsm8k": entry})
    report_run(run)
    return run


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


def push_run(hub: HubServer, home: Path, *arguments: str, token: str = TOKEN) -> tuple[int, str]:
    code = f"""
import sys
from fsdpo_bench.cli.app import main
sys.argv = ["fsdpo-bench", "push", *{list(arguments)!r}]
main()
"""
    ran = run_client(code, client_env(hub.url, home, **({"HF_TOKEN": token} if token else {})))
    assert TOKEN not in ran.stdout + ran.stderr and "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, ran.stdout + ran.stderr


def read_entries(files: dict[str, bytes]) -> dict[str, Any]:
    """Read the evaluation files with the Hub's parser, by path."""
    entries_by_path = {}
    for path, content in files.items():
        if path.startswith(".eval_results/"):
            [entries_by_path[path]] = parse_eval_result_entries(yaml.safe_load(content))
    return entries_by_path


def test_results_are_added_to_the_repository_of_the_model(hub: HubServer, tmp_path: Path) -> None:
    repo = hub.add("model", "o/m", {"README.md": CARD.encode(), "model.safetensors": b"w"})
    run = make_run(tmp_path / "run")
    code, output = push_run(hub, tmp_path / "home", str(run), "o/m")
    assert code == 0, output
    assert "math is left out: 10 of its 13 problems" in output
    assert len(repo.commits) == 2 and repo.at()["model.safetensors"] == b"w"
    entries_by_path = read_entries(repo.at())
    decoder_names = ["avg-4", "bon-4-min", "greedy", "sbs-2-1", "sc-2", "sc-4"]
    assert sorted(entries_by_path) == [
        f".eval_results/gsm8k-{decoder_name}.yaml" for decoder_name in decoder_names
    ]
    greedy = entries_by_path[".eval_results/gsm8k-greedy.yaml"]
    results = json.loads((run / "results.json").read_text())
    right = results["tasks"]["gsm8k"]["decoders"]["greedy"]["outcomes"]["correct"]
    assert greedy.value == pytest.approx(100 * right / 20)
    assert (greedy.dataset_id, greedy.task_id) == ("openai/gsm8k", "gsm8k")
    assert greedy.dataset_revision == COMMIT and re.fullmatch(r"\d{4}-\d\d-\d\d", greedy.date)
    assert greedy.source_url == f"{hub.url}/o/m" and greedy.source_name == "fsdpo-bench"
    assert greedy.notes.startswith("greedy, n=20, 95 % [")
    card = ModelCard(repo.at()["README.md"].decode())
    assert card.data.license == "mit" and "Do not touch." in card.text
    card_values = {
        (result.dataset_type, result.metric_name): result.metric_value
        for result in card.data.eval_results
    }
    assert card_values["cais/mmlu", "acc"] == 61.5 and len(card_values) == 1 + 5
    assert card_values["openai/gsm8k", "accuracy, greedy"] == pytest.approx(greedy.value)


def test_a_second_push_replaces_the_results(hub: HubServer, tmp_path: Path) -> None:
    """The model has no card, so the push creates one."""
    repo = hub.add("model", "o/m", {"config.json": b"{}"})
    for name in ("one", "two"):
        code, output = push_run(hub, tmp_path / "home", str(make_run(tmp_path / name)), "o/m")
        assert code == 0, output
    assert len(ModelCard(repo.at()["README.md"].decode()).data.eval_results) == 5


def test_a_run_at_a_url_is_pushed_without_the_date_of_its_download(
    hub: HubServer, tmp_path: Path
) -> None:
    repo = hub.add("model", "o/m", {"README.md": CARD.encode()})
    run = make_run(tmp_path / "run")
    expected = plan_push(run, "o/m").files
    code, output = push_run(hub, tmp_path / "home", f"file://{run}", "o/m")
    assert code == 0, output
    pushed = read_entries(repo.at())
    assert pushed.keys() == expected.keys()
    for path, text in expected.items():
        [entry] = parse_eval_result_entries(yaml.safe_load(text))
        assert pushed[path].value == entry.value and pushed[path].notes == entry.notes
        assert pushed[path].date is None and entry.date is not None


def test_a_refusal_names_the_url_of_the_run(hub: HubServer, tmp_path: Path) -> None:
    url = f"file://{make_run(tmp_path / 'run', count=1319)}"
    code, output = push_run(hub, tmp_path / "home", url, "o/m")
    assert code != 0 and f"{url} has no results for the Hub" in output


def test_a_pull_request_changes_nothing_until_it_is_merged(hub: HubServer, tmp_path: Path) -> None:
    repo = hub.add("model", "o/m", {"README.md": CARD.encode()})
    run = str(make_run(tmp_path / "run"))
    code, output = push_run(hub, tmp_path / "home", run, "o/m", "--pull-request")
    assert code == 0 and "/o/m/discussions/1" in output, output
    assert set(repo.at()) == {"README.md"} and len(repo.at("refs/pr/1")) == 7


def test_a_dry_run_refuses_what_the_push_refuses(tmp_path: Path, hub: HubServer) -> None:
    run = str(make_run(tmp_path / "run"))
    repo = hub.add("model", "o/there", {"README.md": CARD.encode()})
    for name, token, refusal in (
        ("o/m", "", "no token"),
        ("o/m", TOKEN, "there is no model o/m"),
        ("o/there", READ_TOKEN, "answered 403"),
    ):
        for options in (["--dry-run"], []):
            code, output = push_run(hub, tmp_path / "home", run, name, *options, token=token)
            assert code != 0 and refusal in output and "task_id: gsm8k" in output, output
    code, output = push_run(hub, tmp_path / "home", run, "o/there", "--dry-run")
    assert code == 0 and "would push to" in output and len(repo.commits) == 1


def test_a_local_file_with_the_same_digest_counts_as_the_hub_dataset(tmp_path: Path) -> None:
    local = SourceRef("gsm8k/test.jsonl", "sha256:" + "0" * 64, "test")
    run = make_run(tmp_path / "run", source=local, digest=builtin_tasks()["gsm8k"].digest)
    [text] = (text for path, text in plan_push(run, "o/m").files.items() if "greedy" in path)
    assert yaml.safe_load(text)[0]["dataset"] == {"id": "openai/gsm8k", "task_id": "gsm8k"}


@pytest.mark.parametrize(
    ("changes", "name", "message"),
    [
        ({"count": 1319}, "o/m", "gsm8k: 20 of its 1,319 problems"),
        ({"source": SourceRef("my", "1", ""), "digest": "f" * 20}, "o/m", "no dataset on the Hub"),
        ({}, "o/m@v1", "is not a repository name"),
    ],
)
def test_unpublishable_results_are_refused(
    tmp_path: Path, changes: Any, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan_push(make_run(tmp_path / "run", **changes), name)
