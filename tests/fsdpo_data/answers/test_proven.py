"""``correct`` and ``incorrect`` are proven: changes of a gold by kind, and right neighbours."""

from __future__ import annotations

import pytest

from fsdpo_data.answers import GradingRequest
from fsdpo_data.answers.comparison import equivalence
from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import MathGrader

#: By kind: golds, answers that are right, and answers that must not be correct in any direction.
KINDS: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "labelled parts are all compared": [
        ("A: 4, B: 14", ["A: 4, B: 14", "A = 4, B = 14"], ["A: 4, B: 34", "A: 14, B: 4", "A: 4"]),
        ("J: 4 hr, S: 14 hr", ["J: 4 hours, S: 14 hours"], ["J: 4 hr, S: 34 hr", "J: 4 hr"]),
        ("a. 3 b. 4", [], ["a. 3 b. 5", "a. 3", "a. 4 b. 3"]),
        ("(a) 5 (b) 7", ["(a) 5, (b) 7", "(5, 7)"], ["(a) 7 (b) 5", "(a) 5 (b) 8", "(a) 5"]),
        ("a) 5, b) 7", ["(a) 5, (b) 7"], ["a) 6, b) 7", "a) 5, b) 8"]),
        (r"\textbf{(B)}\ 42", ["B", "(B) 42"], ["(C) 42"]),
        ("True, False", ["True, False"], ["True", "True, True", "False, False"]),
    ],
    "an equation in a list is compared as a whole": [
        ("2x-y-1=0, 3", ["3, 2x-y-1=0", "y=2x-1, 3"], ["2x-y+1=0, 3", "2x-y-1=0, 4"]),
        ("x=1, y=2x-3", ["x = 1, y = -3+2x"], ["x=1, y=2x+3", "x=2, y=2x-3"]),
        ("z-2w=-4, zw=6", ["zw = 6, z - 2w = -4"], ["z-3w=-4, zw=6"]),
        ("41/4=10.25, 8", ["10.25, 8"], ["51/4=10.25, 8"]),
        (r"\sigma=D(X)=\sqrt{2}, R=5", [], [r"\sigma<D(X)=\sqrt{2}, R=5"]),
    ],
    "families with constants": [
        (
            r"y=c_{1} e^{-7 x}+c_{2} e^{-x}",
            [
                "y=c_1 e^{-x}+c_2 e^{-7x}",
                "y=Ae^{-7x}+Be^{-x}",
                "y=e^{-x}(c_1+c_2e^{-6x})",
                "y=c_1 e^{-7x}-c_2 e^{-x}",
            ],
            [r"y=c_{1} e^{-9 x}+c_{2} e^{-x}", "y=c_1e^{-7x}+c_2e^x", "y=c_1e^{-7x}+e^{-x}"],
        ),
        (
            r"y=c_1\begin{pmatrix} \cos t\\2t\end{pmatrix}+c_2\begin{pmatrix}1\\3\end{pmatrix}",
            [r"y=c_1(\cos t, 2t)+c_2(1, 3)"],
            [r"y=c_1(\cos t, 3t)+c_2(1, 3)", r"y=c_1(\cos t, 2t)+c_2(1, 4)"],
        ),
        (r"\frac{1}{2}\cos^2 x=x+x+C", [], [r"\frac{1}{3}\cos^2 x=x+x+C"]),
        ("y=C_1 e^{80x}+C_2 e^{-x}", ["y=Ae^{-x}+Be^{80x}"], ["y=C_1 e^{81x}+C_2 e^{-x}"]),
        ("y=c_1x^{80}+c_2", ["y=A+Bx^{80}"], ["y=c_1x^{79}+c_2", "y=c_1w^{80}+c_2"]),
        (r"y=c_1\cos 3x+c_2\sin 3x", [r"y=A\sin 3x+B\cos 3x"], [r"y=c_1\cos 3x+c_2\sin 4x"]),
    ],
    "compound quantities": [
        ("2 h 50 min", ["2 hours 50 minutes", "170 min", "2h 50min"], ["50 h 2 min", "2 h 5 min"]),
        ("3 h 5 m", ["3 hr 5 min"], ["5 h 3 m"]),
        ("5 m 20 cm", ["5.2 m", "520 cm"], ["20 m 5 cm", "5 m 30 cm"]),
        ("2 hours and 45 minutes", ["2 h 45 min"], ["2 hours or 45 minutes"]),
    ],
    "a number that may also be a list": [
        ("3,888", ["3888", "3, 888"], ["888,3", "3,889"]),
        ("12,345", ["12345"], ["345,12", "12,346"]),
        ("845,640", ["845640", "845, 640"], ["640,845"]),
        ("70, 110", ["110, 70"], ["70, 111"]),
    ],
    "a relation is read": [
        (
            r"V_2 = 0.226 \, \mathrm{m}^3",
            [r"0.226 \mathrm{m}^3"],
            [r"V_2 \neq 0.226 \, \mathrm{m}^3"],
        ),
        (r"\sum_{k=1}^{10} k", ["55", r"\sum_{j=1}^{10} j"], [r"\sum_{k \neq 1}^{10} k"]),
        (r"\prod_{i=2}^{4} i", ["24"], [r"\prod_{i<2}^{4} i"]),
        (
            r"f(x)=\begin{cases} x^2 & x<0 \\ 2x+1 & x\ge 0\end{cases}",
            [r"\begin{cases} x^2 & x<0 \\ 1+2x & x\ge 0\end{cases}"],
            [
                r"f(x)\neq\begin{cases} x^2 & x<0 \\ 2x+1 & x\ge 0\end{cases}",
                r"f(x)=\begin{cases} x^2 & x\le 0 \\ 2x+1 & x> 0\end{cases}",
            ],
        ),
        (r"P(0)\neq 0 \text{ and } Q(0)=0", [], [r"P(0)\neq 0 \text{ or } Q(0)=0"]),
        (r"a<b \text{ or } c=d", [], [r"a<b \text{ and } c=d", r"a\le b \text{ or } c=d"]),
    ],
    "words that name the value": [
        ("max 3, min 2", ["maximum 3, minimum 2", "min 2, max 3"], ["max 2, min 3"]),
        ("the units digit is 7", ["7"], ["the tens digit is 7", "the units digit is 8"]),
        ("the radius is 3", ["3", "radius: 3", "The radius is 3."], ["the diameter is 3"]),
        ("The answer is 4", ["the area is 4", "4"], ["the area is 5"]),
    ],
    "names agree": [
        ("x_1=4, x_2=1", ["x=1 or x=4", "4, 1"], ["x_2=4, x_2=1", "x_1=4, x_3=1"]),
        (
            r"(x,y)=(1,2), (x,y)=(3,4)",
            ["(1,2), (3,4)", "(y,x)=(2,1), (y,x)=(4,3)", "(x,y)=(3,4) or (x,y)=(1,2)"],
            ["(y,x)=(1,2), (y,x)=(3,4)", "(x,y)=(1,2), (x,y)=(4,3)"],
        ),
        ("(1,2)", ["(x,y)=(1,2)", "(y,x)=(2,1)"], ["(y,x)=(1,2)"]),
        ("x=-1, x=0 or x=1", ["x = 0, 1, -1"], ["x=-1, x=0 or w=1", "w=-1, w=0, w=1"]),
        ("[x=1, y=2, z=3]", ["x=1, y=2, z=3"], ["[w=1, y=2, z=3]", "[x=2, y=1, z=3]"]),
        ("f(x)=x^2", ["f(t)=t^2", "y=x^2"], ["f(w)=x^2", "g(x)=x^2"]),
        ("E(X)=5", ["5"], ["E(Y)=5"]),
        ("f(2)=5", ["5"], ["f(3)=5", "g(2)=5"]),
        (r"\frac{dx}{dt}=kx-a", [r"\dot x=kx-a"], [r"\frac{dx}{dw}=kx-a"]),
        (
            r"\{(x,y) \mid x+2y=1\}",
            ["x+2y=1"],
            [r"\{(y,x) \mid x+2y=1\}", r"\{(x,w) \mid x+2y=1\}"],
        ),
        (r"\sum_{k=1}^n a_k", [r"\sum_{i=1}^n a_i"], [r"\sum_{k=2}^{n+1} a_k"]),
        ("x=2y, z=3y", ["x=2y, z=3y"], ["y=2x, z=3x", "x=2w, z=3w"]),
        ("x=1, x=2", ["x=2 or x=1", "1, 2"], ["w=1, x=2", "x=1, w=2"]),
        (r"x\approx 0.5, x\approx 1.5", ["0.5, 1.5"], [r"w\approx 0.5, x\approx 1.5"]),
        ("f(x)=x, f(x)=2-x", ["f(x)=2-x, f(x)=x"], ["f(w)=x, f(x)=2-x", "w(x)=x, f(x)=2-x"]),
        ("d(t)=3t, t>1", ["d(h)=3h, h>1"], ["d(w)=3t, t>1"]),
        ("(2x, 2y)", ["(x+x, 2y)"], ["(2w, 2y)", "(2x, 2w)"]),
        (
            r"f(x)=\begin{cases} x^2 & x<0 \\ 2x & x\ge 0\end{cases}",
            [r"f(t)=\begin{cases} t^2 & t<0 \\ 2t & t\ge 0\end{cases}"],
            [r"f(w)=\begin{cases} x^2 & x<0 \\ 2x & x\ge 0\end{cases}"],
        ),
        (
            r"\|u\|=\sqrt{13}, \|v\|=\sqrt{30}",
            [r"\|v\|=\sqrt{30}, \|u\|=\sqrt{13}"],
            [r"\|w\|=\sqrt{13}, \|v\|=\sqrt{30}"],
        ),
        ("u_2=2u_1, u_4=3u_3", ["u_4=3u_3, u_2=2u_1"], ["u_2=3u_1, u_4=3u_3"]),
    ],
    "letters that are a word": [
        ("ABC", ["ABC"], ["CBA", "BCA"]),
        ("XIV", ["XIV"], ["XVI", "XV"]),
        ("IV", ["IV"], ["VI"]),
        ("tea", ["tea"], ["eat"]),
        ("RCx", ["xRC", "CRx"], ["RC"]),
        ("xy", ["yx"], ["x+y"]),
    ],
    "names are compared by all of their words": [
        (
            "NASDAQ Global Select Market",
            ["the NASDAQ Global Select Market", "NASDAQ global select market"],
            ["NASDAQ Capital Market", "NASDAQ"],
        ),
        ("USS Enterprise crew", [], ["USS Voyager crew"]),
    ],
    "windows reach beyond the constants": [
        (r"\lfloor n/25\rfloor", [r"\left\lfloor \frac{n}{25}\right\rfloor"], ["0", "n/25"]),
        (r"\min(p,50)", [r"\min(50,p)"], ["p", "50"]),
        (r"\max(n,30)", [r"\max(30, n)"], ["30", "n"]),
        (r"\max(n,5000)", [], ["5000"]),
        (
            r"\begin{cases} n & n\le 13 \\ 0 & \text{otherwise} \end{cases}",
            [r"\begin{cases} n & n<14 \\ 0 & n\ge 14 \end{cases}"],
            ["n", r"\begin{cases} n & n\le 14 \\ 0 & \text{otherwise} \end{cases}"],
        ),
        ("|x-20000|", ["|20000-x|"], ["20000-x", "x-20000"]),
        ("|3x-700|+x", ["x+|700-3x|"], ["700-2x"]),
        (r"\sqrt{(x-50)^2}", ["|x-50|", "|50-x|"], ["50-x", "x-50"]),
        (r"\sqrt{x^2-900x+202500}", ["|x-450|"], ["450-x"]),
    ],
    "order": [
        (r"1, 2, \ldots, n", [r"1,2,\dots,n"], [r"2, 1, \ldots, n"]),
        (r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}", ["(2,1)"], ["(1,2)"]),
        (
            r"Solution is: \left[\begin{array}{c}\frac{2}{3} \\ \frac{1}{3}\end{array}\right]",
            [r"\begin{pmatrix} 2/3 \\ 1/3 \end{pmatrix}"],
            [r"Solution is: \left[\begin{array}{c}\frac{1}{3} \\ \frac{2}{3}\end{array}\right]"],
        ),
    ],
    "the sign of a rounded decimal": [
        (r"-\sqrt2", ["-1.414214", "-1.41421356"], ["1.414214", "-1.424214"]),
        ("-3.141593", [r"-\pi"], [r"\pi", "3.141593"]),
        ("6th", ["6th"], ["-6th"]),
    ],
    "a true calculation is its result": [
        (r"2\times 3=6", [r"3\times 2=6"], [r"3\times 3=9"]),
        (r"\log_5 25=2", ["2"], [r"\log_5 125=3"]),
        ("2x=x+x+C", ["x+x+C"], ["3x=x+x+x+C"]),
    ],
    "matrices on the right side": [
        (
            r"y=c_1 e^t\begin{pmatrix} 1 \\ 2\end{pmatrix}",
            [r"y=c_1 e^t\begin{pmatrix} 1 \\ 2\end{pmatrix}"],
            [r"y=c_1 e^t\begin{pmatrix} 1 \\ 3\end{pmatrix}"],
        ),
        (
            r"C_B(v)=\begin{pmatrix} 1 \\ 2\end{pmatrix}",
            [r"\begin{pmatrix} 1 \\ 2\end{pmatrix}"],
            [r"B_C(v)=\begin{pmatrix} 1 \\ 2\end{pmatrix}"],
        ),
    ],
}


