r"""Typed answers with rewrites that keep and that break their meaning: one kind a block, as data.

``KINDS`` maps a kind to its lines. The first line writes the gold; ``=`` lines write it again with
the same meaning, ``!`` lines with another one. Names between at signs are filled in: ``@a@`` and
``@b@`` are two different random numbers, ``@a1@`` is the next one, ``@a2@`` twice,
``@a3@`` ten times as much; ``@u@`` … are what ``_WORDS`` lists.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

KINDS: dict[str, str] = {
    "integer": r"""@a@
        = $@a@$ | x = @a@ | \boxed{@a@} | @a@.0 | \frac{@a2@}{2} | \text{@a@} | {@a@} | @a@ apples
        ! @a1@ | -@a@ | @a@.5 | @a@\pi | \frac{1}{@a@} | @a@ \text{ or } @b@ | @a@, @b@ | @a3@
        ! \sqrt{@a@} = @b@ | \log_2 x = @a@ | |x| = @a@ | \sqrt{y} = @a@ | y^2 = @a@ | @a@x""",
    "fraction": r"""\frac{@a@}{197}
        = @a@/197 | \dfrac{@a2@}{394} | x=\frac{@a@}{197} | \tfrac{@a@}{197} | -\frac{-@a@}{197}
        ! \frac{197}{@a@} | -\frac{@a@}{197} | \frac{@a1@}{197} | \frac{@a@}{198}
        ! \frac{@a@}{197}\%""",
    "percentage": r"""@a@\%
        = @a@% | @a@ percent | @a@ per cent | @a@/100 | \frac{@a2@}{200} | x = @a@\% | @a@
        ! @a@00 | @a1@\% | -@a@\% | @a@.5\% | @a@00\% | @a@/1000""",
    "share": r"""0.@p@
        = @p@\% | \frac{@p@}{100} | .@p@ | @p@ percent
        ! 0.@p@\% | @p@ | @p@00\% | -0.@p@ | 0.0@p@""",
    "length": r"""@a@ \text{ km}
        = @a@ km | @a@ kilometers | @a@000 m | @a@\,\mathrm{km} | d = @a@ \text{ km} | @a@
        ! @a@ m | @a@ \text{ km}^2 | @a@ km/h | d = @a@ m | @a@ hours | @a1@ km | @a@ mm | \$@a@""",
    "speed": r"""v = @a@ \text{ m/s}
        = @a@ \text{ m s}^{-1} | @a@ m/s | v=@a@\ \mathrm{m/s} | @a@ meters per second
        ! v = @a@ \text{ km/h} | @a@ m | v = @a@ \text{ m/s}^2 | @a@ s/m | v = @a@ \text{ m}""",
    "micro": r"""@a@ \mu\mathrm{m}
        = @a@ µm | @a@ μm | @a@ micrometers | @a@ \times 10^{-6} \text{ m} | @a@\,\mu\text{m}
        ! @a@ \text{ mm} | @a@ nm | @a@ \text{ m} | @a@ µs | @a1@ µm""",
    "density": r"""@a@ \text{ cm}^{-3}
        = @a@ cm⁻³ | @a@ /cm^3 | @a@\,\mathrm{cm}^{-3} | @a@ \text{ per cm}^3
        ! @a@ \text{ cm}^{3} | @a@ /cm^2 | @a@ \text{ m}^{-3} | @a@ /mm^3""",
    "bound of a length": r"""x > @a@ \text{ cm}
        = @a@ \text{ cm} < x | x > @a@ cm
        ! x > @a@ \text{ m} | x < @a@ \text{ cm} | x \ge @a@ \text{ cm} | x > @a@ \text{ kg}""",
    "money": r"""\$@a@
        = @a@ dollars | $@a@ | \$@a@.00 | @a@ USD | USD @a@ | @a@00 cents
        ! @a@ cents | €@a@ | -\$@a@ | \$@a@.50 | @a@ yuan | @a@\%""",
    "direction": r"""@a@ @u@ @d@
        = @a@ @u@ @d@.
        ! @a@ @u@ @e@ | @a1@ @u@ @d@""",
    "degrees": r"""@a@^\circ
        = @a@° | @a@ degrees | @a@^{\circ} | @a@^{\text{o}} | \angle ABC = @a@^\circ | @a@^\circ 0'
        ! @a1@^\circ | @a@ \text{ rad} | -@a@^\circ | @a@^\circ 30' | @a@^\circ C \cdot 2""",
    "congruence": r"""x \equiv @a@ \pmod{61}
        = x \equiv @a@ (mod 61) | x \equiv @a@ + 61 \pmod{61} | x = 61k + @a@, k \in \mathbb{Z}
        = @a@ \pmod{61} | x \equiv @a@ \bmod 61
        ! x \equiv @a@ \pmod{67} | x \equiv @a1@ \pmod{61} | x = 67k + @a@, k \in \mathbb{Z}
        ! x \equiv -@a@ \pmod{67} | y \equiv @a@ \pmod{61} | @a@ \pmod{67}""",
    "interval": r"""[@m@, @n@)
        = @m@ \le x < @n@ | x \in [@m@,@n@) | \{x \mid @m@ \le x < @n@\} | \left[@m@, @n@\right)
        = x \ge @m@ \text{ and } x < @n@ | [@m@, @n@[
        ! (@m@, @n@) | [@m@, @n@] | (@m@, @n@] | [@m@, @n@1) | @m@ < x < @n@ | [@m@, \infty)
        ! x < @m@ \text{ or } x \ge @n@""",
    "union": r"""(-\infty, @m@) \cup (@n@, \infty)
        = x < @m@ \text{ or } x > @n@ | (@n@, \infty) \cup (-\infty, @m@) | x<@m@ ∨ x>@n@
        = \mathbb{R} \setminus [@m@, @n@]
        ! (-\infty, @m@) \cap (@n@, \infty) | (-\infty, @m@] \cup (@n@, \infty) | (@m@, @n@)
        ! x < @m@ | x \le @m@ \text{ or } x > @n@ | \mathbb{R} \setminus (@m@, @n@)""",
    "punctured": r"""x \neq @a@
        = \mathbb{R} \setminus \{@a@\} | all real numbers except @a@ | (-\infty,@a@)\cup(@a@,\infty)
        ! x = @a@ | x \neq @b@ | \mathbb{R} | all real numbers except @b@ | x > @a@""",
    "set": r"""\{@a@, @b@, 61\}
        = @b@, 61, @a@ | \{61, @a@, @b@\} | x = @a@, @b@, 61 | @a@, @b@ and 61
        = x = @a@ \text{ or } x = @b@ \text{ or } x = 61
        ! @a@, @b@ | \{@a@, @b@, 62\} | (@a@, @b@, 61) | @a@ + @b@ + 61 | @a@, @b@, 61, 62""",
    "pair of roots": r"""x_1 = @m@, x_2 = @n@
        = @m@, @n@ | x_1, x_2 = @m@, @n@ | x = @m@ \text{ or } x = @n@ | \{@n@, @m@\}
        ! @m@ | x_1 = @n@1, x_2 = @m@ | @m@, -@n@""",
    "point": r"""(@m@, @n@)
        = \left(@m@, @n@\right) | x = @m@, y = @n@ | P(@m@, @n@)
        ! (@n@, @m@) | [@m@, @n@] | \{@m@, @n@\} | (@m@, @n@, 0) | (@m@, -@n@)""",
    "vector": r"""\langle @m@, @n@, 61 \rangle
        = @m@\mathbf{i} + @n@\mathbf{j} + 61\mathbf{k} | ⟨@m@, @n@, 61⟩ | (@m@, @n@, 61)^T
        = @m@\hat{i} + @n@\hat{j} + 61\hat{k} | \begin{pmatrix} @m@ \\ @n@ \\ 61 \end{pmatrix}
        ! @n@\mathbf{i} + @m@\mathbf{j} + 61\mathbf{k} | \langle @m@, @n@, 62 \rangle
        ! \langle @m@, @n@ \rangle | @m@\mathbf{i} - @n@\mathbf{j} + 61\mathbf{k}""",
    "matrix": r"""\begin{pmatrix} @m@ & @n@ \\ 61 & 0 \end{pmatrix}
        = \begin{bmatrix} @m@ & @n@ \\ 61 & 0 \end{bmatrix} | [[@m@, @n@], [61, 0]]
        = \begin{pmatrix} @m@ & 61 \\ @n@ & 0 \end{pmatrix}^T
        ! \begin{pmatrix} @m@ & 61 \\ @n@ & 0 \end{pmatrix} | [[@m@, @n@], [61, 1]]
        ! \begin{vmatrix} @m@ & @n@ \\ 61 & 0 \end{vmatrix}""",
    "line": r"""y = @a@x + @b@
        = @a@x - y + @b@ = 0 | y - @b@ = @a@x | f(x) = @a@x + @b@ | @a@x + @b@
        ! y = @a@x - @b@ | y = @a1@x + @b@ | y = @b@x + @a@ | y < @a@x + @b@ | y = @a@x^2 + @b@
        ! x = @a@y + @b@ | y = @a@z + @b@""",
    "polynomial": r"""x^2 + @a@x + @b@
        = @b@ + @a@x + x^2 | x(x + @a@) + @b@ | x^{2}+@a@\cdot x+@b@ | x² + @a@x + @b@
        ! x^2 - @a@x + @b@ | x^3 + @a@x + @b@ | x^2 + @b@x + @a@ | z^2 + @a@z + @b@
        ! x^2 + @a@x + @b@ = 0 | (x^2 + @a@x + @b@)^2""",
    "logarithm": r"""\log_{@a@} x
        = \frac{\ln x}{\ln @a@} | \log_{@a@}(x)
        ! \log_{@a1@} x | \log_{@a@} y | \log_{@a@} (x+1) | \ln x
        ! \log_x @a@ | \log_{@a@} x = 2""",
    "equation of a logarithm": r"""\log_{@a@} x = 2
        = 2 = \log_{@a@} x
        ! \log_{@a1@} x = 2 | \log_{@a@} y = 2 | \log_{@a@} x = 3 | \log_{@a@} x < 2""",
    "value of a function": r"""f(@a@) = @b@
        = @b@ | f(@a@)=@b@.0
        ! f(@a1@) = @b@ | g(@a@) = @b@ | f(@a@) = @b1@ | f(@a@)""",
    "function at a name": r"""y = g(a) + @a@
        = y - @a@ = g(a)
        ! y = g(b) + @a@ | y = h(a) + @a@ | y = g(a) + @a1@ | y = g(2a) + @a@""",
    "probability": r"""P(A \mid B) = \frac{@a@}{61}
        = \frac{@a@}{61} | @a@/61 | P(A|B) = \frac{@a@}{61}
        ! P(A \mid B) = \frac{@a@}{62} | \frac{61}{@a@} | -\frac{@a@}{61} | P(A|B)""",
    "sum": r"""\sum_{k=1}^{n} (k^2 + @a@)
        = \sum_{j=1}^{n} (j^2 + @a@) | \sum_{i=1}^{n} (i^2 + @a@)
        = \frac{n(n+1)(2n+1)}{6} + @a@ n
        ! \sum_{k=1}^{n} (k^2 + @a1@) | \sum_{k=1}^{n-1} (k^2 + @a@) | \prod_{k=1}^{n} (k^2 + @a@)
        ! \sum_{k=0}^{n} (k^2 + @a@) | \sum_{k=1}^{n} (k^3 + @a@) | \sum_{k=1}^{m} (k^2 + @a@)""",
    "sum of a sequence": r"""T = \sum_{k=1}^{@a@} a_k
        = T = \sum_{i=1}^{@a@} a_i | \sum_{k=1}^{@a@} a_k
        ! T = \sum_{k=1}^{@a@} b_k | T = \sum_{k=1}^{@a1@} a_k | T = \prod_{k=1}^{@a@} a_k""",
    "integral": r"""\int_0^{@a@} f(x) \, dx
        = \int_0^{@a@} f(t) \, dt | \int_{0}^{@a@} f(x) dx
        ! \int_0^{@a1@} f(x) \, dx | \int_0^{@a@} g(x) \, dx | \int_1^{@a@} f(x) \, dx""",
    "antiderivative": r"""\frac{x^2}{2} + @a@ x + C
        = \frac{x^2}{2} + @a@x + c | \frac{x^2}{2} + @a@x + K | \frac{(x + @a@)^2}{2} + C
        = \frac{1}{2}x^2 + @a@x + C_1
        ! \frac{x^2}{2} + @a1@ x + C | \frac{x^3}{2} + @a@ x + C | \frac{x^2}{2} - @a@ x + C
        ! \frac{x^2}{2} + @a@ x + 5""",
    "general solution": r"""y = C_1 e^{@a@x} + C_2 e^{-x}
        = y = A e^{@a@x} + B e^{-x} | y = c_2 e^{@a@x} + c_1 e^{-x} | y = C_2 e^{-x} + C_1 e^{@a@x}
        ! y = C_1 e^{@a1@x} + C_2 e^{-x} | y = C_1 e^{@a@x} | y = C_1 e^{@a@x} + C_1 e^{-x}
        ! y = e^{@a@x} + C_2 e^{-x} | y = C_1 e^{@a@x} + C_2 e^{x}""",
    "periodic": r"""x = \frac{\pi}{@a@} + 2k\pi, k \in \mathbb{Z}
        = x = \frac{\pi}{@a@} + 2n\pi, n \in \mathbb{Z} | x = \frac{\pi}{@a@} + 2k\pi (k \in Z)
        = \frac{\pi}{@a@} + 2k\pi, k∈\mathbb{Z} | x = \frac{\pi}{@a@} - 2\pi m, m \in \mathbb{Z}
        ! x = \frac{\pi}{@a@} + k\pi, k \in \mathbb{Z}
        ! x = \frac{\pi}{@a1@} + 2k\pi, k \in \mathbb{Z}
        ! x = -\frac{\pi}{@a@} + 2k\pi, k \in \mathbb{Z} | x = \frac{\pi}{@a@}
        ! y = \frac{\pi}{@a@} + 2k\pi, k \in \mathbb{Z}""",
    "sequence": r"""a_n = @a@n + @b@
        = a_n = @a@n + @b@, n \in \mathbb{N}^* | a_n = @a@n+@b@ (n \in N^*) | @a@n + @b@
        ! a_n = @a@n - @b@ | a_n = @a1@n + @b@ | b_n = @a@n + @b@ | a_{n+1} = @a@n + @b@""",
    "cases": r"""f(x) = \begin{cases} x + @a@ & x > 1 \\ @b@ & x \le 1 \end{cases}
        = f(x) = \begin{cases} @b@, & \text{if } x \le 1 \\ x + @a@, & \text{if } x > 1 \end{cases}
        = \begin{cases} x + @a@ & x > 1 \\ @b@ & \text{otherwise} \end{cases}
        ! f(x) = \begin{cases} x + @a@ & x < 1 \\ @b@ & x \ge 1 \end{cases}
        ! f(x) = \begin{cases} x + @a1@ & x > 1 \\ @b@ & x \le 1 \end{cases}
        ! f(x) = \begin{cases} @b@ & x > 1 \\ x + @a@ & x \le 1 \end{cases}""",
    "connective": r"""@p@ \wedge @q@
        = @q@ \land @p@ | @p@ ∧ @q@
        ! @p@ \vee @q@ | @p@ ∨ @q@ | @p@ \to @q@ | @p@ \wedge \neg @q@ | @p@""",
    "implication": r"""@p@ \to @q@
        = @p@ \rightarrow @q@ | @p@ → @q@
        ! @q@ \to @p@ | @p@ \wedge @q@ | @p@ \leftrightarrow @q@ | \neg @p@ \to @q@""",
    "quantifier": r"""\forall x \in \mathbb{R}, x^2 + @a@ > 0
        = ∀x∈\mathbb{R}, x^2 + @a@ > 0
        ! \exists x \in \mathbb{R}, x^2 + @a@ > 0 | \forall x \in \mathbb{R}, x^2 + @a@ < 0""",
    "segments": r"""@P@@Q@ = @Q@@R@
        = @Q@@R@ = @P@@Q@ | @Q@@P@ = @R@@Q@
        ! @P@@S@ = @S@@R@ | @P@@Q@ = @Q@@S@ | @P@@Q@ = 2@Q@@R@ | @P@@R@ = @Q@@R@""",
    "parallels": r"""@P@@Q@ \parallel @R@@S@
        = @R@@S@ \parallel @P@@Q@
        ! @P@@Q@ \perp @R@@S@ | @P@@R@ \parallel @Q@@S@ | @P@@Q@ = @R@@S@""",
    "triangles": r"""\triangle @P@@Q@@R@ \cong \triangle @S@@R@@Q@
        = △@P@@Q@@R@ ≅ △@S@@R@@Q@
        ! \triangle @P@@Q@@R@ \sim \triangle @S@@R@@Q@
        ! \triangle @P@@Q@@R@ \cong \triangle @S@@Q@@R@""",
    "subset": r"""@P@ \subset @Q@
        = @Q@ \supset @P@
        ! @Q@ \subset @P@ | @P@ \supset @Q@ | @P@ \cap @Q@ | @P@ \cup @Q@ | @P@ = @Q@""",
    "statements": r"""②④
        = ②, ④ | ④② | ②和④ | 2 and 4 | (2)(4)
        ! ②③ | ②③④ | ② | 24 | ①②""",
    "base": r"""@o@7_8
        = @o@7_{8} | (@o@7)_8
        ! @o@7_9 | @o@6_8 | @o@7_{16}""",
    "ratio": r"""@a@:61
        = @a@ : 61 | @a@ to 61 | \frac{@a@}{61} | @a2@:122
        ! 61:@a@ | @a1@:61 | @a@:61:1""",
    "time": r"""@h@:45 p.m.
        = @h@:45 pm | @h@:45 PM
        ! @h@:45 a.m. | @h@:46 p.m. | @h@:15 p.m.""",
    "scientific": r"""@a@.5 \times 10^{7}
        = @a@5000000 | @a@.5e7 | @a@.5 × 10^7 | @a@.5 \cdot 10^{7}
        ! @a@.5 \times 10^{8} | @a@.5 \times 10^{-7} | @a@.5 | -@a@.5 \times 10^7""",
    "decimal comma": r"""@a@{,}25
        = @a@.25 | $@a@{,}25$
        ! @a@{,}250 | @a@25 | @a@.26 | @a@, 25 | -@a@.25""",
    "complex": r"""@a@ + @b@i
        = @b@i + @a@ | @a@+@b@ i | z = @a@ + @b@i
        ! @a@ - @b@i | @b@ + @a@i | @a@ + @b@ | @a@ + @b1@i""",
    "radical": r"""@a@\sqrt{61}
        = @a@√61 | @a@ \cdot 61^{1/2} | \sqrt{61} \cdot @a@ | @a@\sqrt{61}.
        ! @a@\sqrt[3]{61} | @a@\sqrt{62} | -@a@\sqrt{61} | \sqrt{@a@ \cdot 61} | @a@ + \sqrt{61}""",
    "trigonometric": r"""@a@\sin x
        = @a@\sinx | @a@ \sin(x) | \sin x \cdot @a@
        ! @a@\cos x | @a@\sin y | @a@\sin 2x | @a1@\sin x | @a@\sin^2 x""",
    "choice": r"""@C@
        = (@C@) | @C@. | \text{@C@} | Option @C@ | \textbf{(@C@)} | **@C@** | (@C@) @a@
        ! @D@ | (@D@) | @C@, @D@ | @C@ or @D@ | not @C@""",
    "condition": r"""necessary but not sufficient
        = necessary but not sufficient condition | a necessary but not sufficient condition
        ! sufficient but not necessary | necessary and sufficient
        ! neither necessary nor sufficient""",
    "phrase": r"""does not exist
        = DNE | the limit does not exist | Does not exist.
        ! exists | 0 | @a@ | converges""",
    "answer to yes or no": r"""Yes
        = yes | Yes. | Yes, she does | \text{Yes} | YES
        ! No | No, she does not | not yes | Maybe""",
    "places": r"""second quadrant
        = quadrant II | Quadrant 2 | the second quadrant | 2nd quadrant
        ! first quadrant | quadrant III | fourth quadrant""",
}  # fmt: skip

