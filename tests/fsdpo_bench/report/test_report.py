"""Reports of runs and datasets: files that agree, safe and bounded pages, and printed tables."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from bench_runs import (
    HOSTILE,
    load_pool,
    make_entry,
    make_problem,
    make_solution,
    make_solutions,
    measure_paths,
    report_run,
    write_dataset,
    write_run,
    written,
)
from fsdpo_bench.cli.app import app
from fsdpo_bench.metrics.decoder_choices import DecoderChoices
from fsdpo_bench.metrics.disagreements import IMPORTED_COLUMN
from fsdpo_bench.metrics.likelihood import with_likelihoods
from fsdpo_bench.metrics.measure import MeasureSpec, decode_pool
from fsdpo_bench.metrics.report_numbers import NUMBERS, ReportNumber, format_points, number_rows
from fsdpo_bench.metrics.result_records import Results, read_results
from fsdpo_bench.metrics.sample_arrays import Samples
from fsdpo_bench.report.plots import _space_out
from fsdpo_bench.report.problem_list import build_problem_list, explain_outcome
from fsdpo_bench.report.render import render_html, render_markdown
from fsdpo_bench.report.svg import Axis
from fsdpo_bench.tasks.table import builtin_tasks, suites
from fsdpo_cards.render import format_percent
from pydantic import ValidationError
from typer.testing import CliRunner

from fsdpo_data.core.cost import Cost
from fsdpo_data.core.entities import OUTCOMES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.statistics import Mean
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_data.problems.benchmark_rows import BenchmarkRow
from fsdpo_data.problems.embedded import PROMPT
from fsdpo_data.problems.embedded.generator import make_problems

TASKS = {"math": 20, "ocw": 12, "gsm_ic2": 14}
ESCAPES = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\u202e\x9b2J"


class Page(HTMLParser):
    """Parser that collects the elements of a page and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.scripts[0]))


def page_of(run: Path, budget: int = 10**7) -> tuple[str, Page]:
    report_run(run, budget_bytes=budget)
    text = (run / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


def invoke(*words: object, **env: str) -> str:
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "150"} | env)
    assert result.exit_code == 0, result.output
    return result.stdout


# Files


def test_a_bound_of_zero_has_no_sign() -> None:
    """Rounding gives -0.0, as the mean of several intervals may be just below zero."""
    mean = Mean(value=0.0, n=5, ci95=(-1e-17, 0.164))
    assert format_points(mean) == "0.0 [0.0, 16.4]"
    assert format_percent(-1e-17, mean.ci95) == "0.0 %  [0.0, 16.4]"


def test_a_run_gets_files_that_agree_and_are_the_same_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASKS)
    results = report_run(run)
    assert read_results(run / "results.json") == results
    greedy = results.tasks["math"].accuracies["greedy"]
    assert greedy.value is not None and greedy.ci95 is not None
    low, high = greedy.ci95
    accuracy_text = f"{100 * greedy.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    names = ("results.json", "report.md", "report.html", "README.md")
    for name in names[1:3]:
        assert accuracy_text in (run / name).read_text(encoding="utf-8")
    old_bytes = {name: (run / name).read_bytes() for name in names}
    report_run(run)
    assert {name: (run / name).read_bytes() for name in names} == old_bytes
    assert not list(run.glob("*.tmp"))


def test_the_run_section_has_the_settings_of_the_datasets(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"math": 3})
    settings = measure_paths(run).to_json()["run"]
    assert settings["sample"]["model"]["name"] == "Qwen2-7B-SFT"
    assert settings["sample"]["sampling"]["n"] == 4
    assert list(settings["datasets"]) == ["greedy", "samples", "sbs@2,1"]
    assert settings["datasets"]["greedy"]["sample"]["sampling"]["temperature"] == 0
    assert settings["datasets"]["sbs@2,1"]["sample"]["search"]["beam"]["b1"] == 2
    manifest = json.loads((run / "samples/manifest.json").read_text())
    assert settings["datasets"]["samples"]["digest"] == manifest["digest"]
    assert settings["reward_models"]["prm"]["prm"]["name"] == "prm"
    assert settings["benchmarks"]["math"]["task"]["count"] == 6
    assert settings["decoders"][0] == "greedy"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), "3"),
        (("tasks", "math", "decoders", "greedy", "accuracy", "value"), "high"),
        (("tasks", "math", "decoders", "greedy", "cost", "tokens"), "many"),
        (("tasks", "math", "numbers", "pass_at_k", "1", "n"), None),
        (("rewards", "prm", "ranking_auc", "min", "n"), "x"),
        (("rewards", "prm", "calibration", "bins", 0, "low"), None),
        (("run", "grade", "grader"), 3),
    ],
)
def test_invalid_results_are_refused(
    tmp_path: Path, path: tuple[str | int, ...], value: object
) -> None:
    results = measure_paths(write_run(tmp_path / "run", {"math": 8}))
    content: Any = json.loads(results.to_text())
    entry = content
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = value
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"results\.json is damaged \([^\n]*\)[^\n]*\Z") as caught:
        read_results(tmp_path / "results.json")
    assert path[0] in str(caught.value)
    with pytest.raises(ValidationError, match="frozen"):
        results.version = 3  # type: ignore[misc]
    assert Results.model_validate_json(results.to_text()) == results


