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
from fsdpo_cards.commands import COMMIT_PATTERN

from fsdpo_bench.results.result_types import Results
from fsdpo_bench.results.summary import summarise
from fsdpo_bench.runs.records import read_config, read_records, record_file
from fsdpo_bench.tasks.table import builtin_tasks
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import hf, hf_constants, hf_errors
from fsdpo_data.hub.client import HubRepo, hub_errors
from fsdpo_data.publish.push import authenticated_hub_api, call_with_retries


@dataclass(frozen=True, slots=True)
class ResultsPushPlan:
    """What a push of results sends."""

    repo: HubRepo
    results: Results  #: Those of whole benchmarks that the Hub has, with where they are there.
    files: Mapping[str, str]  #: Text of each file of ``.eval_results``, by its path.
    left_out: Mapping[str, str]  #: Benchmarks that are not sent, and why.


def plan_push(run: Path, name: str) -> ResultsPushPlan:
    """Say what a push of a run to a model's repository would send; the Hub is not asked.

    Raises:
        InputError: if ``name`` is no repository's, or nothing in the run can be shown there.
    """
    if (repo := HubRepo.parse(name, "model")) is None or repo.revision:
        raise InputError(f"{name!r} is no repository name: expected org/name, with no @revision.")
    results = summarise(read_records(run), read_config(run))
    left_out: dict[str, str] = {}
    for task, described in list(results["run"]["tasks"].items()):
        source = _source(task, described)
        done = results["tasks"][task]["problems"] if task in results["tasks"] else 0
        if done == described["rows"] and source:
            results["run"]["tasks"][task] = described | {"source": source}
            continue
        results["tasks"].pop(task, None)
        whole = f"{done:,} of its {described['rows']:,} problems"
        left_out[task] = whole if source else "no dataset of the Hub is known to be it"
    if not results["tasks"]:
        told = "; ".join(f"{task}: {why}" for task, why in left_out.items())
        raise InputError(f"{run} has no results that the Hub could show. {told}.")
    files = dict(_eval_results(results, run, repo.url))
    way_out = f"push {run} again later"
    return ResultsPushPlan(
        HubRepo(name, "model", required_access="write", advice=way_out), results, files, left_out
    )


def _source(name: str, described: Mapping[str, Any]) -> dict[str, str] | None:
    """Return where a benchmark is on the Hub, without a commit if it was read from a copy."""
    source, task = described["source"], builtin_tasks().get(name)
    if COMMIT_PATTERN.fullmatch(source["revision"]):
        return dict(source)
    if task is None or task.hub is None or task.digest != described["digest"]:
        return None
    return {"name": task.hub.repo, "revision": "", "split": task.hub_split}


def _eval_results(results: Results, run: Path, url: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of a file for each benchmark and way to answer, in percent."""
    import yaml

    for name, task in results["tasks"].items():
        source = results["run"]["tasks"][name]["source"]
        decoded = datetime.fromtimestamp(record_file(run, name).stat().st_mtime, UTC)
        means = {f"avg@{k}": found for k, found in task["avg_at_k"].items()}
        for way, found in {**task["decoders"], **means}.items():
            if found["accuracy"] is None or found["ci95"] is None:
                continue
            low, high = (100 * bound for bound in found["ci95"])
            entry = hf.EvalResultEntry(
                source["name"].partition(":")[0],
                builtin_tasks()[name].hub_task if name in builtin_tasks() else "default",
                round(100 * found["accuracy"], 2),
                dataset_revision=source["revision"] or None,
                date=decoded.date().isoformat(),
                source_url=url,
                source_name="fsdpo-bench",
                notes=f"{way}, n={found['n']}, 95 % [{low:.1f}, {high:.1f}], "
                f"prompt {results['run']['template']['name']}",
            )
            file = re.sub(r"[^\w.]+", "-", f"{name}-{way}").strip("-")
            text = yaml.safe_dump(hf.eval_result_entries_to_yaml([entry]), sort_keys=False)
            yield f"{hf_constants.EVAL_RESULTS_FOLDER}/{file}.yaml", text


def push(plan: ResultsPushPlan, *, pull_request: bool = False) -> str:
    """Send the results in one commit, on top of what is there; return its address.

    As a ``pull_request`` they are shown as the community's until the owner merges it.

    Raises:
        InputError: if there is no such repository.
        Unavailable: if the Hub cannot be reached or refuses; nothing was changed then.
    """
    name = plan.repo.name
    with hub_errors(plan.repo):
        api = authenticated_hub_api()
        head = call_with_retries(api.model_info, name).sha
        files = {**plan.files, "README.md": _card(name, plan.results)}
        operations = [hf.CommitOperationAdd(path, text.encode()) for path, text in files.items()]
        told = {"commit_message": f"Results of {', '.join(plan.results['tasks'])}"}
        how = {**told, "parent_commit": head, "create_pr": pull_request}
        made = call_with_retries(api.create_commit, name, operations, **how)
    return str(made.pr_url or made.commit_url)


def _card(name: str, results: Results) -> str:
    """Return a model's card with the results among others, in place of older ones."""
    try:
        card: Any = hf.ModelCard.load(name)
    except hf_errors.RemoteEntryNotFoundError:
        card = hf.ModelCard("---\n{}\n---\n")
    found = [*(card.data.eval_results or ()), *model_index(results)]
    told = {(each.dataset_type, each.dataset_config, each.metric_name): each for each in found}
    card.data.eval_results = list(told.values())
    card.data.model_name = card.data.model_name or results["run"]["model"]["name"]
    return str(card)
