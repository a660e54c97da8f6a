"""Strategies of hypothesis for questions and solutions with the text that formats get wrong."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

#: Special tokens of published tokenizers; a text may mention them.
SPECIAL_TOKENS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<s>", "<unk>", "[SEP]")
#: Everything that a library may take for the end of a line.
LINE_ENDS = (
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\u2028",
    "\u2029",
    "\x0b",
    "\x0c",
    "\x85",
    "\n \n",
    "\n\t",
)
#: White space that is no end of a line, and characters without width.
SPACES = (" ", "  ", "\t", "\xa0", "\u3000", "\u200b", "\u200d", "\ufeff", "\xad")
#: Emoji, combining marks, scripts with and without spaces, private characters, and what
#: normalization would change.
SIGNS = (
    *(
        "👩‍👩‍👧",
        "🇩🇪",
        "e\u0301",
        "é",
        "ﬁ",
        "ß",
        "İ",
        "Å",
        "𝔸",
        "½",
        "²",
        "中文",
        "四十二",
        "日本語",
        "ไทย",
    ),
    *(
        "العربية",
        "עברית",
        "हिन्दी",
        "한국",
        "\u202e",
        "\ue000",
        "\ue001",
        "\ufffd",
        "▁",
        "Ġ",
        "ки",
        "\x00",
    ),
)
WORDS = (
    *(
        "Step 1:",
        "Step 2: ",
        "So",
        " the",
        "answer",
        "is",
        "42",
        "3.14",
        "1,000",
        "It's",
        "#",
        "**",
    ),
    *(
        "a",
        "b+",
        "= ",
        "$x^2$",
        "\\boxed{42}",
        "\\",
        '"',
        "'",
        "{question}",
        "{",
        "}",
        "%s",
        "# Answer",
    ),
    *(
        "<think>",
        "</think>",
        "<",
        ">",
        "|",
        "User:",
        "Assistant:",
        "###",
        "- ",
        "1.",
        "`",
        "+",
        "-",
    ),
)
#: Pieces of texts.
PIECES = (*WORDS, *SIGNS, *SPACES, *LINE_ENDS, *SPECIAL_TOKENS)


def texts(max_pieces: int = 12, *, without: Sequence[str] = ()) -> st.SearchStrategy[str]:
    """Return texts of joined pieces, with one that is visible."""
    pieces = st.sampled_from([piece for piece in PIECES if piece not in without])
    letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    joined = st.lists(st.one_of(pieces, pieces, letters), min_size=1, max_size=max_pieces)
    return joined.map("".join).filter(str.strip)


def long_lines() -> st.SearchStrategy[str]:
    """Return texts with a line that is longer than all buffers of lines."""
    return st.tuples(texts(4), st.integers(200, 3_000)).map(
        lambda text_and_count: text_and_count[0] * text_and_count[1]
    )


@st.composite
def step_lists(draw: st.DrawFn, max_steps: int = 4) -> list[str]:
    """Return the steps of a solution, none of which is blank, cut at any character."""
    text = draw(texts(14))
    return cut(text, draw(st.lists(st.integers(1, len(text)), max_size=max_steps - 1)))


def cut(text: str, positions: Sequence[int]) -> list[str]:
    """Cut a text at positions that leave no part blank."""
    steps: list[str] = []
    start = 0
    for end in sorted({*positions}):
        if text[start:end].strip() and text[end:].strip():
            steps.append(text[start:end])
            start = end
    return [*steps, text[start:]]