def test_files_of_another_version_are_refused_in_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"math": 3})
    report_run(run)
    for name in ("run.json", "results.json"):
        file = run / name
        content = json.loads(file.read_text())
        # The other fields have another format, too, and must not be named.
        file.write_text(json.dumps({"version": 2, "decoders": 4, "tasks": [content]}))
    expected = r"json is of version 2; this release reads version 3\. [^\n]*run the benchmark again"
    for command in (["report", str(run)], ["push", str(run), "org/name", "--dry-run"]):
        with pytest.raises(InputError, match=expected):
            CliRunner().invoke(app, command, catch_exceptions=False)


def test_an_unknown_time_is_in_the_reports(tmp_path: Path) -> None:
    """A stage of a plug-in may have a cost without a time."""
    run = write_run(tmp_path / "run", {"math": 3})
    results = measure_paths(run)
    datasets = {
        name: dataset.model_copy(update={"cost": Cost(tokens=5, prm_calls=0)})
        for name, dataset in results.run.datasets.items()
    }
    unknown = results.model_copy(
        update={"run": results.run.model_copy(update={"datasets": datasets})}
    )
    assert "| samples | 5 | 0 | unknown |" in render_markdown(unknown)
    page = render_html(unknown, build_problem_list(load_pool(run), {"math": {}}), pytest.fail)
    assert "samples took an unknown number of seconds" in page


# Numbers


def test_a_registered_number_is_in_the_results_and_in_every_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_correct(samples: Samples, decoded: Any) -> dict[str, Any]:
        assert all(isinstance(choices, DecoderChoices) for choices in decoded.values())
        return {"4": samples.is_correct_PM.all(axis=1).astype(float)}

    monkeypatch.setattr(NUMBERS, "data", dict(NUMBERS.items()))
    NUMBERS.register(
        ReportNumber(
            name="solved_by_all_at_k",
            title="solved-by-all@{key}",
            compute=all_correct,
            format=lambda mean: f"{mean.total:g} of {mean.n} problems",
        )
    )
    run = write_run(tmp_path / "run", {"gsm8k": 30}, chance=0.8)
    output = invoke("report", run)
    [row] = [
        row
        for row in number_rows(read_results(run / "results.json").tasks["gsm8k"], "page")
        if row.title == "solved-by-all@4"
    ]
    [benchmark] = load_pool(run).benchmarks.values()
    solved = int(np.all(benchmark.main.outcome_PM == "correct", axis=1).sum())
    text = f"{solved} of 30 problems"
    assert solved and row.text == text and row.mean.ci95 is not None
    assert f"| GSM8K | solved-by-all@4 | {text} | 30 |" in (run / "report.md").read_text()
    page = (run / "report.html").read_text()
    assert f'<td>solved-by-all@4</td><td class="n">{text}</td>' in page
    assert "solved-by-all@4" in output and text in output
    compared = json.loads(invoke("diff", run, run, "--json"))
    assert "solved-by-all@4" in [row["measure_a"] for row in compared["differences"]]


def test_each_output_prints_its_own_numbers(tmp_path: Path) -> None:
    task = measure_paths(write_run(tmp_path / "run", {"gsm8k": 5})).tasks["gsm8k"]
    titles = {
        output: [row.title for row in number_rows(task, output)]  # type: ignore[arg-type]
        for output in ("terminal", "page", "markdown", "hub")
    }
    assert titles["hub"] == ["avg@4"] and titles["terminal"] == ["avg@4"]
    assert titles["page"] == ["avg@4", "pass@1", "pass@2", "pass@4", "maj@2", "maj@4"]
    assert titles["markdown"] == titles["page"]