def status(gold: str, answer: str) -> str:
    return (
        MathGrader(0.0).grade([GradingRequest(gold, rf"So it is $\boxed{{{answer}}}$.")])[0].status
    )


@pytest.mark.parametrize("kind", KINDS)
def test_right_answers_of_a_kind_are_correct(kind: str) -> None:
    pairs = [(gold, answer) for gold, right, _ in KINDS[kind] for answer in [gold, *right]]
    assert [pair for pair in pairs if status(*pair) != "correct"] == []
    assert [pair for pair in pairs if compare_answers(*pair).status != "correct"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_changed_answers_of_a_kind_are_not_correct(kind: str) -> None:
    pairs = [
        pair
        for gold, _, wrong in KINDS[kind]
        for answer in wrong
        for pair in ((gold, answer), (answer, gold))
    ]
    assert [pair for pair in pairs if status(*pair) == "correct"] == []
    assert [pair for pair in pairs if compare_answers(*pair, 0.0).status == "correct"] == []


def test_a_gold_repeats_a_value_for_a_reason_and_an_answer_may_repeat_it() -> None:
    assert compare_answers("1, 1, 2, 3", "1, 2, 3").status == "undecided"
    assert compare_answers("1, 1, 2, 3", "1, 2, 1, 3").status == "correct"
    assert compare_answers("1, 2, 3", "1, 1, 2, 3").status == "correct"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("|x-10^6|", "10^6-x"),
        (r"|x-\sqrt{5000}|", r"\sqrt{5000}-x"),
        (r"|x-100\pi|", r"100\pi-x"),
        (r"\max(x, e^7)", "e^7"),
        (r"\lfloor n/3^7 \rfloor", "0"),
        ("|x-1|+|x-2|+|x-3|+|x-4|+|x-500|", "|x-1|+|x-2|+|x-3|+|x-4|+500-x"),
        ("(i) 3, (ii) 4", "(i) 4, (ii) 3"),
        (r"x=3 \text{ or } x=4", r"x=3 \text{ and } y=4"),
    ],
)
def test_large_constants_labels_and_names_count(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).status == "incorrect"
        assert status(*pair) == "incorrect"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"p \equiv 1 \pmod 8", r"p \equiv 1 \pmod 0"),
        (r"S = \sum_{k=1}^{n} k", r"k = \sum_{S=1}^{n} k"),
        (r"T = \sum_{k=1}^n a_k", r"k = \sum_{k=1}^n a_T"),
        ("5 s^{-1}", r"\sum_{ek=1}^{n}5 s^{-1}"),
        (r"\begin{cases} \end{pmatrix}", r"\begin{pmatrix} 6 \\ -15 \end{pmatrix}"),
        (r"f(x)=-2(x-2 i)(x+2 i)(x+2)", r"x(f)=-2(x-2 i)(x+2 i)(x+2)"),
    ],
)
def test_odd_texts_have_a_verdict(gold: str, answer: str) -> None:
    for pair in ((gold, answer), (answer, gold)):
        assert compare_answers(*pair).rule != "error"
        assert status(*pair) in ("incorrect", "undecided", "timed_out")


