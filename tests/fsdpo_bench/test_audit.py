"""``fsdpo-bench audit``: families of disagreements, scores by two graders, the order of models."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from bench_runs import config, make_records, write_run, written
from fsdpo_bench.audit.audit import Audit, make_audit
from fsdpo_bench.audit.fields import FAMILY_FIELDS, STEPS
from fsdpo_bench.audit.report import audit_json, render_markdown
from fsdpo_bench.audit.responses import AuditedResponse, FileSettings
from fsdpo_bench.audit.scores import score_groups
from fsdpo_bench.cli.app import app
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import NO_PROGRESS, Progress

ALL_FIELDS = ("verdicts,step,kind,rule",)


def audit_of(*paths: Path, fields: tuple[str, ...] = ALL_FIELDS, **changes: Any) -> Audit:
    progress = changes.pop("progress", NO_PROGRESS)
    settings = FileSettings(**{"workers": 1, **changes})
    return make_audit(paths, fields, settings, progress)


def row(
    question: str, gold: str, response: str, is_accepted: bool, **fields: Any
) -> dict[str, Any]:
    base = {"question": question, "gold": gold, "response": response, "vendor_verdict": is_accepted}
    return base | {"read": "", **fields}


ROWS = [
    row("price?", "70000", "So he pays $70,000.", False, read="000"),
    row("price?", "70000", "It is $70,000.", False, read="000"),
    row("glasses?", "64", "He needs $64 for 16 glasses.", False, read="16"),
    row("half?", "1/2", r"\boxed{0.5}", False, read="0.5"),
    row("wrong?", "8", "The answer is 9.", True, read="9"),
    row("none?", "3", "", True, read="3"),
    row("nothing?", "5", "The answer is 5.", False),
    row("agreed?", "6", "The answer is 6.", True, read="6"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "outputs.jsonl", ROWS)


NAMES = {"verdict_field": "vendor_verdict", "answer_field": "read"}


def test_disagreements_form_families_and_the_largest_is_first(file: Path) -> None:
    audit = audit_of(file, **NAMES)
    families = [(*family.values.values(), len(family.disagreements)) for family in audit.families]
    assert families[0] == (
        "incorrect → correct",
        "extraction: other shorter",
        "number",
        "last-number/number",
        2,
    )
    steps = {(family.values["verdicts"], family.values["step"]) for family in audit.families[1:]}
    assert steps == {
        ("incorrect → correct", "extraction: different"),
        ("incorrect → correct", "comparison"),
        ("correct → incorrect", "comparison"),
        ("correct → no_answer", "extraction: ours none"),
        ("incorrect → correct", "extraction: other none"),
    }
    assert {step for _, step in steps} <= STEPS.keys()
    assert audit.families[0].problems == 1
    assert len(audit.disagreements) == 7


def test_examples_come_from_different_problems_first(tmp_path: Path) -> None:
    rows = [*ROWS[:2], row("rent?", "1200", "The rent is $1,200.", False, read="200")]
    [family] = audit_of(written(tmp_path / "x.jsonl", rows), **NAMES).families
    assert [item.response.row for item in family.examples(2)] == [1, 3]
    assert [item.response.row for item in family.examples(9)] == [1, 3, 2]


def test_scores_count_undecided_answers_as_wrong_and_as_right() -> None:
    outcomes = (
        ("correct", "correct"),
        ("incorrect", "correct"),
        ("incorrect", "undecided"),
        ("incorrect", "no_answer"),
        ("correct", "gold_unparsed"),
    )
    responses = [
        AuditedResponse(
            group="model",
            row=row_number,
            question=f"{row_number}?",
            response="",
            gold="2",
            other_gold="2",
            other_outcome=other,
            other_answer="",
            outcome=ours,
            answer=None,
            rule="none",
            unread="",
        )
        for row_number, (other, ours) in enumerate(outcomes)
    ]
    [scores] = score_groups(responses)
    counts = (scores.other.total, scores.ours.total, scores.upper_bound.total, scores.ours.n)
    assert counts == (1, 2, 3, 4)
    # Two failures of the model agree, whatever their names are.
    assert (scores.undecided, scores.disputed, scores.not_counted) == (1, 2, 1)
    assert scores.difference.value == pytest.approx(1 / 4)
    assert scores.upper_difference.value == pytest.approx(2 / 4)
    assert scores.difference.ci95[0] < 1 / 4 < scores.difference.ci95[1]


def test_intervals_are_over_problems_if_they_have_several_responses(tmp_path: Path) -> None:
    rows = [
        row(f"{number}?", "5", "The answer is 5.", number % 4 > 0, read="5")
        for number in range(20)
        for _ in range(8)
    ]
    [scores] = audit_of(written(tmp_path / "x.jsonl", rows), **NAMES).scores
    assert (scores.other.n, scores.other.clusters) == (160, 20)
    low, high = scores.difference.ci95
    # Eight equal responses to a problem are no more than one.
    singles = written(tmp_path / "y.jsonl", rows[::8])
    [single] = audit_of(singles, **NAMES).scores
    assert math.isclose(
        high - low, single.difference.ci95[1] - single.difference.ci95[0], rel_tol=0.2
    )
    assert single.other.clusters is None


def test_golds_of_problems_replace_those_of_the_file(tmp_path: Path) -> None:
    rows = [
        row("Where?", "2", r"\boxed{(3, \frac{\pi}{2})}", False, read=r"(3,\frac{\pi}{2})"),
        row("other?", "4", "The answer is 4.", True, read="4"),
    ]
    problems = written(
        tmp_path / "problems.jsonl", [{"question": "Where?", "answer": r"(3, \frac{\pi}{2})"}]
    )
    file = written(tmp_path / "x.jsonl", rows)
    audit = audit_of(file, problems=(str(problems),), **NAMES)
    assert audit.audited.replaced_golds == 1
    [family] = audit.families
    assert family.values["step"] == "gold"
    assert family.values["verdicts"] == "incorrect → correct"
    unrelated = written(tmp_path / "unrelated.jsonl", [{"question": "no?", "answer": "1"}])
    with pytest.raises(InputError, match="no question of the files"):
        audit_of(file, problems=(str(unrelated),), **NAMES)


def test_models_change_their_order(tmp_path: Path) -> None:
    rows = [
        row(question, "70000", response, is_accepted, read="000", model=model)
        for model, response, is_accepted in (
            ("spends words", "He pays $70,000.", False),
            ("guesses", "The answer is 7.", True),
        )
        for question in ("a?", "b?")
    ]
    audit = audit_of(written(tmp_path / "x.jsonl", rows), **NAMES)
    [order] = audit.changed_orders
    assert (order.first, order.second) == ("spends words", "guesses")
    assert (order.other, order.ours) == (-1, 1)
    # Models that answered other problems have no order.
    rows[0]["question"] = "c?"
    assert audit_of(written(tmp_path / "x.jsonl", rows), **NAMES).orders == []


def test_files_are_models_and_repeated_names_get_their_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with gzip.open(tmp_path / name / "out.jsonl.gz", "wt") as stream:
            stream.write("".join(json.dumps(fields) + "\n" for fields in ROWS))
    files = [tmp_path / name / "out.jsonl.gz" for name in ("one", "two")]
    audit = audit_of(*files, fields=("group",), **NAMES)
    assert [scores.group for scores in audit.scores] == ["one/out", "two/out"]
    assert len(audit.orders) == 1 and audit.changed_orders == []
    assert [len(family.disagreements) for family in audit.families] == [7, 7]


def test_a_file_without_verdicts_is_refused_and_single_gaps_are_counted(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "vendor_verdict": None}, *ROWS[1:]]
    audit = audit_of(written(tmp_path / "x.jsonl", rows), **NAMES)
    assert audit.audited.without_verdict == 1
    with pytest.raises(InputError, match="has no verdicts of another grader"):
        audit_of(written(tmp_path / "x.jsonl", rows))


def test_without_answers_of_the_other_grader_the_step_is_unknown(file: Path) -> None:
    audit = audit_of(file, verdict_field="vendor_verdict", fields=("step",))
    assert [family.values["step"] for family in audit.families] == ["unknown"]


def test_formats_of_other_tools_name_their_verdicts_and_answers(tmp_path: Path) -> None:
    """Qwen's rows have lists; lm-evaluation-harness has one answer after a vote."""
    qwen = {"question": "q?", "gt": "7", "code": ["It is 7.", "It is 8."], "score": [False, False]}
    [item] = audit_of(written(tmp_path / "q.jsonl", [qwen | {"pred": ["", "8"]}])).disagreements
    assert (item.response.row, item.step) == (1, "extraction: other none")
    samples = {"doc": {"question": "q?"}, "target": "7", "exact_match": 0.0}
    for answers, other_answer in ((["[invalid]"], "[invalid]"), (["7", "8"], None)):
        fields = {"resps": [["It is 7."]], "filtered_resps": answers}
        [item] = audit_of(written(tmp_path / "s.jsonl", [samples | fields])).disagreements
        assert item.response.other_answer == other_answer