# Pages


def test_the_page_loads_nothing_from_the_network(tmp_path: Path) -> None:
    text, page = page_of(write_run(tmp_path / "run", TASKS))
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    for tag, attributes in page.elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert not loading & set(attributes)
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"https?://|@import|url\(", text)
    [policy] = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    assert policy and policy.startswith("default-src 'none'")


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    _, plain = page_of(write_run(tmp_path / "a", {"gsm8k": 5}))
    model = ModelRef("</title><script>alert(1)</script>|x", "a" * 40)
    text, page = page_of(write_run(tmp_path / "b", {"gsm8k": 5}, text=HOSTILE, model=model))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert len(page.scripts) == len(plain.scripts) == 2
    assert page.data["problems"][0]["question"].startswith(HOSTILE)
    assert text.count("</script") == 2


def test_model_names_are_escaped_in_cards_and_reports(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>|[x](javascript:alert(1))`"
    run = write_run(tmp_path / "a", {"gsm8k": 3}, model=ModelRef(name, "a" * 40))
    report_run(run)
    for file in ("report.md", "README.md"):
        text = (run / file).read_text().partition("\n---\n")[2] or (run / file).read_text()
        outside = re.sub(r"```.*?```|(`+)[^\n]*?\1", "", text, flags=re.S)
        assert "<img" not in outside and "](javascript" not in outside.replace("\\]", "")


def test_all_svg_drawings_are_well_formed_and_have_titles(tmp_path: Path) -> None:
    text, _ = page_of(write_run(tmp_path / "run", TASKS))
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.S)
    assert len(drawings) == 1 + 3 + 3
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.find("title") is not None
        assert "nan" not in drawing and "inf" not in drawing


def test_published_results_list_the_backbone_of_the_run_first(tmp_path: Path) -> None:
    text, _ = page_of(write_run(tmp_path / "run", {"ocw": 4}))
    rows = re.findall(r'<tr( class="own")?><td>([^<]+)</td><td class="n">([\d.–]+)</td></tr>', text)
    assert [label for own_class, label, _ in rows if own_class] == [
        "Qwen2-7B-SFT",
        "Qwen2-7B-SFT + DPO",
        "Qwen2-7B-SFT + Step-DPO",
        "Qwen2-7B-SFT + Full-Step-DPO",
    ]
    assert rows[3][2] == "18.4" and len(rows) == 16


def test_a_file_with_the_name_of_a_benchmark_is_not_compared_with_the_paper(
    tmp_path: Path,
) -> None:
    tasks = dict.fromkeys(suites()["in-domain"], 3)
    names = {True: tmp_path / "listed", False: tmp_path / "own"}
    for is_listed, run in names.items():
        digests = {} if is_listed else {"digest": "f" * 20}
        entries = {name: make_entry(name, 3, **digests) for name in tasks}
        results = report_run(write_run(run, tasks, decoders=["greedy"], entries=entries))
        assert list(results.suites) == (["in-domain"] if is_listed else ["this run"])
        assert ("Full-Step-DPO" in (run / "report.md").read_text()) == is_listed
        assert ("Full-Step-DPO" in (run / "report.html").read_text()) == is_listed
    dataset = measure_paths(tmp_path / "listed" / "greedy")
    assert list(dataset.suites) == ["this run"]


@pytest.mark.parametrize("decoders", [("greedy",), ("sc@4",), ("greedy", "sbs@2,1")])
def test_a_sparse_run_still_has_a_page(tmp_path: Path, decoders: tuple[str, ...]) -> None:
    text, page = page_of(write_run(tmp_path / "run", {"gsm8k": 6}, decoders=decoders))
    assert "Accuracy and cost" in text and "Calibration" not in text
    assert len(page.data["problems"]) == 6


def test_rewards_outside_0_to_1_are_ranked_but_not_plotted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"gsm8k": 6}, rewards=[-3.5, 7.0])
    assert report_run(run).rewards["prm"].ranking_auc["mean"].value == 0.5
    page = (run / "report.html").read_text()
    assert "Calibration" not in page and "nan" not in page


