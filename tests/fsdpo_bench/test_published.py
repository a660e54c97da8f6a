"""The paper's numbers, held against the paper."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from fsdpo_bench.results.published import (
    is_backbone,
    published_results,
    published_results_for,
    shipped_path,
)
from fsdpo_bench.tasks.table import suites

from fsdpo_data.core.errors import UnavailableError

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "reference" / "paper.tex"
LABELS = {"1": "tab:tab1", "2": "tab:tab2", "more-ood": "tab:more_ood", "prm": "tab:diff_prms"}
TITLES = {"OCW": "ocw", "GSM-IC2": "gsm_ic2", "GSM-ICM": "gsm_icm"}


def _table(label: str) -> list[list[str]]:
    """Read the rows of a LaTeX table as plain cells: name, then "value" or "value delta"."""
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
def test_every_cell_of_the_papers_tables_is_there(table: str) -> None:
    header, *rows = _table(LABELS[table])
    cells, backbone = [], ""
    for name, *values in rows:
        backbone = backbone if name.startswith("+") else name
        for title, value in zip(header[1:], values, strict=True):
            cells.append((backbone, name, TITLES.get(title, title.lower()), value))
    ours = [each for each in published_results() if each.table == table]
    assert len(ours) == len(cells) > 7
    for each, (backbone, name, task, value) in zip(ours, cells, strict=True):
        assert (each.backbone, each.task) == (backbone, task)
        assert f"{each.value:.1f} {each.delta}".strip() == value
        if each.table == "prm":
            how = {"+ Self-Consistency": "sc@8"}.get(name, "bon@8:min" if each.prm else "greedy")
            assert each.decode == how
            assert each.prm in name
        else:
            assert name.lower() in (backbone.lower(), f"+ {each.method}")


def test_printed_changes_are_differences_but_for_the_slip_that_is_named() -> None:
    bare = (p for p in published_results() if p.method == "sft" and p.decode == "greedy")
    base = {(p.backbone, p.task): p.value for p in bare}
    wrong = [
        each
        for each in published_results()
        if each.delta
        and abs(each.value - base[each.backbone, each.task] - float(each.delta)) > 0.051
    ]
    assert [(each.label, each.task, each.delta) for each in wrong] == [
        ("Qwen2-7B-SFT + DPO", "math", "-23.9")
    ]


def test_every_benchmark_has_sixteen_published_rows_or_more() -> None:
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
def test_a_model_is_found_among_the_backbones(model: str, fits: bool) -> None:
    assert is_backbone("Qwen2-7B-SFT", model) == fits


def test_what_the_code_looks_for_ships_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, target in included.items():
        assert (ROOT / source).exists()
        assert target == f"fsdpo_shipped/{Path(source).name}"
        assert shipped_path(Path(source).name).exists()
    with pytest.raises(UnavailableError, match=r"absent\.csv is missing"):
        shipped_path("absent.csv")
