"""Report files are self-contained, safe and bounded in size, and list what they omit."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from bench_runs import (
    HOSTILE,
    QWEN,
    config,
    make_records,
    make_results,
    qwen_run,
    typed_records,
    write_run,
)
from fsdpo_bench.cli.app import app
from fsdpo_bench.report.plots import _space_out
from fsdpo_bench.report.problem_list import build_problem_list, explain_verdict
from fsdpo_bench.report.render import format_auc, render_html, write_report
from fsdpo_bench.report.svg import Axis
from fsdpo_bench.tasks.table import builtin_tasks
from typer.testing import CliRunner

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.grader import MathGrader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.statistics import ranking_auc

TASKS = {"math": 20, "ocw": 12, "gsm_ic2": 14}


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


def page_of(tasks: dict[str, int], budget: int = 10**7, **options: Any) -> tuple[str, Page]:
    rows = make_records(tasks, **options)
    records = typed_records(rows)
    results = make_results(rows, config(tasks))
    text = render_html(results, build_problem_list(records, len(records), budget), print, "")
    return text, Page(text)


def test_a_run_gets_three_files_that_agree(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", config(TASKS), make_records(TASKS))
    results = write_report(run)
    assert json.loads((run / "results.json").read_text()) == results.to_json()
    greedy = results.tasks["math"].decoders["greedy"]
    assert greedy.accuracy is not None and greedy.ci95 is not None
    low, high = greedy.ci95
    accuracy_text = f"{100 * greedy.accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    for name in ("report.md", "report.html"):
        assert accuracy_text in (run / name).read_text(encoding="utf-8")
    assert not list(run.glob("*.tmp"))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", config(TASKS), make_records(TASKS))
    write_report(run)
    names = ("results.json", "report.md", "report.html")
    old_bytes = {name: (run / name).read_bytes() for name in names}
    write_report(run)
    assert {name: (run / name).read_bytes() for name in names} == old_bytes


def test_the_page_loads_nothing_from_the_network() -> None:
    text, page = page_of(TASKS)
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    for tag, attributes in page.elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert not loading & set(attributes)
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"https?://|@import|url\(", text)
    [policy] = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    assert policy and policy.startswith("default-src 'none'")


def test_hostile_text_stays_text() -> None:
    _, plain = page_of({"gsm8k": 5})
    text, page = page_of({"gsm8k": 5}, text=HOSTILE)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert len(page.scripts) == len(plain.scripts) == 2
    assert page.data["problems"][0]["question"].startswith(HOSTILE)
    assert text.count("</script") == 2


def test_a_hostile_model_name_is_escaped() -> None:
    records = make_records({"gsm8k": 2})
    described = config({"gsm8k": 2}, model="</title><script>alert(1)</script>|x")
    page = Page(
        render_html(
            make_results(records, described),
            build_problem_list(typed_records(records), 2),
            print,
            "",
        )
    )
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 2


def test_lone_surrogates_do_not_stop_a_report(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", config({"gsm8k": 2}, model="\ud800"), make_records({"gsm8k": 2})
    )
    write_report(run)
    assert (run / "report.html").read_bytes().decode("utf-8")


def test_all_svg_drawings_are_well_formed_and_have_titles() -> None:
    text, _ = page_of(TASKS)
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.S)
    assert len(drawings) == 1 + 3 + 3
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.find("title") is not None
        assert "nan" not in drawing and "inf" not in drawing


def test_published_results_list_the_backbone_of_the_run_first() -> None:
    text, _ = page_of({"ocw": 4})
    rows = re.findall(r'<tr( class="own")?><td>([^<]+)</td><td class="n">([\d.–]+)</td></tr>', text)
    assert [label for own_class, label, _ in rows if own_class] == [
        "Qwen2-7B-SFT",
        "Qwen2-7B-SFT + DPO",
        "Qwen2-7B-SFT + Step-DPO",
        "Qwen2-7B-SFT + Full-Step-DPO",
    ]
    assert rows[3][2] == "18.4"
    assert len(rows) == 16


@pytest.mark.parametrize("missing", ["samples", "rewards", "decoders"])
def test_a_sparse_run_still_has_a_page(missing: str) -> None:
    records = make_records({"gsm8k": 6})
    for record in records:
        if missing == "samples":
            record["samples"] = []
            sparse_decoded = {name: record["decoded"][name] for name in ("greedy", "sbs@2,1")}
            record["decoded"] = sparse_decoded
        if missing == "decoders":
            record["decoded"] = {"greedy": record["decoded"]["greedy"]}
            record["cost"] = {}
        if missing != "decoders":
            for sample in [*record["samples"], record["decoded"]["greedy"]["solution"]]:
                sample["rewards"] = None
    results = make_results(records, config({"gsm8k": 6}))
    text = render_html(results, build_problem_list(typed_records(records), 6), print, "")
    assert ("Step rewards" in text) == (missing == "decoders")
    assert ("Accuracy and cost" in text) == (missing != "decoders")


def test_rewards_outside_0_to_1_are_ranked_but_not_plotted(tmp_path: Path) -> None:
    records = make_records({"gsm8k": 6})
    for record in records:
        for sample in record["samples"]:
            sample["rewards"] = [-3.5, 7.0]
    run = write_run(tmp_path / "run", config({"gsm8k": 6}), records)
    assert write_report(run).to_json()["rewards"]["ranking_auc"]["mean"]["value"] == 0.5
    page = (run / "report.html").read_text()
    assert "Calibration" not in page and "nan" not in page


def test_nothing_is_left_out_of_a_small_run() -> None:
    records = make_records({"gsm8k": 10})
    problem_list = build_problem_list(typed_records(records), 10)
    assert problem_list.left_out == ""
    assert [len(problem["solutions"]) for problem in problem_list.problems] == [6] * 10
    first = problem_list.problems[0]
    assert first["solutions"][first["decoded"]["greedy"]["taken"][0]]["name"] == "greedy"


def test_a_large_run_respects_the_size_budget_and_reports_omissions() -> None:
    records = make_records({"gsm8k": 3000}, samples=8, text="Let us think about it. " * 12)
    budget = 3_000_000
    problem_list = build_problem_list(typed_records(records), 3000, budget)
    size = len(json.dumps(problem_list.problems))
    assert 0.3 * budget < size < 1.2 * budget
    assert len(problem_list.problems) == 1000
    assert problem_list.left_out.startswith("2,000 of 3,000 problems and ")
    for problem in problem_list.problems:
        for decision in problem["decoded"].values():
            [solution_index] = decision["taken"]
            assert solution_index is None or problem["solutions"][solution_index]
    text = render_html(make_results(records, config({"gsm8k": 3000})), problem_list, print, "")
    assert "Left out because of the size limit: 2,000 of 3,000 problems" in text


def test_very_long_solutions_are_truncated_with_a_count() -> None:
    records = make_records({"gsm8k": 50}, text="9" * 100_000)
    problem_list = build_problem_list(typed_records(records), 50, budget_bytes=500_000)
    assert len(json.dumps(problem_list.problems)) < 800_000
    solution = problem_list.problems[0]["solutions"][0]
    assert solution["hidden"] > 90_000
    assert "more characters" in problem_list.problems[0]["question"]


@pytest.mark.skipif(not QWEN.exists(), reason="recorded outputs are not here")
def test_recorded_outputs_are_shown_completely(tmp_path: Path) -> None:
    run = qwen_run(tmp_path / "run", problems=12)
    results = write_report(run)
    assert results.tasks["math"].numbers["avg_at_k"]["8"].n == 12
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    for problem in page.data["problems"]:
        assert len(problem["solutions"]) == 8
        for solution in problem["solutions"]:
            assert "by the rule" not in page.data["shared"][solution["why"]]


@pytest.mark.parametrize(
    ("gold", "response", "words"),
    [
        (
            "18",
            r"so \boxed{18}",
            "from the last box, compared with the gold as numbers. They agree",
        ),
        (
            "18",
            "The answer is 17.",
            "after “the answer is”, compared with the gold as numbers. They d",
        ),
        ("18", "", "No answer was found"),
        ("", "18", "the problem does not count"),
        ("x+1", r"\boxed{1+x}", "as expressions, symbolically"),
        ("5 (apples)", "He has 5 apples left", "marks no answer"),
    ],
)
def test_verdict_descriptions_name_the_rule_and_the_comparison(
    gold: str, response: str, words: str
) -> None:
    [verdict] = MathGrader().grade([GradingRequest(gold, response)])
    assert words in explain_verdict(verdict.status, verdict.rule)


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    for arguments in (["report", str(tmp_path / "absent")], ["report", str(tmp_path)]):
        with pytest.raises(InputError, match="fsdpo-bench run"):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
    run = write_run(tmp_path / "run", config({"gsm8k": 2}), [])
    with pytest.raises(InputError, match="no records"):
        write_report(run)


def test_the_command_prints_a_table_and_the_path_of_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", config(TASKS), make_records(TASKS))
    result = CliRunner().invoke(app, ["report", str(run)], env={"COLUMNS": "150"})
    assert result.exit_code == 0
    assert str(run / "report.html") in result.output.replace("\n", "")
    as_json = CliRunner().invoke(app, ["report", str(run), "--json"])
    assert json.loads(as_json.output)["version"] == 1


def test_the_terminal_shows_the_groups_of_the_page(tmp_path: Path) -> None:
    """Every row of a table by subject, level or perturbation in the page is on the terminal."""
    run = write_run(tmp_path / "run", config(TASKS), make_records(TASKS))
    result = CliRunner().invoke(app, ["report", str(run)], env={"COLUMNS": "150"})
    report = json.loads((run / "results.json").read_text())
    lines = [line.split() for line in result.output.splitlines()]
    groups = report["tasks"]["math"]["groups"]
    assert {"subject", "level"} <= groups.keys()
    for group, parts in groups.items():
        assert f"{report['tasks']['math']['title']} by {group}" in result.output
        for label, part in parts.items():
            first = [label, *next(iter(part)).split()]
            assert any(line[: len(first)] == first for line in lines), label


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
    placed = sorted(_space_out(values, 9).values())
    assert all(later - sooner > 8.99 for sooner, later in itertools.pairwise(placed))


def test_a_plot_error_is_a_warning_after_the_results_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", config(TASKS), make_records(TASKS))
    existing_files: list[list[str]] = []

    def raise_error(results: Any) -> str:
        existing_files.append(sorted(file.name for file in run.iterdir()))
        raise ZeroDivisionError("no width")

    monkeypatch.setattr("fsdpo_bench.report.plots.accuracy_plot", raise_error)
    warnings: list[str] = []
    write_report(run, warn=warnings.append)
    assert {"README.md", "results.json"} <= set(existing_files[0])
    [warning] = warnings
    assert "no width" in warning and (run / "report.html").is_file()


ESCAPES = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\u202e\x9b2J"


@pytest.mark.parametrize("verb", ["inspect", "diff"])
def test_terminal_escapes_in_responses_are_not_printed(tmp_path: Path, verb: str) -> None:
    records = make_records({"gsm8k": 3}, text=ESCAPES, chance=0.5)
    other = make_records({"gsm8k": 3}, text=ESCAPES, chance=0.5, seed=4)
    hostile_config = config({"gsm8k": 3})
    hostile_config["grader"] = ESCAPES
    first = write_run(tmp_path / "a", config({"gsm8k": 3}), records)
    second = write_run(tmp_path / "b", hostile_config, other)
    paths = [str(first)] if verb == "inspect" else [str(first), str(second)]
    output = CliRunner().invoke(app, [verb, *paths]).output
    assert "owned" in output
    assert not any(character in output for character in "\x1b\x07\u202e\x9b")


@pytest.mark.parametrize("columns", ["40", "80"])
def test_every_row_of_a_comparison_names_its_benchmark(tmp_path: Path, columns: str) -> None:
    first = write_run(tmp_path / "a", config(TASKS), make_records(TASKS))
    second = write_run(tmp_path / "b", config(TASKS), make_records(TASKS, seed=3))
    line = ["diff", str(first), str(second), "--decoder", "greedy", "--show", "0"]
    output = CliRunner().invoke(app, line, env={"COLUMNS": columns}).output
    assert "benchmark" in output and all(f"{task} " in output for task in TASKS)


def test_tables_fit_a_terminal_of_80_columns() -> None:
    terminal = {"COLUMNS": "80", "FORCE_COLOR": "1"}
    output = CliRunner().invoke(app, ["tasks"], env=terminal, color=True).output
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output.splitlines()]
    assert max(map(len, lines)) <= 80 and "task " in lines[0] and "licence" in lines[0]
    for name in builtin_tasks():  # task names are not truncated
        assert any(line.startswith(f"{name} ") for line in lines), name


def test_model_names_are_escaped_in_cards_and_reports(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>|[x](javascript:alert(1))`"
    run = write_run(tmp_path / "a", config({"gsm8k": 3}, hostile), make_records({"gsm8k": 3}))
    write_report(run)
    for name in ("report.md", "README.md"):
        text = (run / name).read_text().partition("\n---\n")[2] or (run / name).read_text()
        outside = re.sub(r"```.*?```|(`+)[^\n]*?\1", "", text, flags=re.S)
        assert "<img" not in outside and "](javascript" not in outside.replace("\\]", "")


def test_a_run_without_costs_has_no_table_of_costs(tmp_path: Path) -> None:
    records = make_records({"math": 4})
    for entry in records:
        free = {"tokens": 0, "prm_calls": 0, "seconds": 0.0}
        entry["cost"] = dict.fromkeys(entry["cost"], free)
    free_run = write_run(tmp_path / "free", config({"math": 4}), records)
    paid_run = write_run(tmp_path / "paid", config({"math": 4}), make_records({"math": 4}))
    headings = {"report.md": "## Cost", "report.html": 'id="cost"', "README.md": "| decoder | tok"}
    for run in (free_run, paid_run):
        write_report(run)
        for name, heading in headings.items():
            assert (heading in (run / name).read_text()) == (run == paid_run), (run, name)
    output = CliRunner().invoke(app, ["report", str(free_run)]).output
    assert "accuracy" in output and "tokens" not in output


def test_a_ranking_auc_has_an_interval_and_its_number_of_problems() -> None:
    one_problem = ranking_auc([1, 1], [0.9, 0.1], [True, False])
    assert format_auc(one_problem) == "1.000 [0.207, 1.000] (1 problem)"
    two_problems = ranking_auc([1, 1, 2, 2], [0.9, 0.1] * 2, [True, False] * 2)
    assert format_auc(two_problems) == "1.000 [0.342, 1.000] (2 problems)"


def test_the_lines_of_the_paper_have_numbers_that_the_page_explains() -> None:
    text, _ = page_of({"ocw": 40, "math": 40})
    [explanation] = re.findall(r"Numbers of the lines: (.*?)\.</p>", text)
    labels = dict(entry.split("&nbsp;", 1) for entry in explanation.split("; "))
    plot = text.partition("<figure>")[2].partition("</figure>")[0]
    numbers = re.findall(r'y="[\d.]+"[^>]*>([\d,]+)</text>', plot)
    tick_numbers = {number for label in numbers if label for number in label.split(",")}
    assert labels and set(labels) <= tick_numbers
    assert any("Full-Step-DPO" in label for label in labels.values())