def test_the_list_has_all_solutions_and_the_certain_choices(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"gsm8k": 10})
    pool = load_pool(run)
    problem_list = build_problem_list(pool, decode_pool(pool, MeasureSpec()))
    assert problem_list.left_out == ""
    assert [len(problem["solutions"]) for problem in problem_list.problems] == [6] * 10
    first = problem_list.problems[0]
    # The choice from 2 of 4 samples is a mean over subsets.
    assert list(first["decoded"]) == ["greedy", "sc@4", "bon@4:min", "sbs@2,1"]
    assert first["solutions"][first["decoded"]["greedy"]["taken"][0]]["name"] == "greedy"
    assert first["solutions"][first["decoded"]["sbs@2,1"]["taken"][0]]["name"] == "sbs@2,1"
    [chosen] = first["decoded"]["bon@4:min"]["taken"]
    best = max(first["solutions"][1:5], key=lambda entry: min(entry["rewards"]))
    assert first["solutions"][chosen]["name"] == best["name"]


def test_a_large_run_respects_the_size_budget_and_reports_omissions(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", {"gsm8k": 1500}, samples=8, text="Let us think about it. " * 12
    )
    budget = 1_500_000
    pool = load_pool(run)
    problem_list = build_problem_list(pool, decode_pool(pool, MeasureSpec()), budget)
    size = len(json.dumps(problem_list.problems))
    assert 0.3 * budget < size < 1.2 * budget
    assert len(problem_list.problems) == 500
    assert problem_list.left_out.startswith("1,000 of 1,500 problems and ")
    text = render_html(measure_paths(run), problem_list, print)
    assert "Left out because of the size limit: 1,000 of 1,500 problems" in text


def test_very_long_solutions_are_truncated_with_a_count(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"gsm8k": 20}, text="9" * 50_000)
    pool = load_pool(run)
    problem_list = build_problem_list(pool, decode_pool(pool, MeasureSpec()), 200_000)
    assert len(json.dumps(problem_list.problems)) < 400_000
    assert problem_list.problems[0]["solutions"][0]["hidden"] > 40_000
    assert "more characters" in problem_list.problems[0]["question"]


def test_every_outcome_has_an_explanation() -> None:
    texts = {explain_outcome(outcome, "math@6/none") for outcome in OUTCOMES}
    assert len(texts) == len(OUTCOMES)
    assert explain_outcome("correct", "judge/org/m@1/boxed").startswith(
        "A part was not read, so the judge org/m@1 decided."
    )


def test_a_plot_error_is_a_warning_after_the_results_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", TASKS)
    existing_files: list[list[str]] = []

    def raise_error(results: Any) -> str:
        existing_files.append(sorted(file.name for file in run.iterdir()))
        raise ZeroDivisionError("no width")

    monkeypatch.setattr("fsdpo_bench.report.plots.accuracy_plot", raise_error)
    warnings: list[str] = []
    report_run(run, warn=warnings.append)
    assert {"README.md", "results.json"} <= set(existing_files[0])
    [warning] = warnings
    assert "no width" in warning and (run / "report.html").is_file()


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 100, 0, 1), [0, 20, 40, 60, 80, 100]),
        (Axis(0.31, 0.34, 0, 1), [0.31, 0.32, 0.33, 0.34]),
        (Axis(30, 700, 0, 1, log=True), [50, 100, 200, 500]),
    ],
)
def test_axes_have_round_ticks(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)
    assert axis(axis.low) == 0
    assert axis(axis.high) == pytest.approx(1)


def test_labels_at_the_same_position_are_separated() -> None:
    """For this position, floating point gives (position + 9) - position < 9."""
    position = 254.43046729594042
    values = {"a": position, "b": position, "c": position + 1e-9}
    spaced_values = sorted(_space_out(values, 9).values())
    assert all(later - sooner > 8.99 for sooner, later in itertools.pairwise(spaced_values))


def test_the_lines_of_the_paper_have_numbers_that_the_page_explains(tmp_path: Path) -> None:
    text, _ = page_of(write_run(tmp_path / "run", {"ocw": 40, "math": 40}))
    [explanation] = re.findall(r"Numbers of the lines: (.*?)\.</p>", text)
    labels = dict(entry.split("&nbsp;", 1) for entry in explanation.split("; "))
    plot = text.partition("<figure>")[2].partition("</figure>")[0]
    numbers = re.findall(r'y="[\d.]+"[^>]*>([\d,]+)</text>', plot)
    tick_numbers = {number for label in numbers if label for number in label.split(",")}
    assert labels and set(labels) <= tick_numbers
    assert any("Full-Step-DPO" in label for label in labels.values())


