"""Compare the table of published results with the source of the paper."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from fsdpo_bench.report.published import (
    is_backbone,
    published_results,
    published_results_for,
    shipped_path,
)
from fsdpo_bench.tasks.table import suites

from fsdpo_data.core.errors import UnavailableError

ROOT = Path(__file__).parents[3]
PAPER = ROOT.parent / "shared" / "reference" / "paper.tex"
LABELS = {"1": "tab:tab1", "2": "tab:tab2", "more-ood": "tab:more_ood", "prm": "tab:diff_prms"}
TITLES = {"OCW": "ocw", "GSM-IC2": "gsm_ic2", "GSM-ICM": "gsm_icm"}


def _table(label: str) -> list[list[str]]:
    """Read the rows of a LaTeX table as text cells: the name, then "value" or "value delta"."""
    tex = PAPER.read_text(encoding="utf-8")
    end = tex.index(rf"\label{{{label}}}")
    body = tex[tex.rindex(r"\begin{tabular}", 0, end) : end]
    body = re.sub(r"\\(top|mid|bottom)rule|\\rowcolor\{\w+\}", "", body).replace(r"(\%)", "")
    body = re.sub(r"\\(hspace|raisebox|textcolor)\{[^}]*\}", "", body)
    body = re.sub(r"\\(textbf|underline|footnotesize)|[{}]", " ", body)
    rows = [row.split("&") for row in body.split(r"\\") if "&" in row]
    rows[0][0] = "Model"
    return [[" ".join(cell.split()) for cell in row] for row in rows]


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here")
@pytest.mark.parametrize("table", LABELS)
def test_published_results_contain_every_cell_of_the_papers_tables(table: str) -> None:
    header, *rows = _table(LABELS[table])
    cells = []
    backbone = ""
    for name, *values in rows:
        backbone = backbone if name.startswith("+") else name
        for title, value in zip(header[1:], values, strict=True):
            cells.append((backbone, name, TITLES.get(title, title.lower()), value))
    ours = [result for result in published_results() if result.table == table]
    assert len(ours) == len(cells) > 7
    for result, (backbone, name, task, value) in zip(ours, cells, strict=True):
        assert (result.backbone, result.task) == (backbone, task)
        assert f"{result.value:.1f}" == value.split()[0]  # the printed difference follows
        if result.table == "prm":
            decoder = {"+ Self-Consistency": "sc@8"}.get(
                name, "bon@8:min" if result.prm else "greedy"
            )
            assert result.decode == decoder
            assert result.prm in name
        else:
            assert name.lower() in (backbone.lower(), f"+ {result.method}")


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here")
def test_numbers_of_the_figures_are_in_the_text_of_the_paper() -> None:
    text = " ".join(PAPER.read_text(encoding="utf-8").replace("\\", "").split())
    sentences = {
        ("verify", "sc@15"): r"accuracy to (93)% when the sampling size \$K=15\$",
        ("simulation", "gsm8k"): r"competitive performance with ([\d.]+)% accuracy on GSM8K",
        ("simulation", "math"): r"accuracy on GSM8K and ([\d.]+)% on MATH, while",
        ("simulation", "gpu-hours"): r"while only requiring ([\d.]+)h",
    }
    values = {key: re.search(pattern, text) for key, pattern in sentences.items()}
    figures = [result for result in published_results() if result.table in ("verify", "simulation")]
    assert len(figures) == len(sentences)
    for result in figures:
        key = (result.table, result.decode if result.table == "verify" else result.task)
        match = values[key]
        assert match is not None and float(match[1]) == result.value


def test_every_benchmark_has_16_or_more_published_rows() -> None:
    for task in suites()["all"]:
        assert len(published_results_for(task)) >= 16
    assert published_results_for("gsm8k", "sc@8")[0].value == 81.3


@pytest.mark.parametrize(
    ("model", "fits"),
    [
        ("xinlai/Qwen2-7B-SFT", True),
        ("qwen2-7b-sft", True),
        ("Qwen2-7B-SFT-Step-DPO", True),
        ("tiny", False),
        ("Qwen/Qwen2-7B-Instruct", False),
    ],
)
def test_model_names_are_matched_to_backbones(model: str, fits: bool) -> None:
    assert is_backbone("Qwen2-7B-SFT", model) == fits


def test_the_wheel_contains_all_shipped_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, target in included.items():
        assert (ROOT / source).exists()
        assert target == f"fsdpo_shipped/{Path(source).name}"
        assert shipped_path(Path(source).name).exists()
    with pytest.raises(UnavailableError, match=r"absent\.csv is missing"):
        shipped_path("absent.csv")
