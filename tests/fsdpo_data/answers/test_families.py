"""Families of answers: windows of parameters, dots, repetitions, constants, spellings."""

import pytest

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import grade_response
from fsdpo_data.answers.parsing.read import read_answer


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        # Steps and kinks between and far from the random sample points.
        (r"\lfloor \log_2 n\rfloor+1", r"\lceil \log_2(n+1)\rceil", r"\lceil \log_2 n\rceil"),
        ("|x+100|-100", "|-x-100|-100", "|x+101|-101"),
        (r"\lfloor x\rfloor", r"-\lceil -x\rceil", r"\lceil x\rceil-1"),
        # Dots.
        (r"\frac{n(n+1)}{2}", r"1+2+\cdots+n", r"1+2+\cdots+(n-1)"),
        ("n^2", r"1+3+\dots+(2n-1)", r"1+3+\dots+(2n+1)"),
        ("n!", r"1\cdot2\cdot3\cdots n", r"2\cdot4\cdot6\cdots (2n)"),
        # Zeros, hyperbolic functions.
        ("0", r"\sin(\pi)", r"\sin(3.14)"),
        ("0", r"\cos(\pi/2)", r"\cos(\pi/3)"),
        (r"\frac{1}{\cosh x}", r"\operatorname{sech} x", r"\operatorname{csch} x"),
        # Repetitions, parameters, constants of integration.
        ("2, 5, 5", r"\lambda = 5, 2, 5", r"\lambda = 2, 2, 5"),
        (r"(4,1), (2+\pi,8), (2-\pi,8)", r"(4,1), (2\pm\pi,8)", r"(4,1), (3\pm\pi,8)"),
        ("x=y", "2x=2y", "ax=ay"),
        ("LCy''+y=0", "y''+y/(LC)=0", "Cy''+y=0"),
        ("SRMC=LRMC", "LRMC=SRMC", "SRAC=LRAC"),
        ("y=x^2", "y=x^2+C", "y=x^3+C"),
        ("e^{10x}=0", "2e^{10x}=0", "e^{10x}+C=0"),
        ("(x,2)", "(2x/2,2)", "(x+C,2)"),
        ("1", "t(g(16)) = 1", "t(g(16)) = 2"),
        # Forms of a gold.
        ("0.5 or 1/2", "1/2", "1/3"),
        (r"-6 \le x \le -2:[-6,-2]", "[-6,-2]", "(-6,-2)"),
        # Spellings of other languages and tools.
        ("50000", "5万", "5"),
        ("9", "9页", "8页"),
        ("Yes", "Да", "Нет"),
        ("No solution", "aucune solution", "une solution"),
        ("1/2", "**Answer: 1/2** 🎉", "**Answer: 1/3** 🎉"),
        (r"35.91 ^\circ C", r"35.91 ${ }^{\circ}\mathrm C$", r"35.92 ${ }^{\circ}\mathrm C$"),
        (r"\text{4:30 p.m.}", r"4{:}30\ \text{PM}", r"4{:}30\ \text{AM}"),
        ("nonlinear", r"\text{non-linear}", r"\text{linear}"),
        ("No solution : $\\oslash$", r"\varnothing", r"\text{all real numbers}"),
        (r"x = 2 \text{ (mod 5)}", r"x\equiv 2\pmod 5", r"x\equiv 3\pmod 5"),
        (r"\text{Yes}", r"\text{Yes, it is}", r"\text{No, wait: yes}"),
        # Points, and curves as sets of points.
        ("(4t,2t)", "(2t+2t,2t)", "(2t,t)"),
        ("(4,6)", "(1,2)+(3,4)", "(1,2)(3,4)"),
        ("(1,2),(3,4)", "x=1,y=2; x=3,y=4", "x=2,y=1; x=3,y=4"),
        ("(1,2),(3,4)", r"\{(x,y)\}=\{(3,4),(1,2)\}", r"\{(x,y)\}=\{(1,2)\}"),
        ("x^2+y^2=25", r"\left\{(x,y): x^2+y^2=25\right\}", r"\{(x,y): x^2+y^2<25\}"),
        # Sets of numbers without a variable.
        (r"[5,\infty)", "at least 5", "more than 5"),
        (r"(-\infty,6]", "6 or fewer", "6 or more"),
        (r"(-\infty,3]", "no more than 3", "no less than 3"),
        ("[0,1]", "from 0 to 1 inclusive", "between 0 and 1 exclusive"),
        ("at least 5", r"\ge 5", "5"),
        ("6", "6 apples", "at most 6"),
        # Labelled parts, definitions, and values that a name or a matrix has.
        (r"J: $4 \mathrm{hr}, \mathrm{S}: 14 \mathrm{hr}$", "S takes 14 hours, J takes 4 hours",
         "J takes 14 hours, S takes 4 hours"),
        (r"J: $4 \mathrm{hr}, \mathrm{S}: 14 \mathrm{hr}$", "S = 14 hr, J = 4 hr",
         "S = 4 hr, J = 14 hr"),
        (r"domain: $\mathbb{R}^{2}$, range: $[-1, \infty)$",
         r"range: [-1,\infty); domain: \mathbb R^2",
         r"domain: \mathbb R, range: [-1,\infty)"),
        (r"$\min$ at $x=-1, \max$ at $x=1$", "maximum at x = 1, minimum at x = -1",
         "maximum at x = -1, minimum at x = 1"),
        (r"\frac{2\pi}{\omega}", r"\frac{\tau}{\omega}, \tau=2\pi",
         r"\frac{\tau}{\omega}, \tau=\pi"),
        ("$h / r=2$", "2", "3"),
        (r"$B^{-1}=\begin{pmatrix}3&7\\5&12\end{pmatrix}$", "Matrix([[3, 7], [5, 12]])",
         "Matrix([[3, 5], [7, 12]])"),
        (r"(1+\sqrt3,0),(1-\sqrt3,0)", r"(1\pm\sqrt3,0)", r"(1\pm\sqrt2,0)"),
        # Lists of numbers without spaces, and "only".
        ("27,54,108,135", "135, 108, 54, 27", "27, 54108135"),
        ("1,3", r"$1$ and $3$ only", r"$3$ only"),
        # Code, and numbers of tools.
        (r"\lfloor\log_2 n\rfloor+1", "floor(log2(n)) + 1", "floor(log10(n)) + 1"),
        ("-12+15i", "-12+15j", "12+15j"),
        ("4343_6", "4343 in base six", "4343 in base seven"),
        (r"\sqrt6", "√6 (≈ 2.45)", "√7 (≈ 2.65)"),
        # Times.
        ("14:55", "14 h 55 min", "15 h 55 min"),
        ("Function", "a function", "not a function"),
        # Rates, and signs that do not depend on each other.
        ("2s", r"200\% \text{ of } s", r"20\% \text{ of } s"),
        ("20", r"25\% of 80", r"25\% of 8"),
        ("1.13e16", r"1.13\times10^{16} electrons/cm^3", r"1.13\times10^{15} electrons/cm^3"),
        (r"1+\sqrt2+\sqrt3, 1+\sqrt2-\sqrt3, 1-\sqrt2+\sqrt3, 1-\sqrt2-\sqrt3",
         r"x=1\pm\sqrt2\pm\sqrt3", r"x=2\pm\sqrt2\pm\sqrt3"),
        (r"\frac12", r"\frac12\text{ (or }0.5)", r"\frac12\text{ (or }0.6)"),
    ],
)  # fmt: skip
def test_families(gold, right, wrong):
    assert compare_answers(gold, right).status == "correct"
    assert compare_answers(gold, wrong).status != "correct"