# The command


def test_the_command_prints_a_table_and_the_path_of_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASKS)
    output = invoke("report", run)
    assert str(run / "report.html") in output.replace("\n", "")
    results = read_results(run / "results.json")
    assert json.loads(invoke("report", run, "--json")) == results.to_json()
    lines = [line.split() for line in output.splitlines()]
    groups = results.tasks["math"].groups
    assert {"subject", "level"} <= groups.keys()
    for group, parts in groups.items():
        assert f"MATH by {group}" in output
        for label, part in parts.items():
            first = [label, *next(iter(part)).split()]
            assert any(line[: len(first)] == first for line in lines), label


def two_datasets(folder: Path) -> list[Path]:
    """Write other samples of the same problems, 4 and 4 of each."""
    problems = [make_problem(number) for number in range(6)]
    roots = []
    for salt, outcomes in enumerate(("ccii", "ccci")):
        rows = [
            row
            for problem in problems
            for row in make_solutions(
                problem, outcomes, salt=[salt] * 4, step_rewards=[[0.5, 0.2]] * 4
            )
        ]
        roots.append(write_dataset(folder / "ab"[salt], problems, rows, prm="prm"))
    return roots


def test_a_dataset_has_tables_by_n_and_writes_a_page_on_request(tmp_path: Path) -> None:
    first, _ = two_datasets(tmp_path)
    output = invoke("report", first, "--gamma", "0.5", "--out", tmp_path / "page")
    for text in ("N=1", "N=4", "a perfect choice (pass@N)", "p (Holm)", "ECE", "at γ 0.5"):
        assert text in output
    assert not (first / "results.json").exists()
    names = {file.name for file in (tmp_path / "page").iterdir()}
    assert names == {"results.json", "report.md", "report.html"}
    for name in ("report.md", "report.html"):
        assert "accuracy (%) of N samples" in (tmp_path / "page" / name).read_text()
    assert "results.json" not in invoke("report", first)


def write_partly_scored(root: Path) -> Path:
    """Write two benchmarks: half of the samples of the first have rewards, and none of the other.

    The rewards prefer the correct samples, so best-of-N errs where a problem has no rewards.
    """
    rewards = {"half": ([[0.1], [0.9]], [None, None]), "none": ([None, None],) * 2}
    problems, rows = [], []
    for name, by_problem in rewards.items():
        for number, step_rewards in enumerate(by_problem):
            problem = make_problem(len(problems), [BenchmarkRow(name, number)])
            problems.append(problem)
            completions = [["The answer is 7."], [f"The answer is {problem.answer}."]]
            rows += make_solutions(
                problem, "ic", step_rewards=step_rewards, completions=completions
            )
    return write_dataset(root, problems, rows, prm="prm")


def test_samples_without_rewards_are_counted_and_choose_nothing(tmp_path: Path) -> None:
    root = write_partly_scored(tmp_path / "d")
    results = measure_paths(root, sizes=[2], aggregates=["min"])
    half, none = results.tasks["half"], results.tasks["none"]
    assert list(half.decoders) == ["first", "sc@2", "weighted@2:min", "bon@2:min"]
    assert list(none.decoders) == ["first", "sc@2"]
    assert (half.unscored, none.unscored) == ({"prm": 2}, {"prm": 4})
    assert results.cost["bon@2:min"].prm_calls == 4
    assert list(results.suites["this run"].accuracies) == ["first", "sc@2"]
    output = invoke("report", root, "--out", tmp_path / "page")
    notes = (
        "half: 2 of 4 samples have no reward by prm: best-of-N takes them last, and they have no "
        "weight in votes",
        "none: no sample has a reward by prm, so no decoder chooses by its rewards",
    )
    for note in notes:
        assert note in output
    for name in ("report.md", "report.html"):
        text = (tmp_path / "page" / name).read_text()
        assert "2 samples without a reward by prm" in text
        assert "4 samples without a reward by prm" in text
    assert "unscored" not in json.dumps(measure_paths(*two_datasets(tmp_path)[:1]).to_json())


def test_columns_of_folders_with_one_name_have_their_paths(tmp_path: Path) -> None:
    roots = []
    for number, root in enumerate(two_datasets(tmp_path)):
        (tmp_path / str(number)).mkdir()
        roots.append(root.rename(tmp_path / str(number) / "bench"))
    header = next(line for line in invoke("report", *roots).splitlines() if "choice" in line)
    assert header.split() == ["choice", *map(str, roots), "difference"]