def test_verdicts_of_two_runs_on_the_same_solutions(tmp_path: Path) -> None:
    records = make_records({"gsm8k": 12})
    first = write_run(tmp_path / "first", config({"gsm8k": 12}), records)
    again = json.loads(json.dumps(records))
    corrected = next(
        item for record in again for item in record["samples"] if item["status"] == "incorrect"
    )
    corrected.update(status="correct", correct=True)
    second = write_run(tmp_path / "second", config({"gsm8k": 12}), again)
    audit = audit_of(first, second)
    [item] = audit.disagreements
    assert item.verdicts == "incorrect → correct" and item.step == "comparison"
    [scores] = audit.scores
    assert scores.group == "GSM8K"
    assert scores.ours.total == scores.other.total + 1
    assert audit_of(second, first).disagreements[0].verdicts == "correct → incorrect"
    other = write_run(
        tmp_path / "other", config({"gsm8k": 12}), make_records({"gsm8k": 12}, seed=3)
    )
    with pytest.raises(InputError, match="the runs have other solutions"):
        audit_of(first, other)
    with pytest.raises(InputError, match="two runs"):
        audit_of(first)


def test_progress_covers_all_responses(file: Path) -> None:
    class Counter(Progress):
        total = 0
        units = 0

        def phase(self, name: str, total: int, done: int = 0) -> None:
            self.total += total

        def advance(self, units: int, tokens: int = 0) -> None:
            self.units += units

    progress = Counter()
    audit_of(file, progress=progress, tolerance=0.01, **NAMES)
    assert progress.units == progress.total == 2 * len(ROWS)


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["audit", *arguments], env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_tables_and_writes_the_report(file: Path, tmp_path: Path) -> None:
    names = ("--verdict", "vendor_verdict", "--answer", "read")
    out = tmp_path / "audit"
    text = invoke(str(file), *names, "--show", "2", "--out", str(out))
    assert "outputs" in text
    assert "4 more families; --show 6 shows all" in text
    assert "gold '70000', other answer '000': incorrect, our answer '$70,000': correct" in text
    values = json.loads((out / "audit.json").read_text())
    assert values["disagreements"] == 7
    assert json.loads(invoke(str(file), *names, "--json")) == values
    disagreements = (out / "disagreements.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in disagreements] == [1, 2, 3, 4, 5, 6, 7]
    report = (out / "audit.md").read_text()
    assert "| 1 | incorrect → correct | extraction: other shorter | number |" in report
    assert "other answer `000`" in report


def test_unknown_fields_of_families_are_refused(file: Path) -> None:
    with pytest.raises(InputError, match="step"):
        audit_of(file, fields=("stage",), **NAMES)
    for name in FAMILY_FIELDS:
        assert audit_of(file, fields=(name,), **NAMES).families


def test_a_report_without_disagreements(tmp_path: Path) -> None:
    audit = audit_of(written(tmp_path / "x.jsonl", ROWS[-1:]), **NAMES)
    assert audit_json(audit, 1)["families"] == []
    assert "## Families" in render_markdown(audit, 1)


@pytest.mark.proof
def test_pools_of_another_grader(shared: Path) -> None:
    folder = shared / "data/pools"
    if not folder.exists():
        pytest.skip("needs ../shared/data/pools")
    files = [folder / "math500/candidates.jsonl.gz", *sorted((folder / "prime").glob("*.gz"))]
    problems = shared / "data/benchmarks/math500/test.jsonl"
    audit = audit_of(
        *files,
        problems=(str(problems),),
        verdict_field="vendor_correct",
        answer_field="vendor_answer",
        fields=("step",),
        workers=2,
    )
    assert len(audit.audited.responses) == 16_000 + 3 * 385
    assert audit.audited.replaced_golds == 171 * 32
    assert audit.scores[0].group == "candidates"
    assert len(audit.orders) == 3
    # Broken golds of the file cause most disagreements on MATH-500.
    assert audit.families[0].values["step"] == "gold"