def test_a_gold_without_a_unit_may_have_a_hidden_one():
    assert compare_answers("5.89e-7", "589 nm").status == "undecided"


def test_a_numbered_heading_is_not_an_answer_after_hashes():
    gold = read_answer("18")
    assert grade_response(gold, "#### 4. Solve for S\nThus S = 18.").status == "correct"
    assert grade_response(gold, "So S = 4.\n#### 18").status == "correct"


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        ("(1,2)+t(3,4)", ["x=4+3s, y=6+4s", "x=4+3s, y=6+5s", "(1,2)-s(6,8)", "(1,2)+s(3,-4)"]),
        ("x=1+t, y=2-t", ["x=t, y=3-t", "x=t, y=2-t"]),
        (r"(1,2,3)+t(4,5,6)", [r"\frac{x-1}{4}=\frac{y-2}{5}=\frac{z-3}{6}", "x-1=y-2=z-3"]),
        (r"(k\pi, 0), k \in \mathbb{Z}", [r"(n\pi+\pi, 0), n \in \mathbb{Z}"]),
        (r"\{2k \mid k \in \mathbb{Z}\}", [r"\{2k \mid k \in \mathbb{N}\}"]),
        ("4k+1", ["4m+1", "4m-3"]),
        (r"y=(c_1x+c_2)^2", [r"y=(Ax+B)^2"]),
    ],
)
def test_families_over_other_parameters_are_undecided(gold, answers):
    for answer in answers:
        assert compare_answers(gold, answer).status == "undecided"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2:30 PM", "half past two in the afternoon"),
        ("14:55", "five minutes to three in the afternoon"),
        ("(1,2)", "i+2j"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "2j+i"),
        ("1.5", "one point five"),
        ("y''(t)+y(t)=0", "y''+y=0"),
        ("y''+2y=0", "y''(t)+y(t)=0"),
    ],
)
def test_other_forms_that_are_not_read_are_undecided(gold, answer):
    assert compare_answers(gold, answer).status == "undecided"


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (r"(k\pi, 0), k \in \mathbb{Z}", r"(n\pi, 0), n \in \mathbb{Z}", "correct"),
        (r"(k\pi, 0), k \in \mathbb{Z}", r"(k\pi, 0), n \in \mathbb{Z}", "undecided"),
        ("a_n = 2n+1", r"a_n = 2n+1, n \in \mathbb{N}^*", "correct"),
        ("a_n = 2n+1", r"a_n = 2n-1, n \in \mathbb{N}^*", "incorrect"),
        (r"x=k\pi, k \in \mathbb{Z}", r"x=2k\pi, k \in \mathbb{Z}", "incorrect"),
        (r"x=k\pi, k \in \mathbb{Z}", r"x=\pi", "incorrect"),
        ("(2a, 3b)", "(2a, 4b)", "incorrect"),
    ],
)
def test_families_over_one_parameter_are_compared(gold, answer, expected):
    assert compare_answers(gold, answer).status == expected


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        # No solution of one side violates the other one.
        ("e^y=x+1", r"y=\ln(x+1)", "undecided"),
        ("xy=1", r"\frac1{xy}=1", "undecided"),
        ("y=Cx^2", "Cy=x^2", "undecided"),
        ("x^2+y^2=C", r"\frac12x^2+\frac12y^2=C", "undecided"),
        (r"\ln y=x+C", "y=Ce^x", "undecided"),
        (r"\sin x+C", r"\sin x-C", "undecided"),
        (r"\ln|x+1|+C", r"\ln|C(x+1)|", "undecided"),
        (r"x<-3\text{ or }x>1", "x^2+2x-3>0", "undecided"),
        ("[-1,1]", r"x^2\le1", "undecided"),
        # A solution violates the other side.
        ("e^y=x+1", r"y=\ln(x+2)", "incorrect"),
        ("xy=1", r"\frac1{xy}=2", "incorrect"),
        ("x^2+y^2=4", "x+y=2", "incorrect"),
        ("F=ma", "F=m/a", "incorrect"),
        ("y=Cx^2", "y=Cx^3", "incorrect"),
        ("x^2+y^2=C", "x^2-y^2=C", "incorrect"),
        (r"\ln y=x+C", "y=Ce^{2x}", "incorrect"),
        (r"\sin x+C", r"\cos x+C", "incorrect"),
        (r"x<-3\text{ or }x>1", "x^2+2x-3<0", "incorrect"),
        ("[-1,1]", "x^2<1", "incorrect"),
        ("x=5", "x=4", "incorrect"),
        ("y=2x+3", "y=2x+4", "incorrect"),
    ],
)
def test_equations_in_other_forms_differ_if_a_solution_shows_it(gold, answer, expected):
    assert compare_answers(gold, answer).status == expected