def test_other_datasets_are_columns_next_to_each_other(tmp_path: Path) -> None:
    roots = two_datasets(tmp_path)
    lines = [line.split("  ") for line in invoke("report", *roots).splitlines()]
    cells = {line[0].strip(): [cell.strip() for cell in line if cell.strip()] for line in lines}
    average = cells["avg@4"]
    assert average[1] == "an average sample"
    assert average[2].startswith("50.0 [") and average[3].startswith("75.0 [")
    assert average[4].startswith("+25.0 [")  # paired, because the problems are equal
    assert cells["pass@4"][2].startswith("100.0")
    contents = json.loads(invoke("report", *roots, "--json"))
    numbers = [entry["tasks"]["made"]["numbers"] for entry in contents]
    assert [entry["avg_at_k"]["4"]["value"] for entry in numbers] == [0.5, 0.75]
    with pytest.raises(InputError, match="a folder has one report, but these are 2"):
        CliRunner().invoke(
            app, ["report", *map(str, roots), "--out", str(tmp_path / "o")], catch_exceptions=False
        )


def test_the_choice_by_likelihood_takes_the_most_likely_sample_of_the_policy(
    tmp_path: Path,
) -> None:
    revision = resolve_weights("tiny").ref.revision
    rows = []
    problems = make_problems("test", 6)
    for problem in problems:
        steps = ["We compute.\n", f"The answer is {problem.answer}."]
        for index in range(3):
            likely = index == 2
            rows.append(
                make_solution(
                    problem,
                    index,
                    "correct" if likely else "incorrect",
                    prompt=PROMPT.format(question=problem.question),
                    completions=steps if likely else [step[::-1] for step in steps],
                )
            )
    model = ModelRef("tiny", revision)
    root = write_dataset(tmp_path / "data", problems, rows, model=model)
    output = invoke("report", root, "--likelihood", "tiny", "--json")
    [task] = json.loads(output)["tasks"].values()
    assert task["decoders"]["likely@3"]["accuracy"]["value"] == 1
    # Two of the three pairs of samples contain the likely one.
    assert task["decoders"]["likely@2"]["accuracy"]["value"] == pytest.approx(2 / 3)
    assert "likely" not in invoke("report", root)
    other = write_dataset(tmp_path / "other", problems, rows)
    search = write_dataset(tmp_path / "search", problems, rows[::3], beam=(1, 1), model=model)
    for words, message in (
        ([search, "--likelihood", "tiny"], "one solution per problem"),
        ([other, "--likelihood", "tiny"], "another model"),
        ([root, "--likelihood", "tiny", "--likelihood", "tiny"], "2 models for 1 sets"),
        ([tmp_path / "absent"], "no such file or directory"),
    ):
        result = CliRunner().invoke(app, ["report", *map(str, words)])
        assert message in str(result.exception)


def test_the_choice_by_likelihood_compares_steps_whose_probabilities_underflow(
    tmp_path: Path,
) -> None:
    [problem] = make_problems("test", 1)
    prompt = PROMPT.format(question=problem.question)
    rows = [
        make_solution(problem, index, outcome, prompt=prompt, completions=["?!#" * length])
        for index, (outcome, length) in enumerate((("incorrect", 100), ("correct", 60)))
    ]
    model = ModelRef("tiny", resolve_weights("tiny").ref.revision)
    root = write_dataset(tmp_path / "data", [problem], rows, model=model)
    pool = with_likelihoods(load_pool(root), "tiny")
    [benchmark] = pool.benchmarks.values()
    long_sample, short_sample = benchmark.main.log_likelihood_PM[0]
    assert long_sample < short_sample < math.log(sys.float_info.min)
    [task] = json.loads(invoke("report", root, "--likelihood", "tiny", "--json"))["tasks"].values()
    assert task["decoders"]["likely@2"]["accuracy"]["value"] == 1


