"""Tests of the study's rewards, statistics, tables and figures, without its training."""

from __future__ import annotations

import csv
import json
import math
import random
import re
import shutil
import statistics
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("matplotlib")
torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
STUDY = ROOT / "benchmarks" / "study"
sys.path.insert(0, str(STUDY))

import data  # noqa: E402
import policies  # noqa: E402
from control import write_control_pairs  # noqa: E402
from figure import write_contrasts, write_rates  # noqa: E402
from fsdpo_bench.report.figure_files import DARK_STYLE  # noqa: E402
from measure import contrast_rows, estimate, final_rows, sweep_rows  # noqa: E402
from plan import (  # noqa: E402
    ARMS,
    COMMANDS,
    DRAW_SEED_STEP,
    EQUIVALENCE_MARGIN,
    KINDS,
    PAIR_SEED,
    QUESTIONS,
    SFT,
    SIGNIFICANT_VERDICTS,
    SIZES,
    STAGES,
    Arm,
    Policy,
    StudyQuestion,
)
from report import add_verdicts, decide_verdict, write_report  # noqa: E402
from study import data_directories  # noqa: E402

from fsdpo_data.core.statistics import holm  # noqa: E402
from fsdpo_data.problems.embedded import PROMPT  # noqa: E402
from fsdpo_data.problems.embedded.generator import make_problems  # noqa: E402
from fsdpo_data.problems.embedded.solutions import write_solution  # noqa: E402
from fsdpo_data.problems.embedded.story import apply  # noqa: E402

PAPER_NAME = "full-step, γ 0.5, PRM"
DPO, PAPER = (next(arm for arm in ARMS if arm.name == name) for name in ("DPO", PAPER_NAME))


def make_result(share: float, seed: int = 0, problems: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"solve": {"sampled": list((rng.random(problems) < share).astype(float)), "kl": [2.0]}}


def test_the_interval_of_one_seed_follows_the_spread_of_its_problems() -> None:
    value_P = np.random.default_rng(0).normal(50, 30, size=400)
    interval_estimate = estimate(value_P[None])
    assert interval_estimate.value == pytest.approx(value_P.mean())
    assert (interval_estimate.ci95.high - interval_estimate.ci95.low) / 2 == pytest.approx(
        1.96 * value_P.std() / 20, rel=0.05
    )


def test_seeds_that_disagree_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    similar_seeds, different_seeds = (
        rng.normal(rng.normal(50, spread, size=(5, 1)), 30, size=(5, 200)) for spread in (0, 20)
    )
    widths = [
        seed_estimate.ci95.high - seed_estimate.ci95.low
        for seed_estimate in (estimate(similar_seeds), estimate(different_seeds))
    ]
    assert widths[1] > 2 * widths[0]


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    estimates = [estimate(rng.normal(3, size=(5, 1)) + rng.normal(size=(5, 12))) for _ in range(60)]
    assert sum(
        seed_estimate.ci95.low <= 3 <= seed_estimate.ci95.high for seed_estimate in estimates
    ) >= 0.8 * len(estimates)


def test_p_is_small_if_the_interval_excludes_zero() -> None:
    rng = np.random.default_rng(1)
    assert (estimate(rng.normal(1, 1, size=(5, 50))).p or 1) < 0.01
    assert (estimate(rng.normal(0, 1, size=(5, 50)) - 0.0).p or 0) > 0.05
    assert estimate(np.zeros((2, 3))).p == 1


def test_the_plan_refers_to_existing_arms_and_sources() -> None:
    names = [arm.name for arm in ARMS]
    assert len(set(names)) == len(names)
    assert all({*question.arms} <= {*names} for question in QUESTIONS)
    assert {arm.rewards for arm in ARMS} <= data.SOURCES.keys()
    assert all(len(size.training_seeds) >= 5 for name, size in SIZES.items() if name != "demo")
    assert all({*size.arms} <= {*names} for size in SIZES.values())
    settings = SIZES["problems-96"].settings
    policies = {
        Policy(arm, **setting, training_seed=0).name for arm in ARMS for setting in settings
    }
    assert len(policies) == len(settings) * len(ARMS)
    assert all(size.demonstrations.keys() == STAGES.keys() for size in SIZES.values())
    placeholders = {**asdict(SIZES["demo"]), "out": "OUT", "right": "R", "sft": "S", "draw": 1}
    assert all(
        command.format(**placeholders).strip().startswith("fsdpo-") for command in COMMANDS.values()
    )


