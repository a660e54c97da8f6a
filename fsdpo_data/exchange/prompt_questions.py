"""The questions of recorded prompts: a file may have only the prompts, with a template around."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from fsdpo_data.models.prompts import RECORDED_TEMPLATE, TEMPLATES, ChatFormat, Template
from fsdpo_data.problems.question_key import question_key

_MAX_INDEXED_CHARS = 16  #: Characters of a question by which it is found.
#: Instructions after a question, in addition to the texts of the templates.
_INSTRUCTIONS = ("A:", "Answer:", "Solution:", "Let's think step by step.", "Think step by step.")
_MAX_QUOTED_CHARS = 60  #: Characters of a shared text in a warning.


def known_instructions(template: Template) -> Sequence[str]:
    """Return the keys of texts that follow a question without changing it, first the empty one.

    Args:
        template: A further template, whose text may follow a question.
    """
    texts = [entry.text for entry in (template, *TEMPLATES.loaded_entries())]
    ends = [text.rpartition("{question}")[2] for text in texts if "{question}" in text]
    return list(dict.fromkeys(map(question_key, ("", *_INSTRUCTIONS, *ends))))


class QuestionIndex:
    """Finds known questions in a text, in a time that does not depend on their number.

    Args:
        keys: The known questions, from :func:`~fsdpo_data.problems.question_key.question_key`.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        keys = [*keys]
        self._n_chars = min([_MAX_INDEXED_CHARS, *map(len, keys)])
        self._keys_by_start: dict[str, list[str]] = {}
        for key in keys:
            self._keys_by_start.setdefault(key[: self._n_chars], []).append(key)

    def find_last(self, text: str) -> tuple[str, int] | None:
        """Return the question that ends last in a text, and its end; None without any.

        Of several questions that end there, the longest is returned.
        """
        ends = [
            (start + len(key), len(key), key)
            for start in range(len(text))
            for key in self._keys_by_start.get(text[start : start + self._n_chars], ())
            if text.startswith(key, start)
        ]
        if not ends:
            return None
        end, _, key = max(ends)
        return key, end


class PromptQuestions:
    """Finds the questions in prompts of known templates, and notices other templates.

    Args:
        template: A further template that the prompts may have, from the user; None without one.
        chat: Chat format that the prompts may have; None if it is unknown.
    """

    def __init__(self, template: Template | None = None, chat: ChatFormat | None = None) -> None:
        self._known_templates = [
            replace(entry, chat=chat) if entry.needs_chat else entry
            for entry in TEMPLATES.loaded_entries()
        ]
        if template is not None:
            self._known_templates.insert(0, template)
        self._templates: Sequence[Template] | None = None  # those of all prompts so far
        self._n_unknown = 0  # prompts of no known template
        self._shared_start = ""  # of these prompts
        self._shared_end = ""

    def find(self, prompt: str) -> str:
        """Return the question of a prompt; the prompt itself if no known template fits."""
        questions = {
            template.digest: question
            for template in self._known_templates
            if (question := template.find_question(prompt)) is not None
        }
        templates = self._known_templates if self._templates is None else self._templates
        self._templates = [template for template in templates if template.digest in questions]
        if questions:
            return min(questions.values(), key=len)
        self._note_unknown(prompt)
        return prompt

    def _note_unknown(self, prompt: str) -> None:
        """Compare a prompt of no known template with the earlier ones."""
        if self._n_unknown:
            self._shared_start = _common_start(self._shared_start, prompt)
            self._shared_end = _common_start(self._shared_end[::-1], prompt[::-1])[::-1]
        else:
            self._shared_start = self._shared_end = prompt
        self._n_unknown += 1

    @property
    def template(self) -> Template:
        """The first template that all prompts have, or the one of recorded prompts."""
        return next(iter(self._templates or ()), RECORDED_TEMPLATE)

    def warnings(self) -> Sequence[str]:
        """Return a warning if prompts of no known template share the text around the question.

        Questions alone may start with the same words, so the shared text must have a full line, or
        must be on both sides.
        """
        sides = [self._shared_start, self._shared_end]
        texts = [side for side in sides if any(map(str.isalpha, side))]
        is_template = len(texts) == len(sides) or any("\n" in text for text in texts)
        if self._shared_start == self._shared_end or not is_template:
            return []  # prompts that are all the same do not show what a template adds
        quoted_sides = " and end with ".join(repr(_shorten(side)) for side in sides)
        return [
            f"{self._n_unknown:,} prompts have no known template, but all start with "
            f"{quoted_sides}. The whole prompt is the question of such a problem, and published "
            "reward models read it as the question. Give the template of the prompts with "
            "`template=FILE.txt`."
        ]


def _common_start(text: str, other: str) -> str:
    """Return the longest text with which both texts start."""
    pairs = zip(text, other, strict=False)  # up to the end of the shorter one
    n_chars = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return text[:n_chars]


def _shorten(text: str) -> str:
    """Return the start of a text."""
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…"
