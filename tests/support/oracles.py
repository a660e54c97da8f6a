"""Where our verdicts differ from those that other graders recorded, and why."""

from __future__ import annotations

#: (row, series) -> (ours, theirs, why). Theirs is None where the file has no verdict.
Differences = dict[tuple[int, str], tuple[str, str, str]]

NEMO_0: Differences = {
    (1, ""): (
        "correct",
        "wrong",
        "the response runs on into a made-up next question; theirs took its answer, 4 - 20i",
    ),
    (24, ""): ("correct", "wrong", "1320 km for the gold 1320: the unit may be stated"),
    (27, ""): ("correct", "wrong", "the value asked for is (x+y)^2, and (x+y)^2=81 states it"),
    (42, ""): ("correct", "wrong", "no box, but the last line says 675 dollars; theirs is strict"),
}


NEMO_1: Differences = {
    (39, ""): (
        "correct",
        "wrong",
        "the response runs on into a made-up next question; theirs took its answer, -1",
    ),
    (49, ""): ("correct", "wrong", r"theirs does not know \fbox{958}"),
}


TORA = {
    "tora-70b-v1.0": (
        260,
        {
            289: "the text ends on 'Three trucks will be needed to transport 80 flagstones'",
        },
    ),
    "tora-code-34b-v1.0": (239, {}),
}


def float_equal(row: dict[str, list[str]]) -> bool:
    try:
        return float(str(row["pred"][0]).replace(",", "")) == float(str(row["gt"]).replace(",", ""))
    except ValueError:
        return False