def make_pairs(run: Any) -> list[dict[str, Any]]:
    (problem,) = run.problems()
    rows = []
    for seed in range(3):
        rng = random.Random(seed)
        sides = (write_solution(problem, rng), write_solution(problem, rng, error_rate=0.6))
        row: dict[str, Any] = {"prompt": PROMPT.format(question=problem.question)}
        for name, steps in zip(("chosen", "rejected"), sides, strict=True):
            rewards = [(index + 1) / 10 for index in range(len(steps))]
            row |= {name: "".join(steps), f"{name}_steps": steps, f"{name}_rewards": rewards}
        rows.append(row)
    return rows


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    problems = make_problems("train", 1, 7, KINDS["solve"])
    size = SIZES["demo"]
    run = SimpleNamespace(out=tmp_path, size=size, draw=0, problems=lambda: problems)
    monkeypatch.setattr(data, "_pairs", make_pairs)
    return run


def source(name: str) -> Arm:
    return Arm(name, "full-step", rewards=name)


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_true_rewards_are_one_before_the_first_wrong_step(run: Any) -> None:
    (problem,) = run.problems()
    for row in read(data.arm_pairs(run, source("truth"))):
        assert row["chosen_rewards"] == [1.0] * len(row["chosen_steps"])
        n_right_steps = data.first_wrong_step(problem, row["rejected_steps"])
        assert row["rejected_rewards"].count(1.0) == n_right_steps
        assert sorted(row["rejected_rewards"], reverse=True) == row["rejected_rewards"]
    assert data.reward_auc(run, source("truth")) == 1.0


@pytest.mark.parametrize(("name", "mixed"), [("prm", "shuffled"), ("truth", "truth-shuffled")])
def test_shuffling_keeps_the_rewards_of_a_solution_but_changes_their_order(
    run: Any, name: str, mixed: str
) -> None:
    rewards, shuffled_rewards = (
        [row[f"{side}_rewards"] for row in rows for side in ("chosen", "rejected")]
        for rows in (read(data.arm_pairs(run, source(arm_name))) for arm_name in (name, mixed))
    )
    assert [sorted(row_rewards) for row_rewards in shuffled_rewards] == [
        sorted(row_rewards) for row_rewards in rewards
    ]
    assert shuffled_rewards != rewards


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_every_arm_has_a_training_configuration(arm: Arm, tmp_path: Path) -> None:
    """Options that a loss does not read are errors, and the study may not end in one."""
    directory = data.StudyDirectory(tmp_path, SIZES["demo"])
    config = policies.training_config(
        directory,
        Policy(arm, lr=1e-4, beta=0.1, training_seed=0),
        tmp_path / "pairs.jsonl",
        tmp_path / "out",
    )
    assert (config.loss, config.beta) == (arm.loss, 0.1)
    assert not config.preference_loss.uses_rewards or config.gamma == arm.gamma


def test_draws_share_the_first_stage_of_sft_and_nothing_else() -> None:
    size = SIZES["control-100"]
    out = Path("control-100")
    draws = [data.StudyDirectory(out / f"draw-{seed}", size, seed) for seed in (5, 6)]
    assert [draw.right() for draw in draws] == [Path("problems-96/right")] * 2
    assert [draw.sft() for draw in draws] == [out / f"draw-{seed}/sft" for seed in (5, 6)]
    questions = [{problem.question for problem in draw.problems()} for draw in draws]
    assert len(questions[0]) == size.problems and not questions[0] & questions[1]
    assert data_directories(data.StudyDirectory(out, size)) == [
        data.StudyDirectory(out / f"draw-{seed}", size, seed) for seed in size.training_seeds
    ]
    assert not {*size.training_seeds} & {*SIZES["problems-96"].training_seeds}, (
        "draws have their own test problems"
    )


