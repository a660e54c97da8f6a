"""Tests of Hub datasets: pinned, checked, and with one message per kind of failure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest
from hub_server import HubServer, client_env, run_client, running_hub

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.problems import hub_datasets
from fsdpo_data.problems.hub_datasets import DATASETS, HubSource, load_hub
from fsdpo_data.problems.load import problems_digest

GSM8K = [{"question": f"Add {i} and {i}.", "answer": f"Easy.\n#### {2000 * i:,}"} for i in range(5)]


def lines(rows: Sequence[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CARD = """---
configs:
- config_name: main
  default: true
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
- config_name: socratic
  data_files:
  - split: train
    path: socratic/train-*
---
"""

CLIENT = """
import dataclasses, json, logging
logging.disable()
from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.problems.hub_datasets import DATASETS
from fsdpo_data.problems.load import load_problems
DATASETS = dict(DATASETS)
for name, changes in {changes!r}.items():
    DATASETS[name] = dataclasses.replace(DATASETS[name], **changes)
for name, split in {requests!r}:
    try:
        problem_set = load_problems([name], split=split, datasets=DATASETS)
        print(json.dumps(dataclasses.asdict(problem_set)))
    except FsdpoError as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.fixture
def hub() -> Iterator[HubServer]:
    files = {
        "README.md": CARD.encode(),
        "main/train-0.jsonl": lines(GSM8K).encode(),
        "main/test-0.jsonl": lines(GSM8K[:2]).encode(),
        "socratic/train-0.jsonl": lines(GSM8K[1:3]).encode(),
    }
    with running_hub() as server:
        server.add("dataset", "openai/gsm8k", files)
        yield server


def ask(
    requests: Sequence[tuple[str, str]],
    hub: HubServer,
    home: Path,
    known_datasets: dict[str, dict[str, Any]] | None = None,
    **env: str,
) -> list[Any]:
    """Load sources in a new process that can only reach ``hub``."""
    code = CLIENT.format(requests=list(requests), changes=known_datasets or {})
    ran = run_client(code, client_env(hub.url, home, **env))
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_gsm8k_from_the_hub(hub: HubServer, tmp_path: Path) -> None:
    repo = hub.repos["dataset", "openai/gsm8k"]
    first = repo.refs["v1"] = repo.refs["main"]
    second = repo.commit({**repo.commits[first], "main/train-0.jsonl": lines(GSM8K[:3]).encode()})
    golds = ["0", "2,000", "4,000", "6,000", "8,000"]
    problems = [
        Problem(row["question"], gold, "", "") for row, gold in zip(GSM8K, golds, strict=True)
    ]
    digest = problems_digest([problem.id for problem in problems])
    known_datasets = {"gsm8k": {"rows": {"train": 5}, "digests": {"train": digest}}}
    requests = [("gsm8k@v1", "train"), ("gsm8k", "train"), ("gsm8k@v1:socratic", "train"),
             ("openai/gsm8k", "test"), (f"openai/gsm8k@{first}:main", "train")]  # fmt: skip
    pinned, short, config, plain, exact = ask(requests, hub, tmp_path / "home", known_datasets)

    assert [row["answer"] for row in pinned["problems"]] == golds
    assert pinned["problems"][0]["source"] == "openai/gsm8k"
    assert pinned["source_refs"] == [{"name": "openai/gsm8k", "revision": first, "split": "train"}]
    assert pinned["warnings"] == pinned["quarantined_rows"] == []
    assert short == [
        "InputError",
        f"openai/gsm8k at {second[:12]}, split train: 3 rows, expected 5. It is not the dataset "
        "that the name gsm8k stands for: choose another revision with gsm8k@<commit>, or read it "
        "as it is under its full name, openai/gsm8k.",
    ]
    assert len(config["problems"]) == 2
    assert config["source_refs"][0]["name"] == "openai/gsm8k:socratic"
    assert len(plain["problems"]) == 2
    assert plain["source_refs"][0]["revision"] == second
    assert len(exact["problems"]) == 5
    assert not [request for request in hub.requests if "datasets-server" in request]


def test_the_real_gsm8k_is_expected_under_its_name(hub: HubServer, tmp_path: Path) -> None:
    (answer,) = ask([("gsm8k", "train")], hub, tmp_path)
    assert "split train: 5 rows, expected 7473." in answer[1]


def test_other_texts_in_the_same_number_of_rows_are_remarked_on(
    hub: HubServer, tmp_path: Path
) -> None:
    known_datasets = {"gsm8k": {"rows": {"train": 5}, "digests": {"train": "0" * 20}}}
    (answer,) = ask([("gsm8k", "train")], hub, tmp_path, known_datasets)
    assert len(answer["problems"]) == 5
    assert "the problems are not those of the original files" in answer["warnings"][0]