def test_an_exception_in_a_rule_leaves_a_text_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("no rule foresees this")

    monkeypatch.setattr(equivalence, "_compare_parsed", fail)
    verdict = compare_answers("x+1", "x+2")
    assert (verdict.status, verdict.rule) == ("undecided", "error")
    assert "ZeroDivisionError" in verdict.unread
    monkeypatch.setattr("fsdpo_data.answers.grader.extract_answer", fail)
    assert status("x+1", "x+2") == "undecided"


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        # Two texts are incorrect only if a closed list has both.
        ("no solutions", "The equation has no solution.", "correct"),
        ("never monotonic", "it is never monotone", "correct"),
        ("not possible", "It is impossible.", "correct"),
        ("possible", "not possible", "incorrect"),
        ("no solution", "DNE", "undecided"),
        ("50 R 5", "50 r 5", "correct"),
        ("Both integrals diverge.", "both are divergent", "undecided"),
        ("T, F, F, T", "(a) true (b) false (c) false (d) true", "undecided"),
        ("Tom", "Thomas", "undecided"),
        ("Paris", "the capital of France", "undecided"),
        ("5", r"\text{the number of sides}", "undecided"),
        ("5", r"\text{not five}", "incorrect"),
        ("Tuesday", "Wednesday", "incorrect"),
        ("Yes", "No, they are not", "incorrect"),
        ("even", "odd", "incorrect"),
        ("True", "not true", "incorrect"),
        ("Brand A", "Brand B", "incorrect"),
        ("surplus", "deficit", "incorrect"),
        ("72", "48 clips", "incorrect"),
        ("48", "48 clips", "correct"),
        # Quantities.
        ("4.43 days", "4.43 d", "correct"),
        ("4.43 days", "4.44 d", "incorrect"),
        (r"4.7\ \text{k}\Omega", "0.0047 MΩ", "correct"),
        (r"4.7\ \text{k}\Omega", "0.0048 MΩ", "incorrect"),
        (r"200/3\approx 66.67 ft-lb", r"66\frac23 ft-lb", "correct"),
        ("350 ppm", r"3.5\times10^{-4}", "correct"),
        ("350 ppm", r"3.5\times10^{-3}", "incorrect"),
        ("6e-3 Tesla", "60 gauss", "correct"),
        (r"23^\circ 26' 21''", "23 degrees 26 minutes 21 seconds", "correct"),
        (r"23^\circ 26' 21''", "23 degrees 21 minutes 26 seconds", "incorrect"),
        # What is read is evaluated, or nothing is decided.
        (r"2^{10} \bmod 7", "2", "correct"),
        ("2", r"3^{1000} \bmod 7", "incorrect"),
        ("4", r"3^{1000} \bmod 7", "correct"),
        (r"\Gamma(5)", "24", "correct"),
        (r"\zeta(2)", r"\frac{\pi^2}{6}", "correct"),
        (r"\varphi(12)", "4", "undecided"),
        (r"\sigma(6)", "12", "undecided"),
        (r"1+2+\dots+100", "5050", "undecided"),
        ("f(3)", "10", "undecided"),
        ("50 R 5", r"50 \text{ remainder } 5", "correct"),
        ("50 R 5", "50 R 6", "incorrect"),
        ("2516", "2516_8", "undecided"),
        ("2516_8", "1247", "incorrect"),
    ],
)
def test_incorrect_is_proven(gold: str, answer: str, expected: str) -> None:
    assert compare_answers(gold, answer).status == expected


def test_a_response_with_an_empty_formula_has_a_verdict() -> None:
    verdict = MathGrader().grade([GradingRequest("20 (years old)", "So it is $ $.")])[0]
    assert not verdict.rule.endswith("error")