@pytest.mark.parametrize("lucky", [0.0, 1.0])
def test_the_control_has_one_mistake_whose_neighbours_are_right(lucky: float) -> None:
    size = replace(SIZES["control-100"], problems=20, lucky_chosen=lucky)
    pairs: list[Any] = write_control_pairs(size, draw=5)
    problems = make_problems("train", 80, PAIR_SEED + 5 * DRAW_SEED_STEP, KINDS["solve"])
    by_prompt = {data.format_prompt(problem): problem for problem in problems}
    assert len({pair["prompt"] for pair in pairs}) == 20
    for pair in pairs:
        problem = by_prompt[pair["prompt"]]
        mistake = pair["rejected_rewards"].index(0)
        assert problem.metadata["nodes"][mistake][0] in STAGES["sft"]["relation_error_rates"]
        assert data.first_wrong_step(problem, pair["rejected_steps"]) == mistake
        assert (
            data.final_answer(pair["rejected"])
            != problem.answer
            == data.final_answer(pair["chosen"])
        )
        last = len(pair["chosen_steps"]) - 1
        wrong_chosen = [i for i, reward in enumerate(pair["chosen_rewards"]) if not reward]
        assert wrong_chosen == ([mistake, last] if lucky else [])
        first_wrong = data.first_wrong_step(problem, pair["chosen_steps"])
        assert first_wrong == (mistake if lucky else None)
        assert pair["rejected_rewards"].count(0) == 1
        for side in ("chosen", "rejected"):
            assert pair[side] == "".join(pair[f"{side}_steps"])
            for index, step in enumerate(pair[f"{side}_steps"]):
                if pair[f"{side}_rewards"][index]:
                    left, op, right, result = re.findall(r"(\d+) (.) (\d+) = (-?\d+)", step)[0]
                    assert int(result) == apply(op, int(left), int(right))


def test_the_rewards_of_the_control_are_its_labels(tmp_path: Path) -> None:
    size = replace(SIZES["control-100"], problems=3)
    run = data.StudyDirectory(tmp_path, size, 5)
    pairs: list[Any] = write_control_pairs(size, 5)
    rows = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (tmp_path / "pairs.jsonl").write_text(rows, encoding="utf-8")
    assert read(data.arm_pairs(run, source("truth"))) == pairs
    shuffled = read(data.arm_pairs(run, source("truth-shuffled")))
    assert [sorted(row["chosen_rewards"]) for row in shuffled] == [
        sorted(pair["chosen_rewards"]) for pair in pairs
    ]
    assert data.reward_auc(run, source("truth")) == 1
    assert data.reward_auc(run, source("truth-shuffled")) < 1
    counts = {"problems": 3, "pairs": 3, "lucky": 3}
    assert data.count_pairs(run) == [{"data": "pairs", "draw": 5, **counts}]


def test_rewards_are_computed_once(run: Any) -> None:
    first = data.arm_pairs(run, source("truth"))
    first.write_text(first.read_text() + "\n")
    assert data.arm_pairs(run, source("truth")).read_text().endswith("\n\n")


def test_progress_is_the_share_of_steps_before_the_first_error() -> None:
    (problem,) = make_problems("train", 1, 7, KINDS["solve"])
    steps = make_pairs(SimpleNamespace(problems=lambda: [problem]))[0]["chosen_steps"]
    half = "".join(steps[:3]) + "Step 4: nothing."
    assert policies._progress(problem, ["".join(steps), half]) == [1.0, 3 / len(steps)]


