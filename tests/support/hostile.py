r"""Texts meant to hang, crash, fool or take over a grader; used by tests and by the benchmark.

``ANSWERS`` stand where an answer stands (in a box), ``RESPONSES`` are whole responses. ``fuzz``
makes endless more of them from the same fragments.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

#: Code that would leave a file behind if anything ran it. ``{marker}`` is the file's path.
PAYLOADS = [
    "__import__('os').system('touch {marker}')",
    "__import__('pathlib').Path('{marker}').touch()",
    "open('{marker}','w')",
    "exec(\"open('{marker}','w')\")",
    "eval(\"open('{marker}','w')\")",
    "eval(compile(\"open('{marker}','w')\",'x','exec'))",
    "(lambda: open('{marker}','w'))()",
    "[c for c in ().__class__.__base__.__subclasses__()][0] or open('{marker}','w')",
    "\\frac{{open('{marker}','w')}}{{1}}",
    "1+open('{marker}','w').close()",
    'S(\'open("{marker}","w")\')',
    "os.system('touch {marker}')",
    "\\write18{{touch {marker}}}",
    "\\immediate\\openout1={marker}",
    "\\input{{{marker}}}",
    "`touch {marker}`",
    "$(touch {marker})",
    "'; touch {marker}; '",
    "__builtins__.open('{marker}','w')",
    "getattr(__builtins__,'open')('{marker}','w')",
    "cos\nposix\nsystem\n(S'touch {marker}'\ntR.",
    "{{{{open('{marker}','w')}}}}",
    "f\"{{open('{marker}','w')}}\"",
]

ANSWERS = [
    # numbers that do not fit anywhere
    "9^{9^{9^{9}}}",
    "9**9**9**9",
    "2^{2^{2^{2^{2^{2^{2}}}}}}",
    "10^{10^{10}}",
    "10^{-10^{10}}",
    "(10^{10^{9}})^{10^{9}}",
    "1e999999999",
    "1e-999999999",
    "1e99999999999999999999",
    "4.5\\times10^{99999999999}",
    "(1/3)^{10^9}",
    "2^{1/10^{9}}",
    "0.1^{999999999}",
    "7^{7^{7^{7^{7}}}} \\mod 10",
    "\\left(\\frac{1}{2}\\right)^{-10^{12}}",
    "(-1)^{10^{30}+1}",
    "(10^9)!",
    "10^9!",
    "factorial(10**9)",
    "((((9!)!)!)!)!",
    "9!!!!!!!!!!!!!!!!!!",
    "\\frac{(10^9)!}{(10^9-1)!}",
    "\\binom{10^9}{5 \\cdot 10^8}",
    "\\binom{10^{18}}{10^{17}}",
    "C_{1000000000}^{500000000}",
    "\\binom{\\binom{100}{50}}{\\binom{100}{49}}",
    "\\prod_{k=1}^{10^9} k",
    "\\sum_{k=1}^{10^{12}} \\frac{1}{k}",
    "\\sum_{i=1}^{10^6}\\sum_{j=1}^{10^6} ij",
    "\\int_0^{10^9} e^{x^2} dx",
    "\\lim_{n\\to\\infty}\\left(1+\\frac1n\\right)^n",
    "\\gcd(10^{1000000}, 6^{1000000})",
    "\\log_{10^{10^9}} 2",
    "\\log(\\log(\\log(10^{10^{10}})))",
    "\\sin(10^{300})",
    "\\tan(\\frac{\\pi}{2})",
    "e^{e^{e^{e^{e}}}}",
    "i^{i^{i^{i^{i}}}}",
    "\\Gamma(10^{9})",
    "0/0",
    "\\frac{1}{0}",
    "\\frac{0}{0}",
    "0^{0}",
    "0^{-1}",
    "\\log 0",
    "1/(1-0.\\overline{9})",
    "\\sqrt[0]{2}",
    "\\sqrt[1000000000]{2}",
    "\\frac{1}{\\infty-\\infty}",
    "nan",
    "inf",
    "-inf",
    "1_000_000",
    "0x" + "f" * 5000,
    "9" * 1_000_000,
    "1." + "3" * 1_000_000,
    "0." + "0" * 100_000 + "1",
    "1" + ",000" * 100_000,
    "0.\\overline{" + "123456789" * 10_000 + "}",
    "9" * 5000 + "_{7}",
    "9" * 9_000 + "/" + "7" * 900,
    "(" + "9" * 4_000 + ")^{" + "9" * 4_000 + "}",
    "1/" * 3000 + "1",
    "-" * 9_000 + "1",
    "+-" * 4_000 + "1",
    "1" + "!" * 9_000,
    "2^" * 3_000 + "2",
    "1" + "+1" * 4_500,
    "1" + "*9" * 4_500,
    "9" + "^{9}" * 2_000,
    "1" + " 1" * 4_500,
    # algebra that explodes when expanded
    "(x+1)^{1000}(x-1)^{1000}",
    "(x+y+z+w)^{500}",
    "(x+1)^{10^{9}}",
    "((x+1)^{99}+1)^{99}",
    "x^{x^{x^{x^{x}}}}",
    "\\cos(" * 60 + "x" + ")" * 60,
    "\\sin " * 2_000 + "x",
    "\\sqrt{1+" * 90 + "x" + "}" * 90,
    "\\frac{1}{1+" * 90 + "x" + "}" * 90,
    "\\pm 1" + " \\pm 2" * 60,
    "\\pm\\sqrt{\\pm " * 40 + "2" + "}" * 40,
    "\\{" + ",".join(f"\\pm {i}" for i in range(400)) + "\\}",
    "+".join(f"x_{{{i}}}" for i in range(900)),
    "*".join(f"(x+{i})" for i in range(900)),
    "(a+b)(c+d)(e+f)(g+h)(k+l)(m+n)(p+q)(r+s)(t+u)(v+w)" * 20,
    "=".join("abcdefgh" * 100),
    "<".join(str(i) for i in range(2_000)),
    "|" * 5_000,
    "|x|" * 2_000,
    # size and depth
    "(" * 100_000,
    "(" * 100_000 + "1" + ")" * 100_000,
    "(" * 300 + "1" + ")" * 300,
    "(" * 4_000 + "1" + ")" * 4_000,
    "{" * 100_000 + "1" + "}" * 100_000,
    "[" * 50_000 + "]" * 50_000,
    "\\{" * 20_000,
    "\\left(" * 20_000,
    "\\frac{" * 20_000,
    "\\frac" * 20_000,
    "\\sqrt" * 20_000 + "2",
    "\\sqrt{" * 3_000 + "2" + "}" * 3_000,
    "\\text{" * 2_000 + "a" + "}" * 2_000,
    "\\boxed{" * 5_000 + "1" + "}" * 5_000,
    "x_{" * 3_000 + "1" + "}" * 3_000,
    "^" * 9_000,
    "_" * 9_000,
    "\\" * 9_999,
    "$" * 9_999,
    "&" * 9_999,
    "%" * 9_999,
    "," * 9_999,
    ";" * 9_999,
    ":" * 9_999,
    "=" * 9_999,
    " " * 9_999 + "1",
    "\\ " * 4_999,
    "\\\\" * 4_999,
    "1," * 200_000,
    "(1,2)," * 1_500,
    "{" + "1," * 4_900 + "1}",
    ",".join(str(i) for i in range(2_000)),
    ",".join(f"\\sqrt{{{i}}}" for i in range(900)),
    "[0,1]" + "\\cup[0,1]" * 900,
    "\\cup".join(f"({i},{i + 1})" for i in range(900)),
    "\\begin{pmatrix}" + "&".join("1" * 4_000) + "\\end{pmatrix}",
    "\\begin{pmatrix}" + "\\\\".join(["1&2&3"] * 1_200) + "\\end{pmatrix}",
    "\\begin{pmatrix}" * 1_000,
    "\\begin{" + "a" * 9_000 + "}",
    " and ".join(["1"] * 1_500),
    " or ".join(str(i) for i in range(1_200)),
    "one hundred " * 800,
    "million " * 1_200,
    "million billion trillion " * 300,
    "a" * 9_999,
    "a b " * 2_400,
    "very " * 1_900 + "long",
    "12:30 " * 1_600,
    "1:" * 4_900 + "1",
    "5 cm " * 1_900,
    "5 " + "cm" * 4_900,
    "5 m" + "/s" * 4_000,
    "5 " + "square " * 1_400 + "feet",
    "\\mathrm{~m}" * 900,
    "x \\in " * 1_600 + "[0,1]",
    "\\{x \\mid " * 1_000 + "x>1" + "\\}" * 1_000,
    "\\mathbb{R}" + "\\setminus\\{1\\}" * 600,
    # macros
    "\\def\\a{\\a\\a}\\a",
    "\\def\\x{\\x}\\x",
    "\\newcommand{\\b}{\\b\\b}\\b",
    "\\let\\frac\\relax\\frac{1}{2}",
    "\\loop\\iftrue\\repeat",
    "\\csname a\\endcsname",
    "\\catcode`\\{=12 {",
    "\\expandafter" * 1_000,
    # letters of other worlds
    "\x00",
    "4\x002",
    "\x00" * 9_999,
    "\ud800",
    "4\udfff2",
    "\ud83d" * 500,
    "\u202e42\u202c",
    "\u200b42\ufeff",
    "\u2066" * 5_000 + "42",
    "e\u0301" * 3_000,
    "1" + "\u0301" * 9_000,
    "١٢٣",
    "４２",
    "𝟒𝟐",
    "Ⅻ",
    "²" * 3_000,
    "½" * 3_000,
    "√" * 5_000 + "2",
    "π" * 5_000,
    "∞" * 5_000,
    "\U0010ffff",
    "\ufdfa" * 500,
    "ß" * 4_000,
    "İ" * 4_000,
    "\r\n" * 4_000,
    "\x1b[31m42\x1b[0m",
    "\u2028\u2029\x85",
    # things a careless reader evaluates
    "sympify('1+1')",
    "S.One/0",
    "Symbol('x')",
    "lambda: 0",
    "print(1)",
    "exit()",
    "import os",
    "while True: pass",
    "[1]*10**9",
    "'a'*10**10",
    "range(10**12)",
    "sum(range(10**9))",
    "x.__class__",
    "%s%s%s%n",
    "{0.__class__}",
    "../../../../etc/passwd",
    "<script>alert(1)</script>",
]

MEGABYTE = 1_000_000
_UNITS = [
    "{", "}", "\\boxed{", "\\boxed ", "\\boxed{1}", "\\boxed", "boxed", "a", "\n", " ", "$", "1,",
    "- ", "* ", "answer is ", "The answer is ", "The answer is 5. ", "####", "#### 5\n", "A:",
    "\nQ: ", "Answer: ", "final answer is $", "\\frac{", "\\(", "\\[", "**", "(", "9", ".", "?",
    "x=1 ", "\\\\", "\x00", "\ud800", "é", "<|im_end|>", "Question: 1\n", "1 + 1 = 2\n", "or ",
    "\\fbox{", "\\text{and}", "I hope ", "\t", "\r", "| ", "5 or 6, ", "\u202e",
]  # fmt: skip
RESPONSES = [
    *(unit * (MEGABYTE // len(unit)) for unit in _UNITS),
    "\\boxed{" + "9" * MEGABYTE + "}",
    "\\boxed{" + "{" * (MEGABYTE // 2) + "}" * (MEGABYTE // 2) + "}",
    "The answer is " + "9" * MEGABYTE,
    "The answer is " + "1," * (MEGABYTE // 2),
    "#### " + "9" * MEGABYTE,
    "$" + "x" * MEGABYTE + "$",
    "\\boxed{5}" + " " * MEGABYTE,
    " " * MEGABYTE + "\\boxed{5}",
    "a\n" * (MEGABYTE // 2) + "The answer is 5.",
    ("word " * 20 + "\n") * 9_000 + "\\boxed{5}",
    "\\boxed{5} \\boxed{6} " * 50_000,
    "\\boxed{3}" + " -3 is not valid" * 1_200,
    "\\boxed{3}. For n = 1 this is not true" + ", and that is wrong" * 1_000,
    "#### ab" + ":" * 9_900 + "c 5\nx",
]


def payloads(marker: str) -> list[str]:
    """Return the code payloads, which would make the file ``marker``."""
    return [text.format(marker=marker) for text in PAYLOADS]


_ATOMS = [
    "0", "1", "2", "7", "12", "-3", "0.5", ".25", "1,000", "1e5", "x", "y", "n", "a_1", "i", "e",
    "\\pi", "\\infty", "\\theta", "\\alpha", "E_{1}", "\\emptyset", "\\mathbb{R}", "5 cm", "\\$5",
    "25\\%", "30^\\circ", "3:30 p.m.", "22:15", "25_6", "(D)", "\\text{even}", "half", "twelve",
    "two thirds", "½", "∞", "√3", "−1", "10^{9}", "9!", "\\binom{9}{4}", "0.\\overline{3}",
    "2\\frac{1}{3}", "\\ldots", "Monday", "July 4", "", "+", "-", "\\pm", "\\cdot", "/", "^", "_",
    "!", "=", "<", "\\le", "\\ge", "\\ne", "\\in", "\\cup", "\\cap", "\\setminus", "\\mid", "&",
    "\\\\", ",", ";", ":", "|", "and", "or", "$", "\\text{", "}", "{", "(", ")", "[", "]", "\\{",
    "\\}", "\\left", "\\right", "\\frac", "\\sqrt", "\x00", "\ud800", "\u202e", "\\def\\x{\\x}",
]  # fmt: skip
_SHAPES = [
    "{0}", "({0})", "{0}+{1}", "{0}-{1}", "{0}{1}", "{0} {1}", "{0}/{1}", "{0}^{{{1}}}",
    "{0}_{{{1}}}", "\\frac{{{0}}}{{{1}}}", "\\sqrt{{{0}}}", "\\sqrt[{0}]{{{1}}}", "{0}, {1}",
    "({0}, {1})", "[{0}, {1})", "\\{{{0}, {1}\\}}", "{0} = {1}", "{0} < {1}", "{0} \\le {1}",
    "{0} \\cup {1}", "|{0}|", "{0}!", "\\sin({0})", "\\log_{{{0}}} {1}", "e^{{{0}}}",
    "\\begin{{pmatrix}} {0} & {1} \\\\ {1} & {0} \\end{{pmatrix}}", "\\text{{{0}}}",
    "\\binom{{{0}}}{{{1}}}",
    "x \\in {0}", "\\{{x \\mid {0}\\}}", "{0} \\text{{ or }} {1}", "{0} \\times 10^{{{1}}}",
    "${0}$", "\\left({0}\\right)", "{0} \\pm {1}", "{0}\\%", "{0}:{1}", "{0} cm", "**{0}**",
    "\\lfloor {0} \\rfloor", "{0}^\\circ", "\\overline{{{0}}}", "{0} \\cdot {1}", "-{0}", "{0}'",
    "\\sum_{{k=1}}^{{{0}}} {1}", "\\int {0} dx", "({0})({1})", "{0}{0}{1}", "f({0}) = {1}",
]  # fmt: skip


def fuzz(seed: int, count: int) -> Iterator[str]:
    """Yield ``count`` texts: expressions, broken expressions, and noise."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.random()
        if kind < 0.6:
            yield _expression(rng, rng.randrange(1, 6))
        elif kind < 0.8:
            yield _damage(rng, _expression(rng, rng.randrange(1, 5)))
        elif kind < 0.95:
            yield " ".join(rng.choice(_ATOMS) for _ in range(rng.randrange(12)))
        else:
            yield "".join(chr(_codepoint(rng)) for _ in range(rng.randrange(30)))


def _expression(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(_ATOMS)
    shape = rng.choice(_SHAPES)
    parts = [_expression(rng, rng.randrange(depth)) for _ in range(2)]
    return shape.format(*parts)[:4_000]


def _damage(rng: random.Random, text: str) -> str:
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(text) + 1)
        if rng.random() < 0.5:
            text = text[:position] + text[position + 1 :]
        else:
            text = text[:position] + rng.choice(_ATOMS) + text[position:]
    return text


def _codepoint(rng: random.Random) -> int:
    return rng.choice([rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000)])
