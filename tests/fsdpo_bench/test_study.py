"""The study's statistics, choices and pictures, without its training."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("matplotlib")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "study"))

from figure import Panel, write_figure  # noqa: E402
from measure import Estimate, Measured, against, estimate, final_rows, sweep_rows, write_rows  # noqa: E402  # noqa: E402
from plan import CHOSEN, METHODS, STUDY, Policy  # noqa: E402
from study import best  # noqa: E402


def random_runs(seeds: int, problems: int, spread: float) -> list[Measured]:
    rng = np.random.default_rng(0)
    levels = rng.normal(0.5, spread, size=seeds)
    return [Measured(rng.normal(level, 0.3, size=problems)) for level in levels]


def test_one_seed_has_the_interval_of_its_problems() -> None:
    (run,) = random_runs(1, 400, 0)
    found = estimate(run.sampled[None])
    error = 100 * run.sampled.std() / 20
    assert found.value == pytest.approx(100 * run.sampled.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.05)


def test_seeds_that_disagree_widen_the_interval() -> None:
    alike, apart = (random_runs(3, 400, spread) for spread in (0.0, 0.2))
    widths = []
    for runs in (alike, apart):
        found = estimate(np.stack([run.sampled for run in runs]))
        widths.append(found.high - found.low)
    assert widths[1] > 3 * widths[0]


def test_differences_are_taken_problem_by_problem() -> None:
    rng = np.random.default_rng(1)
    base = Measured(rng.random(300))
    ahead = Measured(base.sampled + 0.05)
    found = against([ahead, ahead], base, "sampled")
    assert (found.value, found.low, found.high) == pytest.approx((5, 5, 5))


def test_each_loss_gets_its_best_setting_and_the_papers_gamma() -> None:
    swept = {policy: Measured(np.array([0.1])) for policy in STUDY.settings()}
    winners = [Policy(loss, STUDY.lrs[-1], STUDY.betas[-1]) for loss in METHODS]
    swept |= {policy: Measured(np.array([0.5])) for policy in winners}
    swept[Policy("full-step", 3e-5, gamma=8.0)] = Measured(np.array([0.9]))
    assert best(swept) == winners
    assert best({}) == []
    assert [policy.loss for policy in CHOSEN] == list(METHODS)


def test_every_setting_has_a_name_of_its_own() -> None:
    names = [policy.name for policy in STUDY.settings()]
    assert len(set(names)) == len(names) == 3 * len(STUDY.lrs) * len(STUDY.betas)


def test_tables_hold_what_was_measured(tmp_path: Path) -> None:
    base = Measured(np.array([0.0, 0.5]), np.array([0.0, 1.0]))
    runs = [Measured(np.array([0.5, 1.0]), np.array([1.0, 1.0]))] * 3
    rows = final_rows({"full-step": runs}, base)
    assert rows[0]["avg@k"] == "25.00" and rows[0]["avg@k gain"] == "0.00"
    assert rows[1]["method"] == "Full-Step-DPO" and rows[1]["seeds"] == 3
    assert rows[1]["avg@k gain"] == rows[1]["avg@k gain low"] == "50.00"
    assert rows[1]["greedy gain"] == "50.00"
    chosen = Policy("full-step", 3e-5)
    swept = sweep_rows({chosen: Measured(base.sampled)}, Measured(base.sampled), [chosen])
    assert [row["chosen"] for row in swept] == ["", "yes"] and "greedy" not in swept[0]
    write_rows(tmp_path / "rows.csv", rows)
    assert (tmp_path / "rows.csv").read_text().splitlines()[0].startswith("method,seeds,avg@k,")


def test_the_figure_is_a_picture(tmp_path: Path) -> None:
    points = {name: Estimate(50, 45, 55) for name in ("SFT", "DPO")}
    panels = [
        Panel("bars", "", {"": points}, joined=False),
        Panel("lines <β>", "lr", {"DPO": points, "Step-DPO": points}, joined=True),
    ]
    write_figure(tmp_path / "figure.svg", panels)
    root = ElementTree.parse(tmp_path / "figure.svg").getroot()
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"bars", "lines <β>", "SFT", "DPO", "50.0"} <= set(texts)