def test_result_tables_contain_the_measurements() -> None:
    results = {
        "SFT": [make_result(0.3, s) for s in range(3)],
        "DPO": [make_result(0.9, s) for s in range(3)],
    }
    results[PAPER_NAME] = results["DPO"]
    good, bad = (Policy(DPO, lr, 1, 0) for lr in (1e-3, 3e-3))
    sft = Policy(SFT, 0, 0, 0)
    rows = final_rows(results, {"SFT": sft, "DPO": good, PAPER_NAME: good})
    assert [(row["arm"], row["measure"]) for row in rows][:3] == [
        ("SFT", "sampled"),
        ("SFT", "kl"),
        ("DPO", "sampled"),
    ]
    assert 50 < float(rows[2]["gain"]) < 70 and (rows[2]["lr"], rows[2]["beta"]) == ("0.001", "1")
    assert rows[3]["value"] == "2.00"  # nats, not percent
    questions = [StudyQuestion("q", "?", ["DPO", PAPER_NAME, "DPO/K"])]
    (row,) = contrast_rows(results, questions)
    assert (row["arm"], row["against"], row["ahead"]) == (PAPER_NAME, "DPO", "0.00")
    assert contrast_rows({"SFT": results["SFT"]}, questions) == []
    swept = {sft: make_result(0.3), good: make_result(0.6), bad: make_result(0.1)}
    sweep = sweep_rows(swept, {"DPO": good})
    assert [row["collapsed"] for row in sweep] == ["", "", "yes"]
    assert [row["chosen"] for row in sweep] == ["", "yes", ""]


def test_the_figures_are_svg_files_with_labels(tmp_path: Path) -> None:
    results = {
        name: [make_result(share)] for name, share in (("SFT", 0.3), ("DPO", 0.5), ("b <c>", 0.8))
    }
    final = final_rows(results, {name: Policy(SFT, 0, 0, 0) for name in results})
    contrasts = contrast_rows(results, [StudyQuestion("q", "?", ["DPO", "b <c>"])])
    add_verdicts(contrasts)
    write_contrasts(tmp_path / "a.svg", "Why?", ["DPO", "b <c>"], final, contrasts, "avg@2")
    settings = [Policy(DPO, lr, beta, 0) for beta in (0.1, 1) for lr in (1e-3, 3e-3)]
    swept = {policy: make_result(0.6) for policy in (Policy(SFT, 0, 0, 0), *settings)}
    write_rates(tmp_path / "b.svg", "How?", ["DPO"], sweep_rows(swept, {}), "avg@1")
    seen = [text for name in ("a", "b") for text in read_texts(tmp_path / f"{name}.svg")]
    assert {"Why?", "DPO", "b <c>", "0.001", "β 0.1", "β 1", "60"} <= set(seen)
    assert {"avg@2, test problems (%); dotted: SFT", "avg@1, validation problems (%)"} <= set(seen)
    for name in ("a", "b"):
        assert (tmp_path / f"{name}.svg").read_text().count(DARK_STYLE) == 1
    assert Policy(SFT, 0, 0, 1).name != Policy(SFT, 0, 0, 2).name


def read_texts(file: Path) -> list[str]:
    """Return the texts of an SVG file, in their order."""
    texts = ElementTree.parse(file).getroot().iter("{http://www.w3.org/2000/svg}text")
    return [element.text or "" for element in texts]


@pytest.mark.parametrize(
    ("p", "value", "low", "high", "verdict"),
    [
        (0.04, 3, 1, 5, "significantly ahead"),
        (0.04, -3, -5, -1, "significantly behind"),
        (0.06, 3, 1, 5, "ahead; not significant after correction"),
        (0.06, -8.1, -14.7, -1.8, "behind; not significant after correction"),
        (0.06, 0.5, -1.9, 1.9, "equal within 2 points"),
        (0.06, -3, -5, 1.9, "no gain of 2 points"),
        (0.06, 3, -1.9, 5, "no loss of 2 points"),
        (0.06, 0, -2, 2, "open"),
    ],
)
def test_a_verdict_follows_from_the_corrected_p_and_the_margin(
    p: float, value: float, low: float, high: float, verdict: str
) -> None:
    assert EQUIVALENCE_MARGIN == 2
    assert decide_verdict(p, value, low, high) == verdict