_WORDS = {
    "u": ("km", "degrees", "cm", "minutes", "dollars"),
    "p": ("p", "q"),
    "C": tuple("ABCDE"),
    "P": ("ABCD", "PQRS", "EFGH", "KLMN", "ADCB", "MNPQ"),
}
_OPPOSED = (
    ("north", "south"), ("clockwise", "counterclockwise"), ("upward", "downward"),
    ("left", "right"),
    ("older", "younger"), ("early", "late"), ("longer", "shorter"), ("above", "below"),
    ("ahead", "behind"), ("heavier", "lighter"), ("increase", "decrease"), ("profit", "loss"),
    ("wider", "narrower"), ("inward", "outward"), ("warmer", "colder"), ("forward", "backward"),
)  # fmt: skip
#: Numbers that are no part of the other numbers in the blocks.
_NUMBERS = [a for a in range(2, 160) if a % 61 and a % 62 and a % 67]
_NAME = re.compile(r"@(\w+)@")


@dataclass(frozen=True)
class TypedPair:
    """A gold, another text, and whether the text is equal to the gold."""

    kind: str
    gold: str
    text: str
    is_equal: bool


def _lines(block: str) -> tuple[str, list[tuple[bool, str]]]:
    """Split a block into the gold's line and its rewrites with their truth."""
    gold, *lines = (line.strip() for line in block.splitlines())
    rewrites = []
    for line in lines:
        for text in re.split(r" \| (?![ABx]\b\|)", line[2:]):
            rewrites.append((line[0] == "=", text.strip()))
    return gold, rewrites