def test_questions_that_match_no_measured_problem_are_named(tmp_path: Path) -> None:
    roots = two_datasets(tmp_path)
    rows = [{"question": make_problem(n).question, "answer": f"{n}"} for n in (1, 7, 8)]
    file = written(tmp_path / "problems.jsonl", [*rows, {"question": "", "answer": "1"}])
    result = CliRunner().invoke(app, ["report", *map(str, roots), "--problems", str(file)])
    assert result.exit_code == 0, result.output
    for name in "ab":
        assert (
            f"warning: {name}: 2 of the 3 questions to measure match no measured problem: "
            "'What is 7 + 10?', 'What is 8 + 10?'\n"
        ) in result.stderr
    assert "problems.jsonl: 1 of 4 rows" in result.stderr
    written(file, rows[:1])
    result = CliRunner().invoke(app, ["report", str(roots[0]), "--problems", str(file)])
    assert result.exit_code == 0 and "warning" not in result.stderr


def test_recorded_verdicts_are_needed_for_disagreements(tmp_path: Path) -> None:
    first, _ = two_datasets(tmp_path)
    result = CliRunner().invoke(app, ["report", str(first), "--disagreements"])
    assert "has no recorded verdicts" in str(result.exception)


def test_disagreements_with_recorded_verdicts_are_listed(tmp_path: Path) -> None:
    """An undecided answer has no verdict to compare, and neither has a row without a record."""
    problem = make_problem(1)
    root = write_dataset(tmp_path / "d", [problem], make_solutions(problem, "ciucc"))
    file = root / "solutions/0.parquet"
    recorded = pl.Series(IMPORTED_COLUMN, [False, False, True, None, True])
    pl.read_parquet(file).with_columns(recorded).write_parquet(file)
    output = invoke("report", root, "--disagreements")
    assert "1 of 3 recorded verdicts differ" in output
    [comparison] = json.loads(invoke("report", root, "--disagreements", "--json")).values()
    [row] = comparison["disagreements"]
    names = ["solution_id", "question", "gold", "answer", "outcome", "imported_correct"]
    assert comparison["compared"] == 3 and list(row) == names
    assert (row["outcome"], row["imported_correct"]) == ("correct", False)
    assert "gold '11', answer '11': correct, recorded as incorrect  What is 1 + 10?" in output
    [content] = json.loads(invoke("report", root, "--disagreements", "--json")).values()
    assert content["compared"] == 3 and len(content["disagreements"]) == 1


def test_a_run_without_costs_has_no_table_of_costs(tmp_path: Path) -> None:
    headings = {"report.md": "## Cost", "report.html": 'id="cost"', "README.md": "| decoder | tok"}
    for name, is_free in (("free", True), ("paid", False)):
        run = write_run(tmp_path / name, {"math": 4}, decoders=("sc@4",))
        if is_free:
            problems = [make_problem(number) for number in range(4)]
            rows = [row for p in problems for row in make_solutions(p, "cc", n_tokens=[None] * 2)]
            results = measure_paths(write_dataset(tmp_path / "data", problems, rows))
            assert results.cost["sc@2"].tokens is None
            output = invoke("report", tmp_path / "data", "--out", run)
            assert "accuracy" in output and "tokens" not in output
        else:
            report_run(run)
        for file, heading in headings.items():
            if (run / file).exists():
                assert (heading in (run / file).read_text()) != is_free, (run, file)


def test_terminal_escapes_in_responses_are_not_printed(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", {"gsm8k": 3}, text=ESCAPES, chance=0.5)
    second = write_run(tmp_path / "b", {"gsm8k": 3}, text=ESCAPES, seed=4, grader=ESCAPES)
    output = invoke("diff", first, second)
    assert "owned" in output
    assert not any(character in output for character in "\x1b\x07\u202e\x9b")


@pytest.mark.parametrize("columns", ["40", "80"])
def test_every_row_of_a_comparison_names_its_benchmark(tmp_path: Path, columns: str) -> None:
    first = write_run(tmp_path / "a", TASKS)
    second = write_run(tmp_path / "b", TASKS, seed=3)
    output = invoke("diff", first, second, "--decoder", "greedy", "--show", "0", COLUMNS=columns)
    assert "benchmark" in output and all(f"{task} " in output for task in TASKS)


def test_tables_fit_a_terminal_of_80_columns() -> None:
    terminal = {"COLUMNS": "80", "FORCE_COLOR": "1"}
    output = CliRunner().invoke(app, ["tasks"], env=terminal, color=True).output
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output.splitlines()]
    assert max(map(len, lines)) <= 80 and "task " in lines[0] and "licence" in lines[0]
    for name in builtin_tasks():  # task names are not truncated
        assert any(line.startswith(f"{name} ") for line in lines), name