def test_one_correction_covers_the_comparisons_of_all_sizes(tmp_path: Path) -> None:
    rows = [row for size in FULL_SIZES for row in read_table("contrasts", size)]
    assert [row["p (Holm)"] for row in rows] == [
        f"{p:.4f}" for p in holm([float(row["p"]) for row in rows])
    ]
    shutil.copytree(STUDY, tmp_path / "study")
    for file in (tmp_path / "study").rglob("contrasts.csv"):
        lines = [line.rsplit(",", 2)[0] for line in file.read_text(encoding="utf-8").splitlines()]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_report(tmp_path / "study")
    for size in FULL_SIZES:
        path = Path(size) / "contrasts.csv"
        assert (tmp_path / "study" / path).read_bytes() == (STUDY / path).read_bytes()


def test_the_stored_figures_are_those_of_the_stored_tables(tmp_path: Path) -> None:
    shutil.copytree(STUDY, tmp_path / "study")
    figures = {path.relative_to(STUDY) for path in STUDY.rglob("*.svg")}
    for figure in figures:
        (tmp_path / "study" / figure).unlink()
    written = write_report(tmp_path / "study")
    assert figures == {
        path.relative_to(tmp_path / "study") for path in written if path.suffix == ".svg"
    }
    for figure in figures:
        assert read_texts(tmp_path / "study" / figure) == read_texts(STUDY / figure)


def test_figures_name_sizes_and_metrics_in_words() -> None:
    texts = {text for file in STUDY.rglob("*.svg") for text in read_texts(file)}
    assert not [text for text in texts if text in SIZES or "avg@k" in text]


def test_the_stored_figures_follow_a_dark_colour_scheme() -> None:
    files = sorted(STUDY.rglob("*.svg"))
    assert files
    for file in files:
        assert file.read_text(encoding="utf-8").count(DARK_STYLE) == 1