def _values(rng: random.Random) -> dict[str, str]:
    """Draw the values of the names."""
    a, b = rng.sample(_NUMBERS, 2)
    m, n = sorted(rng.sample([*range(-40, 0), *range(1, 40)], 2))
    chosen, other = rng.sample("ABCDE", 2)
    corners = rng.choice(("ABCD", "PQRS", "EFGH", "KLMN", "ADCB", "MNPQ"))
    first, second = rng.sample(rng.choice(_OPPOSED), 2)
    letters = rng.sample("pqrs", 2)
    return {
        "a": str(a), "b": str(b), "a1": str(a + 1), "b1": str(b + 1), "a2": str(2 * a),
        "a3": str(10 * a), "m": str(m), "n": str(n), "u": rng.choice(_WORDS["u"]),
        "d": first, "e": second, "C": chosen, "D": other, "h": str(rng.randint(1, 11)),
        "P": corners[0], "Q": corners[1], "R": corners[2], "S": corners[3],
        "p": letters[0], "q": letters[1], "o": f"{a:o}",
    }  # fmt: skip


def typed_pairs(count: int, seed: int = 0) -> Iterator[TypedPair]:
    """Yield every rewrite of ``count`` drawn golds of each kind, each different pair once."""
    for kind, block in KINDS.items():
        rng = random.Random(f"{kind} {seed}")
        gold, rewrites = _lines(block)
        seen: set[tuple[str, str]] = set()
        for _ in range(count):
            values = _values(rng)
            if kind == "share":
                values["p"] = str(rng.randint(11, 99))
            filled = _NAME.sub(lambda name: values[name[1]], gold)  # noqa: B023
            for is_equal, rewrite in rewrites:
                text = _NAME.sub(lambda name: values[name[1]], rewrite)  # noqa: B023
                if (filled, text) not in seen and text != filled:
                    seen.add((filled, text))
                    yield TypedPair(kind, filled, text, is_equal)


#: Text around an answer.
WRAPPERS = (
    "So the answer is ${}$.",
    "**Answer:** ${}$",
    "Therefore, $\\boxed{{{}}}$",
    "$$\\boxed{{\\displaystyle {}}}$$",
    "\\[\\boxed{{\\color{{blue}}{{{}}}}}\\]",
    "<think>\nIs it \\boxed{{98765}}?\n</think>\n\nFinal Answer: ${}$",
    "Step 1: compute.\n\nHence the final answer is:\n\n$${}$$",
    "The answer is \\boxed{{98765}}. Wait, that is wrong. The answer is ${}$.",
    "#### {}",
)
