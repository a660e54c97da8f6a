"""Text for a terminal: control characters of foreign text are replaced."""

import unicodedata


def strip_control_characters(text: str) -> str:
    """Replace control characters, format characters and surrogates by U+FFFD."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else "\ufffd"
        for char in text
    )