def read_table(name: str, size: str = "problems-96") -> list[dict[str, str]]:
    with (STUDY / size / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


FULL_SIZES = [size for size in SIZES if (STUDY / size / "contrasts.csv").exists()]
WORDS = {3: "three", 4: "four", 5: "five"}
#: Numbers of the page that follow from the plan or the literature: the confidence of intervals, the
#: comparisons, samples (96 × 16), e^γ at γ 0.5, and the paper's median gain in its table 1.
DERIVED_NUMBERS = {
    95,
    sum(len(read_table("contrasts", size)) for size in FULL_SIZES),
    96 * 16,
    round(math.exp(0.5), 2),
    statistics.median([2.3, 3.7, 2.4, 3.5, 1.5, 1.5, 1.5, 1.0]),
}
INTERVAL_COLUMNS = ("final", "value"), ("final", "gain"), ("contrasts", "ahead")
CONTROL_SECTION = "## Can the study see a benefit?\n"
TABLES_TEXT = (ROOT / "docs/study-tables.md").read_text(encoding="utf-8")
STUDY_TEXT = (ROOT / "docs/study.md").read_text(encoding="utf-8")
INTERVAL = re.compile(r"-?\d+\.\d \[-?\d+\.\d, -?\d+\.\d\]")


def test_intervals_on_the_page_equal_the_result_files() -> None:
    """Every interval on the page is in the result files, and in a row of its arm."""
    text_before, _, text_after = TABLES_TEXT.partition(CONTROL_SECTION)
    text = f"{text_before}\n## {text_after.partition('## ')[2]}"
    by_arm = intervals_by_arm()
    known_intervals = set().union(*by_arm.values())
    assert set(INTERVAL.findall(text)) <= known_intervals
    table_rows = [
        line.strip("| ").split(" | ") for line in text.splitlines() if INTERVAL.search(line)
    ]
    rows = [cells for cells in table_rows if cells[0] in by_arm]
    assert all({*INTERVAL.findall(" ".join(cells))} <= by_arm[cells[0]] for cells in rows)
    assert len(rows) > 4
    control = set().union(*intervals_by_arm("control-100").values())
    assert set(INTERVAL.findall(" ".join(STUDY_TEXT.split()))) <= known_intervals | control


def test_comparison_tables_on_the_page_equal_the_result_files() -> None:
    """Each row of a comparison has the p-values and the verdict of the file."""
    for row in read_table("contrasts"):
        ps = " | ".join(format_p(row[column]) for column in ("p", "p (Holm)"))
        cells = (row["arm"], row["against"], format_interval(row, "ahead"), ps, row["verdict"])
        assert f"| {' | '.join(cells)} |" in TABLES_TEXT


def test_the_results_on_the_first_page_are_differences_to_dpo() -> None:
    """Each arm with a difference has the accuracy, the difference and the verdict of its files."""
    contrasts = {
        row["arm"]: row
        for contrast in read_table("contrasts")
        for row in (contrast, reverse_contrast(contrast))
        if row["against"] == "DPO"
    }
    levels = {
        row["arm"]: format_interval(row, "value")
        for row in read_table("final")
        if (row["problems"], row["measure"]) == ("solve", "sampled")
    }
    table = STUDY_TEXT.partition("| difference to DPO (points) |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert [cells[0] for cells in rows[:2]] == ["SFT", "DPO"] and len(rows) > 4
    assert [cells[1].rstrip(" |") for cells in rows] == [levels[cells[0]] for cells in rows]
    for arm, _, *cells in rows[2:]:
        assert cells == [format_interval(contrasts[arm], "ahead"), contrasts[arm]["verdict"]]


def test_the_section_on_the_control_equals_the_result_files() -> None:
    """Each comparison and each accuracy of the files is on the page, and no other interval."""
    section = TABLES_TEXT.partition(CONTROL_SECTION)[2].partition("\n## ")[0]
    intervals = set()
    for row in read_table("contrasts", "control-100"):
        interval = format_interval(row, "ahead")
        intervals.add(interval)
        ps = " | ".join(format_p(row[column]) for column in ("p", "p (Holm)"))
        cells = (row["arm"], row["against"], interval, ps, row["verdict"])
        assert f"| {' | '.join(cells)} |" in section
    for row in read_table("final", "control-100"):
        if row["measure"] == "sampled":
            intervals |= {format_interval(row, "value"), format_interval(row, "gain")}
            assert f"| {row['arm']} | {format_interval(row, 'value')} |" in section
    assert {*INTERVAL.findall(section)} <= intervals
    seeds = {row["seeds"] for row in read_table("final", "control-100")}
    assert len(seeds) == 1 and f"{WORDS[int(*seeds)]} draws" in " ".join(section.split())


def test_the_page_counts_the_comparisons_and_the_significant_ones() -> None:
    text = " ".join(STUDY_TEXT.split())
    rows = [(size, row) for size in FULL_SIZES for row in read_table("contrasts", size)]
    significant = [
        (size, row["arm"]) for size, row in rows if row["verdict"] in SIGNIFICANT_VERDICTS
    ]
    assert f"Of the {len(rows)} comparisons of the study, three are significant" in text
    assert significant == [
        ("problems-96", "Step-DPO"),
        ("control-100", "full-step, γ 8, truth"),
        ("control-100", "full-step-scaled, γ 8, truth"),
    ]


def test_blocks_on_other_pages_equal_the_result_files() -> None:
    """Paragraphs after a comment ``study: SIZE`` state intervals of this size."""
    checked = 0
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for size, block in re.findall(r"<!-- study: (\S+) -->\n(.+?)(?=\n\s*\n|\Z)", text, re.S):
            intervals = set(INTERVAL.findall(" ".join(block.split())))
            assert intervals and intervals <= set().union(*intervals_by_arm(size).values()), page
            checked += len(intervals)
    assert checked > 1


def test_the_reward_table_on_the_page_equals_the_result_file() -> None:
    for row in read_table("sources"):
        assert f"| {row['rewards']} | {float(row['AUC']):.3f} |" in TABLES_TEXT


def test_the_page_names_the_arms_that_collapse() -> None:
    """All but one at the largest learning rate; below it, one arm only."""
    rows = read_table("sweep")[1:]
    collapsed = {(row["arm"], row["lr"]) for row in rows if row["collapsed"] == "yes"}
    arms = {row["arm"] for row in rows}
    assert {arm for arm, lr in collapsed if float(lr) == 1e-3} == arms - {"public-code"}
    smaller_rates = {(arm, float(lr)) for arm, lr in collapsed if float(lr) < 1e-3}
    assert smaller_rates == {("full-step, γ ∞, PRM", 3e-4)}


def test_every_number_of_the_text_is_in_a_file() -> None:
    """Numbers with decimals are values of a table; whole numbers are from the plan or counts."""
    text = f"{STUDY_TEXT}\n{TABLES_TEXT}"
    text = re.sub(r"<!-- measured: .*?-->\n(.+\n)+", "", text)  # held by test_pages.py
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|[γβ] [\d.]+", "", INTERVAL.sub("", text))
    plan = re.sub(r"^#.*$", "", (STUDY / "plan.toml").read_text(encoding="utf-8"), flags=re.M)
    plan_numbers = {float(number) for number in re.findall(r"\b\d[\d_]*(?:\.\d+)?", plan)}
    exact = plan_numbers | {100 * number for number in plan_numbers} | DERIVED_NUMBERS
    values = set()
    for file in STUDY.rglob("*.csv"):
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
            numbers = [float(cell) for cell in row.values() if re.fullmatch(r"-?[\d.]+", cell)]
            values |= {abs(number) for number in numbers}
            if file.name == "data.csv":
                exact |= {*numbers}
            if file.name == "sources.csv":
                exact |= {round(100 * number) for number in numbers}
            if file.name == "sweep.csv":
                exact.add(round(float(row["value"])))
    unknown = []
    for number in re.findall(r"(?<![\w.,^])\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w^])", text):
        value = float(number.replace(",", ""))
        digits = len(number.partition(".")[2])
        is_rounded = any(abs(other - value) <= 0.5001 * 10.0**-digits for other in values)
        if value not in exact and not (digits and is_rounded):
            unknown.append(number)
    assert not unknown


def test_the_page_names_the_arms_without_results() -> None:
    missing = TABLES_TEXT.partition("## Limits")[2]
    measured_arms = {row["arm"] for row in read_table("final")}
    assert all(arm.name in measured_arms or arm.name in missing for arm in ARMS)


def format_p(p: str) -> str:
    return "< 0.001" if float(p) < 0.001 else f"{float(p):.3f}"


def intervals_by_arm(size: str = "problems-96") -> dict[str, set[str]]:
    """Return the formatted intervals of each arm."""
    by_arm: dict[str, set[str]] = {}
    for name, column in INTERVAL_COLUMNS:
        for row in read_table(name, size):
            by_arm.setdefault(row["arm"], set()).add(format_interval(row, column))
            if name == "contrasts":
                row = reverse_contrast(row)
                by_arm.setdefault(row["arm"], set()).add(format_interval(row, column))
    return by_arm


def reverse_contrast(row: dict[str, str]) -> dict[str, str]:
    """Return the comparison of the second arm with the first one."""
    value, low, high = (-float(row[f"ahead{end}"]) for end in ("", " low", " high"))
    verdict = decide_verdict(float(row["p (Holm)"]), value, high, low)
    numbers = {"ahead": str(value), "ahead low": str(high), "ahead high": str(low)}
    return row | numbers | {"arm": row["against"], "against": row["arm"], "verdict": verdict}


def read_table(name: str, size: str = "problems-96") -> list[dict[str, str]]:
    with (STUDY / size / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def format_interval(row: dict[str, str], name: str) -> str:
    value, low, high = (f"{float(row[f'{name}{end}']):.1f}" for end in ("", " low", " high"))
    return f"{value} [{low}, {high}]".replace("-0.0", "0.0")
