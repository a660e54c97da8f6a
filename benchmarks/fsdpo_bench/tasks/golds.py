r"""Golds that the source states only in part or damaged, what they are, and why.

MATH's gold is the last box of the solution, by everybody's custom. In twelve of the 5,000 test
problems that box holds only a part of the answer, or one of several that the problem accepts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GoldNote:
    """What is known better of one gold.

    Attributes:
        why: The reason, for reports.
        gold: The gold to use; empty to keep the source's.
        also: Other golds that are right as well.
    """

    why: str
    gold: str = ""
    also: tuple[str, ...] = ()


_PART = "the last box holds a part of the answer"
_ONE_OF = "the solution accepts another answer as well"

#: By problem id, as every note: ids do not depend on the order of the rows.
MATH_GOLDS = {
    "72e711d1c9f5d3add97d": GoldNote(_PART, "-2, 1"),
    "3e483ec3779d48bb44c3": GoldNote(_PART, "5 - 10i, 11, -3 + 6i"),
    "b868dfa043ddc12cb38e": GoldNote(_PART, r"-\tfrac32, -\tfrac34"),
    "fb55fdf47b2217fe29b9": GoldNote(_PART, "-10879, 10879"),
    "4b582ab38d47d1f3368e": GoldNote(_PART, r"3, \frac{2}{5}"),
    "4368cd1e7597d29e91de": GoldNote(_PART, "-1, 2"),
    "73fbe10eeacf83d9ab8e": GoldNote(_PART, r"30^\circ, 45^\circ, 105^\circ"),
    "b8ac594c9e64605429fa": GoldNote(_PART, r"\frac{\pi}{4}, \frac{5\pi}{4}"),
    "acba7928c88831d21cb8": GoldNote(_ONE_OF, "-3", also=("3",)),
    "b27ca8277943eee93335": GoldNote(_ONE_OF, also=("(10, 0)",)),
    "005549bbd8bc6fed1bef": GoldNote(_ONE_OF, also=(r"\left(\tfrac32, -\tfrac52\right)",)),
    "9effd880257f2ae5280b": GoldNote(_ONE_OF, "(3,-5)", also=("(0,0)",)),
}
GK2023_GOLDS = {
    "936c50fd3bbbdccc763b": GoldNote("the next heading is run into the gold", "$145$"),
}
OCW_GOLDS = {
    "bd58dd39f05fc1f73a5a": GoldNote("the box left the power of ten out", "4.4677e14"),
}