def test_math_is_seven_configs_and_step_dpo_one_row_a_question(
    hub: HubServer, tmp_path: Path
) -> None:
    subjects = DATASETS["math"].configs
    card = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}/train-*\n"
        for name in subjects
    )
    files = {"README.md": f"---\nconfigs:\n{card}---\n".encode()}
    for i, name in enumerate(subjects):
        row = {"problem": f"p{i}", "level": "Level 1", "type": name, "solution": f"\\boxed{{{i}}}"}
        files[f"{name}/train-0.jsonl"] = lines([row]).encode()
    hub.add("dataset", "EleutherAI/hendrycks_math", files)
    pairs = [{"prompt": "p", "answer": gold, "chosen": "c", "rejected": "r"} for gold in "112"]
    hub.add("dataset", "xinlai/Math-Step-DPO-10K", {"data/train-0.jsonl": lines(pairs).encode()})
    known_datasets = {
        "math": {"rows": {"train": 7}, "digests": {}},
        "math-step-dpo-10k": {"rows": {}},
    }
    requests = [("math", "train"), ("math:geometry", "train"), ("math-step-dpo-10k", "train")]
    full_set, part, step_dpo = ask(requests, hub, tmp_path, known_datasets)
    assert [row["answer"] for row in full_set["problems"]] == list("0123456")
    assert [ref["name"] for ref in full_set["source_refs"]] == ["EleutherAI/hendrycks_math"]
    assert [row["metadata"]["type"] for row in part["problems"]] == ["geometry"]
    assert [row["answer"] for row in step_dpo["problems"]] == ["1"]
    assert [row["row"] for row in step_dpo["quarantined_rows"]] == [2, 3]


def test_what_the_hub_can_answer(hub: HubServer, tmp_path: Path) -> None:
    hub.add("dataset", "o/gated", {"a.jsonl": b"", "README.md": b""}, gated=True)
    hub.add("dataset", "o/text", {"data/train.jsonl": lines([{"text": "x"}]).encode()})
    hub.add("dataset", "o/torn", {"data/train.jsonl": b'{"question": "q", "ans\n'})
    hub.add("dataset", "o/nothing", {"README.md": b"# no data"})
    hub.add("dataset", "o/script", {"script.py": b"import datasets"})
    hub.fail("/o/busy", 429)
    names = "gsm8k:nope gsm8k@nope o/gsm9k o/gated o/text o/torn o/nothing o/script o/busy"
    requests = [("gsm8k", "dev"), *((name, "train") for name in names.split())]
    answers = ask(requests, hub, tmp_path)
    split, config, revision, unknown, gated, text, torn, nothing, script, busy = answers
    assert "'nope' not found. Available: ['main', 'socratic']" in config[1]
    assert "Unknown split \"dev\". Should be one of ['train', 'test']." in split[1]
    assert "dataset openai/gsm8k has no revision 'nope'" in revision[1]
    assert "there is no dataset o/gsm9k" in unknown[1]
    assert "Nearest short names: gsm8k." in unknown[1]
    assert unknown[1].startswith("no such file or directory: o/gsm9k; there is no dataset")
    assert f"dataset o/gated is gated: ask for access at {hub.url}/datasets/o/gated" in gated[1]
    assert "o/text: none of its 1 rows is a problem. Fields found: text." in text[1]
    assert "dataset o/torn, split train" in torn[1]
    assert "doesn't contain any data files. See " in nothing[1]
    assert "Dataset scripts are no longer supported" in script[1]
    assert "answered 429 for dataset o/busy" in busy[1]
    assert "or use the source embedded, which needs no network" in busy[1]


def test_without_a_network(hub: HubServer, tmp_path: Path) -> None:
    repo = hub.repos["dataset", "openai/gsm8k"]
    requests = [("openai/gsm8k", "train")]
    (first,) = ask(requests, hub, tmp_path)
    hub.fail("/", 503)
    (down,) = ask(requests, hub, tmp_path)
    assert down[0] == "UnavailableError"
    assert f"Or set HF_HUB_OFFLINE=1 to use the cached commit {repo.refs['main']}." in down[1]
    (cached,) = ask(requests, hub, tmp_path, HF_HUB_OFFLINE="1")
    assert cached == first
    (absent,) = ask(requests, hub, tmp_path / "other", HF_HUB_OFFLINE="1")
    assert "offline mode is on" in absent[1]


def test_a_damaged_arrow_file_in_the_cache_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library `datasets` maps the file into memory, and uses its offsets without a check."""
    commit = "a" * 40
    folder = tmp_path / commit
    datasets.Dataset.from_dict({"question": ["An ordinary question"] * 40}).save_to_disk(folder)
    [file] = folder.glob("*.arrow")
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *names, **options: datasets.Dataset.from_file(str(file))
    )
    monkeypatch.setattr(hub_datasets, "resolve_commit", lambda repo: commit)
    source = HubSource.parse("org/name", {})
    assert source is not None
    [(_, _, rows)] = load_hub(source, "train")[1]
    # The rows stay on disk, and can be read several times.
    assert [row.row_number for row in rows] == [row.row_number for row in rows]
    assert len(rows) == 40 and [*rows][39] == rows[39]
    data = bytearray(file.read_bytes())
    start = data.index(b"An ordinary")
    for changes in ({start: b"\xff\xfe"}, {start - 20: b"\xff\xff\xff\x7f"}):
        changed_data = bytearray(data)
        for offset, value in changes.items():
            changed_data[offset : offset + len(value)] = value
        file.write_bytes(changed_data)
        with pytest.raises(InputError, match=r"the local copy of .* is damaged .*\.arrow"):
            load_hub(source, "train")
