"""Tests of the report in a real browser: clicks, keys, filters, colour schemes, hostile text."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_runs import (
    HOSTILE,
    make_entry,
    make_problem,
    make_solution,
    report_run,
    write_dataset,
    write_run,
)
from browser import MISSING, Browser, available, chromium
from fsdpo_bench.cli.app import app
from fsdpo_bench.run_folder import RunRecord, write_run_record
from paired_data import paired_dataset
from typer.testing import CliRunner

from fsdpo_data.api import open_dataset
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.problems.benchmark_rows import BenchmarkRow

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(not available(), reason=MISSING),
]

TASKS = {"math": 40, "gsm_ic2": 21}
SELECTED = '#list [aria-selected="true"]'
ESCAPE = "\ue00c"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        chromium(Path(profile)) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("bench") / "run"
    write_run(run, TASKS)
    report_run(run)
    return run / "report.html"


def select_option(browser: Browser, select: str, value: str) -> None:
    """Select an option of a list by a click."""
    browser.click(f'[name="{select}"] option[value="{value}"]')


def test_the_page_opens_from_disk_without_errors(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.errors() == []
    assert browser.count(".item") == 61
    assert browser.text("#count").startswith("61 of 61 problems; greedy: ")
    assert browser.count("section svg") == 1 + 2 + 3


def test_a_click_opens_a_problem_and_its_solution(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click("#item-4")
    assert "What is 4 + 10?" in browser.text("#detail")
    assert browser.count(".verdicts tr") == 4
    open_count = browser.count(".solution[open]")
    browser.run("document.querySelectorAll('.solution').forEach((box) => (box.open = false))")
    browser.click(".verdicts tr:nth-child(3) button")
    assert open_count == browser.count(".solution[open]") == 1
    opened = browser.text(".solution[open]")
    assert "chosen by" in opened
    assert "The answer agrees with the gold" in opened or "differs from the gold" in opened
    assert browser.count(".solution[open] .step.scored .reward") == 2


def test_steps_are_shaded_by_their_reward(browser: Browser, page: Path) -> None:
    browser.open(page)
    shades = browser.run(
        "return [...document.querySelectorAll('.step.scored')].map((step) => "
        "[+step.querySelector('.reward').textContent, step.style.getPropertyValue('--shade')])"
    )
    assert len(shades) >= 8
    for reward, shade in shades:
        hue = int(shade.removeprefix("hsl(").split()[0])
        assert hue == pytest.approx(130 * reward, abs=1.5)


def test_filters_narrow_the_list(browser: Browser, page: Path) -> None:
    browser.open(page)
    select_option(browser, "task", "math")
    assert browser.count(".item") == 40
    select_option(browser, "in subject", "Algebra")
    assert browser.count(".item") == 20
    select_option(browser, "verdict", "incorrect")
    wrong = browser.count(".item")
    assert 0 < wrong < 20
    assert browser.count(".item.wrong") == wrong
    assert f"greedy: 0 correct, {wrong} wrong" in browser.text("#count")
    select_option(browser, "decoder", "sc@4")
    assert "sc@4: 0 correct" in browser.text("#count")
    browser.type("[name=search]", "nothing holds this")
    assert browser.count(".item") == 0
    assert browser.text("#detail") == "No problem fits the filters."


def test_keys_move_through_the_problems(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.press("j", "j", "k")
    assert "What is 1 + 10?" in browser.text(SELECTED)
    browser.press("n")
    assert browser.count('.item.wrong[aria-selected="true"]') == 1
    browser.press("/", "m", "a", "t", "h", "0", "0", "3")
    assert browser.count(".item") == 10
    browser.press(ESCAPE, "j")
    assert "What is 31 + 10?" in browser.text(SELECTED)
    browser.run("document.getElementById('list').focus()")
    browser.press("\ue010")  # End
    assert "What is 39 + 10?" in browser.text(SELECTED)
    visible = browser.run(
        "const row = document.querySelector(arguments[0]).getBoundingClientRect();"
        "const list = document.getElementById('list').getBoundingClientRect();"
        "return row.top >= list.top - 1 && row.bottom <= list.bottom + 1",
        SELECTED,
    )
    assert visible


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_text_has_enough_contrast_in_both_colour_schemes(
    browser: Browser, page: Path, scheme: str, dark: bool
) -> None:
    browser.scheme(scheme)
    browser.open(page)
    for selector in ("body", ".quiet", ".badge", ".small", ".step .text"):
        paper, ink = browser.run(
            "const style = getComputedStyle(document.querySelector(arguments[0]));"
            "const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g)"
            ".map((part) => { const v = part / 255; return v <= 0.04045 ? v / 12.92 "
            ": ((v + 0.055) / 1.055) ** 2.4 });"
            "return 0.2126 * r + 0.7152 * g + 0.0722 * b };"
            "const ink = document.querySelector(arguments[0]) instanceof SVGElement "
            "? style.fill : style.color;"
            "return [light(getComputedStyle(document.body).backgroundColor), light(ink)]",
            selector,
        )
        assert (paper < ink) == dark, selector
        # WCAG AA for normal text.
        assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) >= 4.5, selector


def test_a_narrow_window_does_not_scroll_sideways(browser: Browser, page: Path) -> None:
    browser.resize(500, 900)
    browser.open(page)
    wide, window = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    browser.resize(1280, 900)
    assert wide <= window


def test_the_address_restores_filters_and_selection(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run("return location.hash") == ""
    select_option(browser, "in subject", "Geometry")
    select_option(browser, "decoder", "bon@4:min")
    browser.press("j", "j")
    browser.click(".verdicts tr:nth-child(2) button")
    browser.click("#solution-2 summary")
    link = browser.run("return location.hash")
    visible_text = browser.text(SELECTED), browser.text("#count")
    browser.open(page)
    browser.run("location.hash = arguments[0]", link)
    browser.run("location.reload()")
    assert (browser.text(SELECTED), browser.text("#count")) == visible_text
    assert browser.run("return document.getElementById('solution-2').open")
    assert "Geometry" in visible_text[0] and "bon@4:min: " in visible_text[1]


def test_a_link_to_missing_items_shows_the_full_list(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("location.hash = '#decoder=none&task=constructor&problem=__proto__&sample=9'")
    browser.run("location.reload()")
    assert browser.text("#count").startswith("61 of 61 problems; greedy: ")
    assert "What is 0 + 10?" in browser.text(SELECTED) and browser.errors() == []


def test_the_prompt_is_shown_as_it_was_sent(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.press("j")
    assert browser.text("#detail pre") == "Question: What is 1 + 10?\n"


@pytest.fixture(scope="module")
def formulas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = r"Pay $5 or \(\frac{x^2}{3}\), $\href{javascript:alert(1)}{x}$, $x^$. \[\sqrt2\] "
    run = write_run(tmp_path_factory.mktemp("bench") / "run", {"gsm8k": 2}, text=text)
    report_run(run)
    return run / "report.html"


def test_formulas_are_rendered_and_other_text_is_unchanged(
    browser: Browser, formulas: Path
) -> None:
    browser.open(formulas)
    high, wide = browser.run(
        "const box = document.querySelector('#detail mfrac').getBoundingClientRect();"
        "return [box.height, box.width]"
    )
    assert high > wide > 0
    assert browser.count("#detail > .text:first-of-type math") == 2
    text = browser.text("#detail > .text")
    assert "Pay $5 or " in text and r"$\href{javascript:alert(1)}{x}$, $x^$." in text
    assert browser.count("[href*=javascript]") == 0 and browser.errors() == []


def test_a_narrow_window_keeps_font_sizes_and_scrolls_the_list_to_the_row(
    browser: Browser, page: Path
) -> None:
    browser.resize(500, 900)
    browser.open(page)
    browser.press(*"j" * 30)
    row, above, letters = browser.run(
        "const row = document.querySelector(arguments[0]).getBoundingClientRect();"
        "const list = document.getElementById('list').getBoundingClientRect();"
        "const name = document.querySelector('#accuracy svg .small').getBoundingClientRect();"
        "return [row.top >= list.top - 1 && row.bottom <= list.bottom + 1, scrollY, name.height]",
        SELECTED,
    )
    browser.resize(1280, 900)
    assert row and above == 0 and letters > 10


def test_names_in_the_cost_plot_do_not_touch(browser: Browser, page: Path) -> None:
    browser.open(page)
    boxes = browser.run(
        "return [...document.querySelectorAll('#cost svg')].map((plot) => "
        "[...plot.querySelectorAll('.word')].map((word) => { const box = "
        "word.getBoundingClientRect(); const all = plot.getBoundingClientRect(); "
        "return [box.top, box.bottom, all.right - box.right] }))"
    )
    assert len(boxes) == 2
    for names in boxes:
        for (_, bottom, _), (top, _, _) in itertools.pairwise(sorted(names)):
            assert top >= bottom - 2  # only the line spacing may overlap
        assert all(margin >= 0 for _, _, margin in names)


def test_printing_shows_the_full_list(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.media("print")
    layout = browser.run(
        "const list = document.getElementById('list');"
        "return [getComputedStyle(document.getElementById('browser')).display, "
        "list.clientHeight >= list.scrollHeight - 1, document.querySelector('nav').offsetHeight]"
    )
    browser.media("screen")
    assert layout == ["block", True, 0]


@pytest.fixture(scope="module")
def comparison_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    a = write_run(folder / "a", TASKS)
    other_model = ModelRef("other", "b" * 40)
    b = write_run(folder / "b", TASKS, chance=0.8, seed=3, model=other_model)
    line = ["diff", str(a), str(b), "--html", str(folder / "page.html"), "--show", "0"]
    assert CliRunner().invoke(app, line).exit_code == 0
    return folder / "page.html"


def test_a_comparison_page_aligns_the_steps_of_two_runs(
    browser: Browser, comparison_page: Path
) -> None:
    browser.open(comparison_page)
    assert browser.errors() == [] and browser.count(".item") == 61
    select_option(browser, "verdict", "only B")
    only_b_count = browser.count(".item")
    assert 0 < only_b_count < 61 and browser.count(".item.b") == only_b_count
    select_option(browser, "verdict", "only A")
    assert browser.count(".item.a") == browser.count(".item") > 0
    assert browser.text("#detail .beside .head").startswith("✓ correct A: greedy")
    tops = browser.run(
        "return [...document.querySelectorAll('.beside .step')]"
        ".map((step) => step.getBoundingClientRect().top)"
    )
    assert len(tops) == 4 and tops[0] == tops[1] < tops[2] == tops[3]


def test_a_click_on_a_column_header_sorts_the_table(
    browser: Browser, comparison_page: Path
) -> None:
    browser.open(comparison_page)
    for _ in range(2):
        browser.click(".sortable th:nth-child(5) button")
    column = (
        "return [...document.querySelectorAll('.sortable td:nth-child(5)')]"
        ".map((cell) => +cell.textContent)"
    )
    cells = browser.run(column)
    assert cells == sorted(cells) and len(set(cells)) > 3
    browser.run("location.reload()")
    assert browser.run(column) == cells


def test_a_dataset_page_shows_pairs_with_their_step_weights(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(open_dataset(paired_dataset(tmp_path / "data")).page(), encoding="utf-8")
    browser.open(page)
    assert browser.errors() == [] and browser.count(".item.some") == 3
    assert browser.count("#filters [name=decoder]:not([hidden] *)") == 0
    assert browser.count("#detail .beside") == 4
    text = browser.text(".beside")
    assert text.startswith("chosen ✓ correct") and "rejected ✗ incorrect" in text
    assert text.count("α 0.") == 4
    assert browser.count(".beside .good") == browser.count(".beside .bad") == 8


def test_hostile_text_is_shown_as_plain_text(browser: Browser, tmp_path: Path) -> None:
    megabyte = f"$\\frac{{{'{' * 500_000}}}$ $${'x^' * 250_000}$$"
    formulas = rf"{megabyte} $\text{{<script>alert(1)</script>}}$"
    text = f"{HOSTILE} \u202e\u2067\u05d0\u05d1\u05d2 {formulas} "
    problems = [make_problem(number, [BenchmarkRow("gsm8k", number)], text) for number in (0, 1)]
    # Every step contains a different long formula.
    rows = [
        make_solution(
            problem,
            index,
            completions=[f"$x_{{{problem.answer}{n}}}{'^' * 900}$" for n in range(300)],
            step_rewards=[-7.5] * 300,
        )
        for problem in problems
        for index in range(2)
    ]
    run = tmp_path / "run"
    write_dataset(run / "samples", problems, rows, prm="prm", is_probability=False)
    record = RunRecord(
        decoders=["sc@2"], parts=["samples"], benchmarks={"gsm8k": make_entry("gsm8k", 2)}
    )
    write_run_record(run, record)
    started = time.process_time()
    report_run(run)
    assert time.process_time() - started < 60
    assert (run / "report.html").stat().st_size < 2_000_000
    browser.open(run / "report.html")
    assert browser.errors() == []
    assert browser.run("return document.title").startswith("Qwen2-7B-SFT · GSM8K ")
    assert browser.count("#detail img, #detail script") == 0
    assert "</script><script>document.title='owned'</script>" in browser.text("#detail")
    wide, window = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= window


def test_the_content_security_policy_blocks_injected_scripts(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(
        "const made = document.createElement('script'); made.textContent = 'document.title = 1';"
        "document.body.append(made);"
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=2\">')"
    )
    assert browser.run("return document.title").startswith("Qwen2-7B-SFT")
    assert any("Content Security Policy" in error for error in browser.errors())


def test_thousands_of_problems_open_and_filter_quickly(browser: Browser, tmp_path: Path) -> None:
    tasks = {"math": 5000}
    text = r"If \(x^2 = \frac{1}{4}\), we get $x = \pm\frac12$. " * 3
    run = write_run(tmp_path / "run", tasks, text=text, samples=16)
    report_run(run)
    assert (run / "report.html").stat().st_size < 60_000_000
    start_seconds = browser.busy()
    browser.open(run / "report.html")
    assert browser.busy() - start_seconds < 2
    assert browser.count(".item") == 5000
    milliseconds = browser.run(
        "const start = performance.now(); const box = document.querySelector('[name=search]');"
        "box.value = '4999 + 10'; box.dispatchEvent(new Event('input'));"
        "return performance.now() - start"
    )
    assert browser.count(".item") == 1
    assert milliseconds < 2000
    browser.run(
        "const box = document.querySelector('[name=search]');"
        "box.value = ''; box.dispatchEvent(new Event('input'));"
    )
    start_seconds = browser.busy()
    for _ in range(50):
        browser.run("document.getElementById('list').scrollTop += 800; document.body.offsetHeight")
    assert (browser.busy() - start_seconds) / 50 < 1 / 30  # one frame at 30 frames per second


def test_a_phone_shows_the_accuracy_column(browser: Browser, page: Path) -> None:
    browser.set_screen_width(400)
    browser.open(page)
    edges = browser.run(
        "return [...document.querySelectorAll('#accuracy tbody td:nth-child(3)')]"
        ".map((cell) => cell.getBoundingClientRect().right)"
    )
    visible_width = browser.run("return document.documentElement.clientWidth")
    browser.set_screen_width(0)
    assert visible_width == 400
    assert edges and max(edges) <= visible_width
