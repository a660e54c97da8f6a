r"""Random and damaged texts: no text, however odd, may keep the grader from a verdict."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

#: Pieces of random texts: signs, commands, words, and characters that are rarely met.
_PIECES = r"""
    \frac \sqrt \sum_{k=1}^{n} \int_0^1 \lim_{x\to0} \begin{cases} \end{cases} \begin{pmatrix}
    \end{pmatrix} \pmod \bmod \cup \cap \in \notin \le \ge \neq \equiv \approx \pm \mp \infty \pi
    \sin \log_ \ln \max \min \gcd \binom \lfloor \rfloor | || ( ) [ ] { } \{ \} ^ _ ^{ _{ } & \\
    + - * / = < > , ; : . ! ' % $ ^\circ 0 1 2 7 10 0.5 1/3 3.14159 99999 e i k n x y z f(x) f'(x)
    c_1 C A B R 50R5 km h min cm mod or and if otherwise for all where \text{ \mathrm{ \boxed{
    \quad \, \! ∞ π ² ½ ≤ ∈ ℝ é 你 0e5 1e400 \pmod0 \frac{1}{0} 0^0 0/0 ...
""".split()  # noqa: SIM905
_MAX_PIECES = 14  #: Most pieces of a random text.
_FRAMES = ("{}", r"\boxed{{{}}}", "The answer is {}", "So it is ${}$.", "#### {}", "{}\n\n{}")


def damaged_pairs(
    golds: Sequence[str], count: int, rng: random.Random
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a gold and a response; both may be golds, damaged golds or random texts."""
    for _ in range(count):
        gold = _text(golds, rng)
        answer = _damage(gold, rng) if rng.random() < 0.5 else _text(golds, rng)
        yield gold, rng.choice(_FRAMES).replace("{}", answer).replace("{{", "{").replace("}}", "}")


def _text(golds: Sequence[str], rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(golds)
    if kind < 0.7:
        return _damage(rng.choice(golds), rng)
    pieces = rng.choices(_PIECES, k=rng.randint(1, _MAX_PIECES))
    return rng.choice(("", " ")).join(pieces)


def _damage(text: str, rng: random.Random) -> str:
    """Return a text after some insertions, deletions, repetitions and swaps."""
    for _ in range(rng.randint(1, 4)):
        start, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        part = text[start:end]
        choice = rng.randrange(5)
        if choice == 0:
            text = text[:start] + text[end:]
        elif choice == 1:
            text = text[:start] + rng.choice(_PIECES) + text[start:]
        elif choice == 2:
            text = text[:start] + part + part + text[end:]
        elif choice == 3:
            text = text[end:] + part + text[:start]
        else:
            text = text[:start] + part[::-1] + text[end:]
    return text[:600]
