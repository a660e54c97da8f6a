"""Tests of the public API: fast to import, listed and typed."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import multiprocessing
import pydoc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes import sample_all
from helpers import small_build

import fsdpo_data as fd
from fsdpo_data.dataset.manifest import Manifest


@pytest.fixture
def data(tmp_path: Path) -> fd.Dataset:
    small_build(tmp_path / "run")
    return fd.open_dataset(tmp_path / "run")


def test_the_names_are_listed() -> None:
    assert {"build", "Dataset", "load_scorer", "__version__"} <= set(dir(fd))
    assert all(hasattr(fd, name) for name in dir(fd))
    with pytest.raises(AttributeError, match="no attribute 'bild'"):
        _ = fd.bild  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "out"), [("o/r@v1.0", "r-v1.0"), ("o/r@refs/pr/1", "r-refs-pr-1"), ("o/r", "r")]
)
def test_where_a_pull_goes_by_itself(monkeypatch: pytest.MonkeyPatch, name: str, out: str) -> None:
    manifest = Manifest.__new__(Manifest)
    monkeypatch.setattr("fsdpo_data.api.pull_dataset", lambda *_, **__: manifest)
    assert fd.pull(name).path == Path("runs") / out


def test_options_are_keywords_with_their_help() -> None:
    assert "limit" in inspect.signature(fd.build).parameters
    assert "limit: Maximum number of problems" in (fd.build.__doc__ or "")
    assert next(iter(inspect.signature(fd.Dataset.score).parameters)) == "self"
    with pytest.raises(fd.FsdpoError, match=r"SamplingSpec\.n = 0"):
        fd.build(sampling=fd.SamplingSpec(n=0))
    with pytest.raises(fd.FsdpoError, match=r"^engine = 'auto': expected Sampler"):
        fd.build(engine="auto")  # type: ignore[arg-type]


def test_build_from_recorded_completions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampling = fd.SamplingSpec(n=2, max_tokens=32)
    first = fd.build(
        limit=2,
        sampling=sampling,
        engine=fd.SamplerOptions(engine="transformers", device="cpu"),
        out=tmp_path / "a",
    )
    again = fd.build(
        problems="embedded",
        limit=2,
        sampling=sampling,
        engine=fd.SamplerOptions(engine="replay", replay=first.path / "completions.jsonl"),
        out=str(tmp_path / "b"),
    )
    assert again.path == tmp_path / "b" and again.solutions().collect().height == 4
    assert not capsys.readouterr().out, "the library prints nothing"


def test_a_dataset(data: fd.Dataset, tmp_path: Path) -> None:
    assert data.validate() is data
    assert data.problems().collect().height == 3
    assert set(data.solutions().collect_schema()) == set(fd.Solution.__dataclass_fields__)
    with pytest.raises(fd.FsdpoError, match="has no pairs"):
        data.pairs()
    graded = data.grade(out=tmp_path / "graded")
    assert graded.manifest.parent == data.manifest.digest
    assert not any(data.diff(graded).values())
    assert data.export("trl-sft", tmp_path / "sft").rows > 0
    with pytest.raises(fd.FsdpoError, match=r"^top = 0: expected at least 1"):
        data.pair(top=0, out=tmp_path / "pairs")


def test_a_dataset_prints_its_main_numbers(data: fd.Dataset) -> None:
    lines = str(data).splitlines()
    assert lines[0] == str(data.path) and len(lines) <= 10
    names = [line.split("  ")[0] for line in lines[1:]]
    assert names[:4] == ["model", "problems", "solutions", "accuracy"] and "step labels" in names


def test_one_answer_and_one_text() -> None:
    assert fd.grade("1/2", r"so \boxed{0.5}").status == "correct"
    assert fd.segment("Step 1: a.\nStep 2: b.") == ["Step 1: a.\n", "Step 2: b."]


def _grade_pairs(pairs: list[tuple[str, str]]) -> list[str]:
    return [fd.grade(gold, response).status for gold, response in pairs]


def test_grade_works_from_any_thread_and_process() -> None:
    """Reward functions call it from threads, processes and event loops, without a set-up."""
    pairs = [
        (r"\frac{\sqrt{2}}{2}", rf"so \boxed{{\sin {degrees}^\circ}}") for degrees in range(40, 50)
    ]
    expected = ["correct" if degrees == 45 else "incorrect" for degrees in range(40, 50)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(_grade_pairs, [pairs] * 16)) == [expected] * 16
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as processes:
        assert list(processes.map(_grade_pairs, [pairs] * 2)) == [expected] * 2

    async def grade_in_threads() -> list[list[str]]:
        return await asyncio.gather(*(asyncio.to_thread(_grade_pairs, pairs) for _ in range(4)))

    assert asyncio.run(grade_in_threads()) == [expected] * 4


def test_a_sampler_by_name() -> None:
    pytest.importorskip("transformers")
    sampler = fd.load_sampler("tiny", engine="transformers", device="cpu")
    template = fd.load_template("tiny")
    spec = fd.SamplingSpec(n=2, max_tokens=8, stop=template.stop)
    (completions,) = sample_all(sampler, [template.render("1 + 1?")], spec)
    assert len(completions) == 2


def test_a_prompt_may_open_the_thinking() -> None:
    response = "Perhaps 5.</think>It is 4."
    verdict = fd.grade("4", response, prompt="2+2?<think>\n")
    assert (verdict.status, verdict.answer) == ("correct", "4")


def test_a_template_that_does_not_exist_is_refused() -> None:
    with pytest.raises(fd.FsdpoError, match="template"):
        fd.load_template("tiny", "no-such-template")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fd.build(samples=0),  # type: ignore[call-arg]
            r"samples = 0: build takes this value in a group\. Write "
            r"`sampling=SamplingSpec\(n=0\)`\.",
        ),
        (
            lambda: fd.build(limt=3),  # type: ignore[call-arg]
            r"limt = 3: build has no parameter with this name\. Nearest: limit",
        ),
        (lambda: fd.build(limit=0), r"limit = 0: expected at least 1\."),
        (lambda: fd.build(limit="4"), r"limit = '4': expected a whole number\."),  # type: ignore[arg-type]
        (lambda: fd.build(problems=[3]), r"problems = 3: expected a text\."),  # type: ignore[list-item]
        (lambda: fd.SamplingSpec(n="four"), r"SamplingSpec\.n = 'four': expected a whole number"),  # type: ignore[arg-type]
        (
            lambda: fd.SamplingSpec(samples=4),  # type: ignore[call-arg]
            r"SamplingSpec\.samples = 4: SamplingSpec has no parameter with this name",
        ),
        (lambda: fd.decontaminate("gsm8k"), "decontaminate needs the argument `against`"),  # type: ignore[call-arg]
        (
            lambda: fd.load_scorer("m", bta=1),  # type: ignore[call-arg]
            "bta = 1: load_scorer has no parameter with this name. Nearest: beta",
        ),
        (lambda: fd.grade(1, "1"), r"gold = 1: expected a text\."),  # type: ignore[arg-type]
    ],
)
def test_an_error_names_the_argument_of_the_call(call: Callable[[], object], message: str) -> None:
    with pytest.raises(fd.FsdpoError, match=f"^{message}"):
        call()


def test_only_some_arguments_need_no_name() -> None:
    with pytest.raises(TypeError, match=r"build\(\) takes no value without a name"):
        fd.build("gsm8k")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"agree\(\) takes only reference, labeller without a name"):
        fd.agree("a", "b", "c")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        fd.SamplingSpec(4)  # type: ignore[call-arg]


PUBLIC_FUNCTIONS = [value for name in dir(fd) if inspect.isfunction(value := getattr(fd, name))]


@pytest.mark.parametrize("function", PUBLIC_FUNCTIONS, ids=lambda function: function.__name__)
def test_every_function_has_an_example_that_is_right(function: Callable[..., object]) -> None:
    """A doctest passes, and a call of an example binds to the parameters."""
    text = inspect.getdoc(function) or ""
    names = {name: getattr(fd, name) for name in dir(fd)}
    test = doctest.DocTestParser().get_doctest(text, names, function.__name__, None, None)
    assert doctest.DocTestRunner().run(test).failed == 0
    if not test.examples:
        example = text.partition("\nExample:\n")[2].partition("\n\nArgs:")[0]
        calls = [
            node
            for node in ast.walk(ast.parse(inspect.cleandoc("\n" + example)))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function.__name__
        ]
        assert calls
        for call in calls:
            keywords = {keyword.arg or "": None for keyword in call.keywords}
            inspect.signature(function).bind(*call.args, **keywords)


def test_help_shows_a_plain_signature_and_an_example() -> None:
    functions = [fd.build, fd.decontaminate, fd.load_sampler, fd.load_scorer]
    methods = [fd.Dataset.label, fd.Dataset.score, fd.Dataset.grade, fd.Dataset.pair]
    for function in [*functions, *methods]:
        text = pydoc.render_doc(function, renderer=pydoc.plaintext)
        assert "Annotated" not in text and "Option(" not in text and " object at " not in text
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty
        summary, _, arguments = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
        arguments, _, example = arguments.partition("\n\nExample:\n")
        assert summary and arguments and example
        call = next(
            node
            for node in ast.walk(ast.parse(inspect.cleandoc("\n" + example)))
            if isinstance(node, ast.Call) and function.__name__ in ast.unparse(node.func)
        )
        names = {keyword.arg for keyword in call.keywords}
        assert names <= set(inspect.signature(function).parameters)
    assert "-> fsdpo_data.api.Dataset" in pydoc.render_doc(fd.build, renderer=pydoc.plaintext)
    assert "limit: int | None = None" in str(inspect.signature(fd.build))
    assert "sampling: fsdpo_data.core.sampling.SamplingSpec = SamplingSpec()" in str(
        inspect.signature(fd.build)
    )
