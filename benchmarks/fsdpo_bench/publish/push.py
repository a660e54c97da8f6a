"""Push results to a model's repository: ``.eval_results/*.yaml``, and ``model-index`` in its card.

The Hub shows ``.eval_results`` on the model's page and on the leaderboards of benchmark datasets,
and ``model-index`` on the model's page. One commit changes both, and no other file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsdpo_cards.benchmark import model_index
from fsdpo_cards.pinned_names import COMMIT_PATTERN

from fsdpo_bench.metrics.report_numbers import number_rows
from fsdpo_bench.metrics.result_records import Results, read_results
from fsdpo_bench.run_folder import RESULTS_FILE, BenchmarkEntry
from fsdpo_bench.tasks.table import builtin_tasks
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import SourceRef
from fsdpo_data.core.lazy import hf, hf_constants, hf_errors
from fsdpo_data.hub.client import HubRepo, call_hub, hub_errors
from fsdpo_data.publish.push import authenticated_hub_api, check_write_access


@dataclass(frozen=True, slots=True)
class ResultsPushPlan:
    """The content of a push of results."""

    repo: HubRepo  #: Repository of the model.
    results: Results  #: Results of the complete benchmarks that have a dataset on the Hub.
    files: Mapping[str, str]  #: Text of each file in ``.eval_results``, by its path.
    left_out: Mapping[str, str]  #: Reason for each benchmark that is not pushed, by name.


def plan_push(run: Path, name: str, *, is_copy: bool = False) -> ResultsPushPlan:
    """Plan a push of a run to a model's repository, without network access.

    Args:
        run: Folder of the run.
        name: Name of the repository.
        is_copy: Whether the folder is a downloaded copy. The time of its files is that of the
            download, so the results get no date, and the Hub shows the date of the commit.

    Raises:
        InputError: if ``name`` is not a repository name, or the run has no results for the Hub.
    """
    repo = HubRepo.parse(name, "model")
    if repo is None or repo.revision:
        raise InputError(f"{name!r} is not a repository name. Expected org/name without @revision.")
    file = run / RESULTS_FILE
    all_results = read_results(file)
    sources: dict[str, SourceRef] = {}
    left_out: dict[str, str] = {}
    for task in all_results.tasks:
        entry = all_results.run.benchmarks.get(task)
        source = None if entry is None else _hub_source(task, entry)
        done = all_results.tasks[task].problems
        if entry is not None and source and done == entry.task.count:
            sources[task] = source
        elif entry is not None and source:
            left_out[task] = f"{done:,} of its {entry.task.count:,} problems"
        else:
            left_out[task] = "no dataset on the Hub is known for it"
    if not sources:
        reasons = "; ".join(f"{task}: {reason}" for task, reason in left_out.items())
        raise InputError(f"{run} has no results for the Hub. {reasons}.")
    advice = f"push {run} again later"
    results = _select_tasks(all_results, sources)
    date = None if is_copy else datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat()
    return ResultsPushPlan(
        repo=HubRepo(name, "model", required_access="write", custom_advice=advice),
        results=results,
        files=dict(_eval_result_files(results, date, repo.url)),
        left_out=left_out,
    )


def _select_tasks(results: Results, sources: Mapping[str, SourceRef]) -> Results:
    """Return the results of the benchmarks with a source on the Hub, which becomes theirs."""
    benchmarks = {
        name: results.run.benchmarks[name].model_copy(update={"source": source})
        for name, source in sources.items()
    }
    settings = results.run.model_copy(update={"benchmarks": benchmarks})
    tasks = {name: task for name, task in results.tasks.items() if name in sources}
    return results.model_copy(update={"run": settings, "tasks": tasks})


def _hub_source(name: str, entry: BenchmarkEntry) -> SourceRef | None:
    """Return the source of a benchmark on the Hub; None if there is none.

    If a run read a local copy of the benchmark, the source has no commit.
    """
    if COMMIT_PATTERN.fullmatch(entry.source.revision):
        return entry.source
    task = builtin_tasks().get(name)
    if task is None or task.hub is None or task.digest != entry.digest:
        return None
    return SourceRef(name=task.hub.repo, revision="", split=task.hub_split)


def _eval_result_files(results: Results, date: str | None, url: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of a file for each benchmark and metric, in percent."""
    import yaml

    for name, task in results.tasks.items():
        source = results.run.benchmarks[name].source
        numbers = {row.title: row.mean for row in number_rows(task, "hub")}
        for metric, mean in {**task.accuracies, **numbers}.items():
            if mean.value is None or mean.ci95 is None:
                continue
            low, high = (100 * bound for bound in mean.ci95)
            entry = hf.EvalResultEntry(
                dataset_id=source.name.partition(":")[0],
                task_id=builtin_tasks()[name].hub_task if name in builtin_tasks() else "default",
                value=round(100 * mean.value, 2),
                dataset_revision=source.revision or None,
                date=date,
                source_url=url,
                source_name="fsdpo-bench",
                notes=f"{metric}, n={mean.n}, 95 % [{low:.1f}, {high:.1f}], "
                f"prompt {results.run.sample.template.name}",
            )
            file_stem = re.sub(r"[^\w.]+", "-", f"{name}-{metric}").strip("-")
            text = yaml.safe_dump(hf.eval_result_entries_to_yaml([entry]), sort_keys=False)
            yield f"{hf_constants.EVAL_RESULTS_FOLDER}/{file_stem}.yaml", text


def check_push(plan: ResultsPushPlan, *, pull_request: bool = False) -> None:
    """Check that the Hub would accept a push; nothing changes.

    Raises:
        InputError: if the repository does not exist.
        UnavailableError: if there is no token, the Hub cannot be reached, or the token may not
            write. Everybody may open a pull request.
    """
    with hub_errors(plan.repo):
        api = authenticated_hub_api()
        call_hub(api.model_info, plan.repo.name)
        if not pull_request:
            check_write_access(api, plan.repo, exists=True)


def push(plan: ResultsPushPlan, *, pull_request: bool = False) -> str:
    """Push the results in one commit on top of the current commit, and return its URL.

    Results of a pull request appear as community results until the owner merges it.

    Raises:
        InputError: if the repository does not exist.
        UnavailableError: if the Hub cannot be reached or refuses the commit; nothing has changed.
    """
    name = plan.repo.name
    with hub_errors(plan.repo):
        api = authenticated_hub_api()
        parent_commit = call_hub(api.model_info, name).sha
        files = {**plan.files, "README.md": _updated_card(name, plan.results)}
        operations = [hf.CommitOperationAdd(path, text.encode()) for path, text in files.items()]
        commit = call_hub(
            api.create_commit,
            name,
            operations,
            commit_message=f"Results of {', '.join(plan.results.tasks)}",
            parent_commit=parent_commit,
            create_pr=pull_request,
        )
    return str(commit.pr_url or commit.commit_url)


def _updated_card(name: str, results: Results) -> str:
    """Return the model's card with the new results, which replace older ones of the same metric."""
    try:
        card: Any = hf.ModelCard.load(name)
    except hf_errors.RemoteEntryNotFoundError:
        card = hf.ModelCard("---\n{}\n---\n")
    by_metric = {}
    for result in [*(card.data.eval_results or ()), *model_index(results.to_json())]:
        by_metric[result.dataset_type, result.dataset_config, result.metric_name] = result
    card.data.eval_results = list(by_metric.values())
    card.data.model_name = card.data.model_name or results.run.sample.model.name
    return str(card)
