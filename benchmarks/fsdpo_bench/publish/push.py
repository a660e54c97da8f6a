"""Push results to a model's repository: ``.eval_results/*.yaml``, and ``model-index`` in its card.

The Hub shows the first on the model's page and on the leaderboard of a benchmark's dataset, the
second where it always did. Both go in one commit, or none; nothing else of the repository changes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsdpo_cards.benchmark import model_index
from fsdpo_cards.commands import COMMIT

from fsdpo_bench.results.form import Accuracy, Results, TaskResults
from fsdpo_bench.results.summary import summarise
from fsdpo_bench.runs.records import read_config, read_records, record_file
from fsdpo_bench.tasks.table import shelf
from fsdpo_data.core.errors import InputError
from fsdpo_data.hub.client import HubRepo, hub_errors
from fsdpo_data.publish.push import hub_api, patiently

CARD = "README.md"


@dataclass(frozen=True, slots=True)
class Push:
    """What a push of results sends."""

    repo: HubRepo
    results: Results  #: Those of whole benchmarks that the Hub has.
    files: Mapping[str, str]  #: Text of each file of ``.eval_results``, by its path.
    left_out: Mapping[str, str]  #: Benchmarks that are not sent, and why.


def plan_push(run: Path, name: str) -> Push:
    """Say what a push of a run to a model's repository would send; the Hub is not asked.

    Raises:
        InputError: if ``name`` is no repository's, or nothing in the run can be shown there.
    """
    repo = HubRepo.parse(name, "model")
    if repo is None or repo.revision:
        raise InputError(f"{name!r} is no repository name: expected org/name, with no @revision.")
    config = read_config(run)
    results = summarise(read_records(run), config)
    left_out = {name: why for name in results["tasks"] if (why := _unfit(results, name))}
    tasks = {name: each for name, each in results["tasks"].items() if name not in left_out}
    if not tasks:
        told = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise InputError(f"{run} has no results that the Hub could show. {told or 'It is empty'}.")
    described = {
        name: {**each, "source": _source(name, each)} for name, each in config["tasks"].items()
    }
    results = {**results, "tasks": tasks, "run": {**config, "tasks": described}}
    written = max(record_file(run, name).stat().st_mtime for name in tasks)
    date = datetime.fromtimestamp(written, UTC).date().isoformat()
    files = dict(_eval_results(results, date, repo.url))
    way_out = f"push {run} again later"
    return Push(HubRepo(name, "model", needs="write", way_out=way_out), results, files, left_out)


def _unfit(results: Results, name: str) -> str:
    """Say why the results of a benchmark are not those that the Hub compares; empty if they are."""
    task, described = results["tasks"][name], results["run"]["tasks"][name]
    if task["problems"] != described["rows"]:
        return f"{task['problems']:,} of its {described['rows']:,} problems"
    return "" if _source(name, described) else "no dataset of the Hub is known to be it"


def _source(name: str, described: Mapping[str, Any]) -> dict[str, str] | None:
    """Return where a benchmark is on the Hub, also of one that was read from a file with the same.

    The commit is empty then.
    """
    source, task = described["source"], shelf().get(name)
    if COMMIT.fullmatch(source["revision"]):
        return dict(source)
    if task is None or task.hub is None or task.digest != described["digest"]:
        return None
    return {"name": task.hub.repo, "revision": "", "split": task.hub_split}


def _eval_results(results: Results, date: str, url: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of a file for each benchmark and way to answer, in percent."""
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    from huggingface_hub.constants import EVAL_RESULTS_FOLDER

    for name, task in results["tasks"].items():
        source = results["run"]["tasks"][name]["source"]
        for way, found in _ways(task):
            if found["accuracy"] is None or found["ci95"] is None:
                continue
            low, high = (100 * bound for bound in found["ci95"])
            entry = EvalResultEntry(
                source["name"].partition(":")[0],
                shelf()[name].hub_task if name in shelf() else "default",
                round(100 * found["accuracy"], 2),
                dataset_revision=source["revision"] or None,
                date=date,
                source_url=url,
                source_name="fsdpo-bench",
                notes=f"{way}, n={found['n']}, 95 % [{low:.1f}, {high:.1f}], "
                f"prompt {results['run']['template']['name']}",
            )
            file = re.sub(r"[^\w.]+", "-", f"{name}-{way}").strip("-")
            text = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False)
            yield f"{EVAL_RESULTS_FOLDER}/{file}.yaml", text


def _ways(task: TaskResults) -> Iterator[tuple[str, Accuracy]]:
    yield from task["decoders"].items()
    for k, found in task["avg_at_k"].items():
        yield f"avg@{k}", found


def push(plan: Push, *, pull_request: bool = False) -> str:
    """Send the results in one commit, on top of what is there; return its address.

    As a ``pull_request`` they are shown as the community's until the owner merges it.

    Raises:
        InputError: if there is no such repository.
        Unavailable: if the Hub cannot be reached or refuses; nothing was changed then.
    """
    from huggingface_hub import CommitOperationAdd

    name = plan.repo.name
    with hub_errors(plan.repo):
        api = hub_api()
        head = str(patiently(api.model_info, name).sha)
        files = {**plan.files, CARD: _merged(_card(name, head), plan.results)}
        operations = [CommitOperationAdd(path, text.encode()) for path, text in files.items()]
        message = f"Results of {', '.join(plan.results['tasks'])}"
        made = patiently(
            api.create_commit,
            name,
            operations,
            commit_message=message,
            parent_commit=head,
            create_pr=pull_request,
        )
    return str(made.pr_url if pull_request else made.commit_url)


def _card(name: str, revision: str) -> str:
    """Return the card of a model at a commit; empty where it has none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        file = hf_hub_download(name, CARD, revision=revision)
    except RemoteEntryNotFoundError:
        return ""
    return Path(file).read_text(encoding="utf-8")


def _merged(card: str, results: Results) -> str:
    """Return a card with the results in place of those of the same measurement, beside others."""
    from huggingface_hub import ModelCard

    made: Any = ModelCard(card or "---\n{}\n---\n")
    ours = list(model_index(results))
    others = [
        each
        for each in made.data.eval_results or ()
        if not any(_measured(each) == _measured(own) for own in ours)
    ]
    made.data.eval_results = others + ours
    made.data.model_name = made.data.model_name or results["run"]["model"]["name"]
    return str(made)


def _measured(result: Any) -> tuple[Any, ...]:
    return result.dataset_type, result.dataset_config, result.dataset_split, result.metric_name
