"""Texts on the terminal are printed as they are."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from fsdpo_data.cli.printing import escape_for_terminal


@given(st.text(alphabet="\\\\[]a/#@= \n", max_size=12))
@example(r"so \[ x = 5 \] and [b]bold[/b]")
def test_texts_contain_no_markup(text: str) -> None:
    markup = f"[bold]7[/] {escape_for_terminal(text)} [dim]x[/]"
    assert Text.from_markup(markup, emoji=False).plain == f"7 {text} x"
