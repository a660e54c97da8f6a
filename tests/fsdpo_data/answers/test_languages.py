"""Answers in other languages than English: labels, number words, numerals and verdicts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.extraction.extract import extract_answer
from fsdpo_data.answers.grader import grade_response
from fsdpo_data.answers.lexicon.languages import LANGUAGES, read_numeral
from fsdpo_data.answers.parsing.read import read_answer

ROOT = Path(__file__).parents[3]
LEXICON = ROOT / "fsdpo_data/answers/lexicon"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_labels_its_answers(language):
    for label in LANGUAGES[language]["answer"]:
        for line in (f"{label.capitalize()}: 12", f"**{label.capitalize()}:** 12"):
            extracted = extract_answer(f"3 · 4 = 12, 2 · 4 = 8\n{line}\n")
            assert (extracted.answer, extracted.rule) == ("12", "label"), line


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Die Antwort ist 12.", "12"),
        ("La réponse finale est 12.", "12"),
        ("Respuesta correcta: 12", "12"),
        ("정답은 12입니다", "12"),
        ("答：小明的年龄是 24", "24"),
        # The last label counts, in any language.
        ("The answer is 7.\nRespuesta: 12", "12"),
        ("Respuesta: 7\nThe answer is 12.", "12"),
    ],
)
def test_labels_in_sentences(response, answer):
    assert extract_answer(response).answer == answer


@pytest.mark.parametrize(
    "response",
    [
        "La respuesta es 7, por lo tanto terminamos.",
        "Antwort: 7, da es nur so geht",
        "Réponse : 7, ce qui est la valeur cherchée",
    ],
)
def test_short_words_after_an_answer_are_not_products_of_letters(response):
    assert grade_response(read_answer("7"), response).status == "correct"
    assert grade_response(read_answer("5"), response).status != "correct"


@pytest.mark.parametrize(
    ("response", "answer", "rule"),
    [
        ("Laskemme 3x = 12 ja 2y = 6.\nLopputulos: x^2 + 1", "x^2 + 1", "labelled-line"),
        ("Kami hitung 3 · 4 = 12.\n**Hasil akhir:** (1, 2)", "(1, 2)", "labelled-line"),
        # A number in the label, and English labels, announce nothing.
        ("Laskemme 3 · 4 = 12.\nVaihe 3: 4 + 5", "4 + 5", "last-number"),
        ("We compute 3 · 4 = 12, so the area is 12.\nNote: 5 of them", "5", "last-number"),
        ("3 · 4 = 12\nStep 3: 5", "5", "last-number"),
    ],
)
def test_a_label_of_an_unknown_language_on_the_last_line(response, answer, rule):
    extracted = extract_answer(response)
    assert (extracted.answer, extracted.rule) == (answer, rule)


@pytest.mark.parametrize(
    ("gold", "equal", "different"),
    [
        ("32", ["三十二", "三十二个", "32页", "삼십이", "treinta y dos", "٣٢"],
         ["二十三", "三十", "32万"]),
        ("42", ["zweiundvierzig", "quarante-deux", "Quarante deux", "сорок два", "quarenta e dois",
                "quarantadue", "बयालीस"], ["zweiundfünfzig", "сорок"]),
        ("25000", ["2万5千", "2.5万", "二万五千", "2만 5천", "两万五千"], ["2万5", "25万"]),
        ("9", ["九", "九页", "9页"], ["九十"]),
        ("4/9", ["九分之四"], ["四分之九"]),
        ("20\\%", ["百分之二十"], ["百分之十二"]),
        ("300000000", ["3亿", "三億", "3억"], ["3万"]),
        ("3 \\text{ km}", ["3千米"], ["3000千米"]),
        ("\\text{Yes}", ["да", "sí", "はい", "نعم"], ["нет", "no", "対"]),
        ("\\text{True}", ["верно", "对", "対", "verdadero", "vrai"], ["falso", "错", "неверно"]),
        ("\\text{no solution}", ["aucune solution", "ninguna", "nessuna soluzione", "无解"],
         ["oui"]),
    ],
)  # fmt: skip
def test_numbers_and_verdicts(gold, equal, different):
    assert [answer for answer in equal if compare_answers(gold, answer).status != "correct"] == []
    assert [text for text in different if compare_answers(gold, text).status == "correct"] == []


@pytest.mark.parametrize("text", ["一百五", "万亿", "三角", "万一"])
def test_ambiguous_numerals_and_words_are_not_numbers(text):
    assert compare_answers("150", text).status != "correct"
    assert compare_answers("3", text).status != "correct"


def test_numerals_of_every_size():
    expected = {"十": 10, "十五": 15, "二〇二四": 2024, "一千零一": 1001, "一亿二千万": 120_000_000,
                "三百万": 3_000_000, "1,234万": 12_340_000}  # fmt: skip
    assert {text: read_numeral(text) for text in expected} == expected


def test_the_number_words_are_those_of_icu():
    pytest.importorskip("icu4py", reason="icu4py is not installed")
    script = ROOT / "benchmarks/grading/make_number_words.py"
    spec = importlib.util.spec_from_file_location("make_number_words", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (LEXICON / "number_words.toml").read_text(encoding="utf-8")
    assert module.make_table(module.spelled_languages()) == text


CHANGED_NUMBERS = """\
Ответ: минус 12|Ответ: не менее 12|Ответ не 12.|Ответ: 12 с половиной
答案：负12|答案：至少12|答案：12以上|答案不是12。|答案：12的一半
答えは12ではない。|答え：マイナス12|정답은 12 이상입니다|정답은 12가 아닙니다.
La respuesta no es 12.|La respuesta es la mitad de 12.|Respuesta: al menos $12$
Respuesta: 12 docenas|Réponse : moins 12|La réponse n'est pas 12.|Réponse : le double de 12
Réponse : 12 et demi|Antwort: mindestens 12|Die Antwort ist nicht 12.|Antwort: die Hälfte von 12
Antwort: 12 Dutzend|A resposta não é 12.|Resposta: menos 12|Risposta: più di 12
Odpowiedź: co najmniej 12|Cevap: eksi 12|Cevap: 12 değil|Antwoord: niet 12|Svar: minst 12
Đáp án: không phải 12|الجواب: ليس 12|उत्तर: 12 नहीं|Jawaban: 12 juta""".replace("\n", "|").split("|")


@pytest.mark.parametrize("response", CHANGED_NUMBERS)
def test_words_that_change_a_number_leave_it_undecided(response):
    assert grade_response(read_answer("12"), response).status == "undecided"


UNCHANGED_NUMBERS = """\
Ответ: 12|Ответ: 12 яблок|答案：12个|答案是12，不是10|答えは12です。|정답은 12입니다
La respuesta es 12.|La mitad de 24 es 12.|Hay 3 manzanas menos 2. La respuesta es 12.
Réponse : 12 (et non 10)|Antwort: 12 Äpfel|Die Hälfte von 24 ist 12.
It is at most 13 and over 11, so the answer is 12.""".replace("\n", "|").split("|")


@pytest.mark.parametrize("response", UNCHANGED_NUMBERS)
def test_words_around_other_numbers_do_not_matter(response):
    assert grade_response(read_answer("12"), response).status == "correct"


def test_a_gold_may_have_the_words_that_change_its_number():
    assert grade_response(read_answer("至少12"), "答案：至少12").status == "correct"


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("C", "La respuesta correcta es la C."),
        ("12", "La respuesta correcta es 12."),
        ("C", "正解はCです。"),
        ("12", "正解は12です。"),
    ],
)
def test_a_label_may_call_the_answer_right(gold, response):
    assert grade_response(read_answer(gold), response).status == "correct"
    assert grade_response(read_answer("B"), response).status != "correct"
