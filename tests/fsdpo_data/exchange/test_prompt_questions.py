"""Known questions are found in prompts."""

import random

from fsdpo_data.exchange.prompt_questions import QuestionIndex


def test_the_question_that_ends_last_is_found_and_the_longest_of_those() -> None:
    rng = random.Random(0)

    def text_of(n_chars: int) -> str:
        return "".join(rng.choices("ab", k=n_chars))

    n_found = 0
    for _ in range(300):
        keys = {text_of(rng.randint(2, 30)) for _ in range(rng.randint(0, 6))}
        text = "".join([text_of(8), *rng.sample([*keys, "", ""], 2), text_of(3)])
        matches = [(text.rfind(key) + len(key), len(key), key) for key in keys if key in text]
        expected = (max(matches)[2], max(matches)[0]) if matches else None
        assert QuestionIndex(keys).find_last(text) == expected
        n_found += expected is not None
    assert 50 < n_found < 300
