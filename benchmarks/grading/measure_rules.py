"""Measure every rule of the grader's tables: which verdicts change without it?

    python benchmarks/grading/measure_rules.py ../shared/data --out rules.jsonl
    python benchmarks/grading/measure_rules.py ../shared/data --table prose.patterns --out x.jsonl
    python benchmarks/grading/measure_rules.py ../shared/data --count fsdpo_data/answers

A rule is a row of a table, a word of a list, or one alternative of a regular expression. The texts
are labelled rows (`grading/`, `tests/data/grader_cases.jsonl`) and recorded responses (`outputs/`,
`pools/`). The golds of the benchmarks are texts too, each compared with itself.

One run records which alternatives match in which text. A word counts for each text that contains
it. Each rule that occurs is then switched off, and the texts in which it occurs are graded again.
`--out` has one line per rule: the texts in which it occurs, and the verdicts that change. The
measurement of a rule ends after `--enough` changes. A rule without changes is one to delete,
unless it completes a closed set, such as the months. Two rules may each do the work of the other,
so measure the verdicts again (`measure_grader.py`) after every deletion. Each measurement imports
the grader again, so run this in a checkout that does not change.
"""

import copy
import gzip
import json
import multiprocessing
import os
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from measure_grader import RecordedOutput, read_recorded
from typer import Argument, Option

import fsdpo_data
from fsdpo_data.answers.thinking import find_thinking

ROOT = Path(__file__).parents[2]
TABLES = Path(fsdpo_data.__file__).parent / "answers"
CASES = ROOT / "tests/data/grader_cases.jsonl"
#: Tables whose values are regular expressions, by file; None stands for the top of the file.
PATTERN_TABLES = {"numbers": (None,), "read": ("patterns",), "clean": ("patterns",),
                  "prose": ("patterns",), "readings": ("patterns",), "words": ("patterns",),
                  "phrases": ("retractions", "extract", "announced", "unmarked", "multi_part",
                              "boxes", "grader")}  # fmt: skip
#: Tables whose keys are regular expressions.
PATTERN_KEYS = {("clean", "rewrites"), ("clean", "markup"), ("prose", "relations"),
                ("prose", "signs_of_numbers"), ("prose", "synonyms"),
                ("words", "time_phrases")}  # fmt: skip
#: Patterns and tables of patterns that the code compiles as parts of longer patterns.
COMPOSED = {"synonyms", "relations", "signs_of_numbers", "wrapper", "predicate"}
#: Patterns that the code compares by identity, changes before it compiles them, or passes as text.
UNRECORDED = {"date", "time_phrases", "number"}
#: A pattern that matches nothing, in front of an alternative that is switched off.
OFF = "(?!)"

Table = dict[str, Any]


class Text(NamedTuple):
    """A pair or a response to grade."""

    source: str  #: The set of the text.
    gold: str  #: The gold answer.
    answer: str  #: The answer, or the response.
    is_response: bool  #: Whether the answer is a response.
    finish_reason: str = "stop"  #: See ``GradingRequest``.
    is_equal: bool | None = None  #: The label; None if there is none.


class Branch(NamedTuple):
    """An alternative of a regular expression."""

    start: int  #: Its start in the expression.
    end: int  #: Its end.
    is_negated: bool  #: Whether it is part of a negative lookaround.


class Rule(NamedTuple):
    """A rule of a table."""

    file: str  #: The name of the file without its suffix.
    keys: tuple[str, ...]  #: The keys from the top of the file to the row.
    kind: str  #: One of ``row``, ``word``, ``pattern`` and ``branch``.
    index: int  #: The number of the word or the branch; 0 for others.
    text: str  #: The text of the rule.


def read_tables(folder: Path = TABLES) -> dict[str, Table]:
    """Return the tables of a grader by the name of their file."""
    files = table_files(folder)
    return {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in files}


def table_files(folder: Path = TABLES) -> list[Path]:
    """Return the files of the tables that are typed by hand, except the thinking markers.

    A thinking marker belongs to a model, and is not a rule of the grader.
    """
    files = sorted(folder.rglob("*.toml"))
    return [file for file in files if file.stem != "thinking" and not is_generated(file)]


def is_generated(file: Path) -> bool:
    """Return whether a script writes the file of a table."""
    return file.read_text(encoding="utf-8").startswith("# Generated")


def find_branches(pattern: str) -> list[Branch]:
    """Return the alternatives of a regular expression, at every depth."""
    branches = []
    open_groups: list[tuple[bool, list[int]]] = [(False, [0])]  # is negated, starts of branches
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            position += 2
            continue
        if char == "[":
            position = _end_of_class(pattern, position)
            continue
        if char == "(":
            head = re.compile(r"\((?:\?(?:P<\w+>|P=|<?[=!]|[:>]|[a-z]+[:)]))?").match(
                pattern, position
            )
            assert head is not None
            position = head.end()
            if head[0].endswith(")"):  # flags
                open_groups[-1][1][-1] = position
                continue
            is_negated = open_groups[-1][0] or head[0].endswith("!")
            open_groups.append((is_negated, [position]))
            continue
        if char == "|":
            open_groups[-1][1].append(position + 1)
        if char == ")":
            branches += _close_group(open_groups.pop(), position)
        position += 1
    return branches + _close_group(open_groups.pop(), position)


def _end_of_class(pattern: str, position: int) -> int:
    """Return the position after the character class that starts at ``position``."""
    position += 1 + (pattern[position + 1] == "^")
    position += pattern[position] == "]"
    while pattern[position] != "]":
        position += 1 + (pattern[position] == "\\")
    return position + 1


def _close_group(group: tuple[bool, list[int]], end: int) -> list[Branch]:
    is_negated, starts = group
    ends = [*(start - 1 for start in starts[1:]), end]
    if len(starts) < 2:
        return []
    return [Branch(start, stop, is_negated) for start, stop in zip(starts, ends, strict=True)]


def join_lines(pattern: str) -> str:
    """Return a pattern as ``compile_patterns`` joins it."""
    return "".join(line.strip() for line in pattern.splitlines())


def list_rules(file: str, table: Table, keys: tuple[str, ...] = ()) -> Iterator[Rule]:
    """Yield the rules of a table."""
    top = keys[0] if keys else None
    for key, value in table.items():
        path = (*keys, key)
        if isinstance(value, dict):
            yield from list_rules(file, value, path)
        elif top in PATTERN_TABLES.get(file, ()):
            yield Rule(file, path, "pattern", 0, key)
            yield from _list_branches(file, path, join_lines(value))
        elif (file, top) in PATTERN_KEYS:
            yield Rule(file, path, "row", 0, f"{key} = {value}")
            yield from _list_branches(file, path, key)
        elif isinstance(value, str) and len(value.split()) > 1 and "\\" not in value:
            for index, word in enumerate(value.split()):
                yield Rule(file, path, "word", index, word)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield Rule(file, path, "word", index, item if isinstance(item, str) else str(item))
        else:
            yield Rule(file, path, "row", 0, f"{key} = {value}")


def _list_branches(file: str, path: tuple[str, ...], pattern: str) -> Iterator[Rule]:
    for index, branch in enumerate(find_branches(pattern)):
        yield Rule(file, path, "branch", index, pattern[branch.start : branch.end])


def without_rule(tables: Mapping[str, Table], rule: Rule) -> dict[str, Table]:
    """Return the tables with a rule switched off."""
    changed = dict(tables)
    changed[rule.file] = copy.deepcopy(tables[rule.file])
    table = changed[rule.file]
    for key in rule.keys[:-1]:
        table = table[key]
    key = rule.keys[-1]
    top = rule.keys[0] if len(rule.keys) > 1 else None
    if rule.kind == "pattern":
        table[key] = OFF
    elif rule.kind == "row":
        del table[key]
    elif rule.kind == "branch" and (rule.file, top) in PATTERN_KEYS:
        rows = {(_switch_off(k, rule.index) if k == key else k): v for k, v in table.items()}
        table.clear()
        table.update(rows)
    elif rule.kind == "branch":
        table[key] = _switch_off(join_lines(table[key]), rule.index)
    elif isinstance(table[key], list):
        del table[key][rule.index]
    else:
        words = table[key].split()
        table[key] = " ".join(words[: rule.index] + words[rule.index + 1 :])
    return changed


def _switch_off(pattern: str, index: int) -> str:
    start = find_branches(pattern)[index].start
    return pattern[:start] + OFF + pattern[start:]


# --- The texts.


def read_texts(directory: Path) -> list[Text]:
    """Return all texts of a data directory and of the tests, labelled ones first."""
    texts = []
    for file in (*sorted((directory / "grading").glob("*.jsonl")), CASES):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("disputed"):
                continue
            is_response = "response" in row
            answer = row["response" if is_response else "answer"]
            label = row.get("equal", row.get("correct"))
            texts.append(Text(file.stem, row["gold"], answer, is_response, is_equal=label))
    golds = {gold for gold in read_golds(directory) if gold}
    texts += [Text("golds", gold, gold, False, is_equal=True) for gold in sorted(golds)]
    recorded: Sequence[RecordedOutput] = list(read_recorded(directory))
    texts += [
        Text(
            f"responses of {item.key.split('/')[1]}",
            item.gold,
            item.response,
            True,
            item.finish_reason,
        )
        for item in recorded
    ]
    return list(dict.fromkeys(texts))


def read_golds(directory: Path) -> Iterator[str]:
    """Yield the golds of all benchmark files of a data directory."""
    from fsdpo_data.answers.extraction.boxes import last_box_content

    for file in sorted(directory.rglob("*.jsonl*")):
        if not {"benchmarks", "train"} & set(file.parts):
            continue
        opener: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rt", encoding="utf-8") as stream:
            rows = [json.loads(line) for line in stream if line.strip()]
        for row in rows:
            for key in ("answer", "gold", "final_answer", "Answer", "expected_answer"):
                if isinstance(row, dict) and isinstance(row.get(key), str):
                    yield row[key].split("#### ")[-1]
            if isinstance(row, dict) and isinstance(row.get("solution"), str):
                yield last_box_content(row["solution"]) or ""


# --- Grading with changed tables.


def fresh_grader(tables: Mapping[str, Table]) -> Any:
    """Import the grader again, with other tables; return a function that grades a text."""
    for name in [name for name in sys.modules if name.startswith("fsdpo_data.answers")]:
        del sys.modules[name]
    from fsdpo_data.answers import GradingRequest
    from fsdpo_data.answers import tables as grader_tables

    read_file = grader_tables.read_toml
    grader_tables.read_toml = lambda module: (
        copy.deepcopy(tables[name]) if (name := Path(module).stem) in tables else read_file(module)
    )
    from fsdpo_data.answers.comparison.equivalence import compare_answers
    from fsdpo_data.answers.grader import MathGrader

    grader = MathGrader()

    def grade(text: Text) -> str:
        if not text.is_response:
            return str(compare_answers(text.gold, text.answer).status)
        thinking = find_thinking("", text.answer)
        request = GradingRequest(text.gold, text.answer, text.finish_reason, thinking)
        return str(grader.grade([request])[0].status)

    return grade


class RecordingPattern:
    """A compiled pattern that records which of its alternatives match."""

    def __init__(
        self, pattern: str, flags: int, spans: list[tuple[Rule, int, int]], hits: set[Rule]
    ):
        self._real = _compile(pattern, flags)
        self._hits = hits
        self._rules = [rule for rule, _, _ in spans]
        # Of two alternatives with one end, the inner one ends first.
        insertions = sorted(
            [(end, 1, -start, f")(?P<mark{i}>))") for i, (_, start, end) in enumerate(spans)]
            + [(start, 2, 0, "(?:(?:") for _, start, _ in spans]
        )
        for position, *_, mark in reversed(insertions):
            pattern = pattern[:position] + mark + pattern[position:]
        self._marked = _compile(pattern, flags)

    def __getattr__(self, name: str) -> Any:
        """Return a method that records its matches, or another attribute of the pattern."""
        attribute = getattr(self._real, name)
        if name not in ("search", "match", "fullmatch", "finditer", "findall", "split", "sub"):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            if name in ("search", "match", "fullmatch"):
                matches = [getattr(self._marked, name)(*args)]
            elif name in ("finditer", "findall"):
                matches = list(self._marked.finditer(*args))
            else:
                matches = list(self._marked.finditer(args[name == "sub"]))
            for match in filter(None, matches):
                marks = match.groupdict()
                self._hits.update(
                    rule
                    for index, rule in enumerate(self._rules)
                    if marks[f"mark{index}"] is not None
                )
            return attribute(*args, **options)

        return call


_compile = re.compile


def record_matches(
    tables: Mapping[str, Table], rules: Sequence[Rule], texts: Sequence[Text]
) -> tuple[dict[Rule, list[int]], set[Rule], list[str]]:
    """Grade all texts; return the texts of each rule of a pattern, by number, and the verdicts.

    The set has the rules whose matches cannot be recorded.
    """
    hits: set[Rule] = set()
    spans_by_pattern: dict[str, list[tuple[Rule, int, int]]] = defaultdict(list)
    unrecorded: set[Rule] = set()
    for rule in rules:
        if rule.kind == "word" or (
            rule.kind == "row" and (rule.file, rule.keys[0]) not in PATTERN_KEYS
        ):
            continue
        table: Any = tables[rule.file]
        for key in rule.keys:
            table = table[key]
        is_key = (rule.file, rule.keys[0]) in PATTERN_KEYS
        pattern = rule.keys[-1] if is_key else join_lines(table)
        branches = find_branches(pattern)
        flags_end = re.match(r"(?:\(\?[a-z]+\))?", pattern).end()  # type: ignore[union-attr]
        branch = (
            branches[rule.index]
            if rule.kind == "branch"
            else Branch(flags_end, len(pattern), False)
        )
        if branch.is_negated or UNRECORDED & set(rule.keys):
            unrecorded.add(rule)
        else:
            spans_by_pattern[pattern].append((rule, branch.start, branch.end))

    def compile_recording(pattern: Any, flags: int = 0) -> Any:
        if isinstance(pattern, str):
            for part, spans in spans_by_pattern.items():
                if pattern == part:
                    return RecordingPattern(pattern, flags, spans, hits)
            for part, spans in spans_by_pattern.items():
                offset = pattern.find(part)
                if offset >= 0 and COMPOSED & set(spans[0][0].keys):
                    moved = [(rule, start + offset, end + offset) for rule, start, end in spans]
                    return RecordingPattern(pattern, flags, moved, hits)
        return _compile(pattern, flags)

    import functools

    caches = functools.cache, functools.lru_cache
    functools.cache = lambda function: function  # type: ignore[assignment]
    functools.lru_cache = lambda *args, **_: (
        args[0] if args and callable(args[0]) else (lambda function: function)
    )  # type: ignore[assignment]
    re.compile = compile_recording  # type: ignore[assignment]
    try:
        grade = fresh_grader(tables)
    finally:
        re.compile = _compile
        functools.cache, functools.lru_cache = caches
    texts_by_rule: dict[Rule, list[int]] = defaultdict(list)
    at_import = set(hits)
    verdicts = []
    for index, text in enumerate(texts):
        hits.clear()
        verdicts.append(grade(text))
        for rule in hits:
            texts_by_rule[rule].append(index)
    unrecorded |= at_import
    return texts_by_rule, unrecorded, verdicts


def measure_rule(
    tables: Mapping[str, Table], rule: Rule, texts: Sequence[Text], indices: Sequence[int],
    verdicts: Sequence[str], enough: int,
) -> dict[str, Any]:  # fmt: skip
    """Grade the texts of a rule without it, and return the changes."""
    record: dict[str, Any] = {
        "file": rule.file, "keys": list(rule.keys), "kind": rule.kind, "index": rule.index,
        "rule": rule.text, "occurs": len(indices),
        "sources": dict(Counter(texts[index].source for index in indices)),
    }  # fmt: skip
    changes: Counter[str] = Counter()
    examples = []
    graded = 0
    try:
        grade = fresh_grader(without_rule(tables, rule)) if indices else None
        for index in indices:
            text = texts[index]
            graded += 1
            status = grade(text)
            if status != verdicts[index]:
                changes[_change(text, verdicts[index], status)] += 1
                if len(examples) < 5:
                    examples.append(
                        [text.source, text.gold, text.answer[-160:], verdicts[index], status]
                    )
                if changes.total() >= enough:
                    break
    except Exception as error:  # the code needs the rule
        record["error"] = f"{type(error).__name__}: {error}"
    return record | {"graded": graded, "changes": dict(changes), "examples": examples}


def _change(text: Text, old_status: str, new_status: str) -> str:
    if text.is_equal is None:
        return f"{old_status} → {new_status}"
    was_right = (old_status == "correct") == text.is_equal
    is_right = (new_status == "correct") == text.is_equal
    if was_right == is_right:
        return "same outcome"
    return "right → wrong" if was_right else "wrong → right"


def main(
    directory: Annotated[Path, Argument(help="Data directory.")],
    out: Annotated[
        Path | None, Option(help="File of the measurements, one JSON line per rule.")
    ] = None,
    table: Annotated[list[str] | None, Option(help="Only the rules below these keys.")] = None,
    kind: Annotated[list[str] | None, Option(help="Only rules of these kinds.")] = None,
    enough: Annotated[int, Option(help="Changes after which a measurement ends.")] = 20,
    count: Annotated[
        Path | None, Option(help="Only count the rules of a folder `fsdpo_data/answers`.")
    ] = None,
) -> None:
    tables = read_tables(count or TABLES)
    rules = [
        rule
        for name, content in tables.items()
        for rule in list_rules(name, content)
        if not table or any(is_in_table(rule, path) for path in table)
    ]
    rules = [rule for rule in rules if not kind or rule.kind in kind]
    print_counts(rules)
    if count:
        print_sizes(count, rules)
        return
    if out is None:
        raise typer.BadParameter("--out is missing")
    texts = read_texts(directory)
    texts_by_rule, unrecorded, verdicts = record_matches(tables, rules, texts)
    lowered = [f"{text.gold}\n{text.answer}".lower() for text in texts]
    with out.open("w", encoding="utf-8") as stream:
        for rule in rules:
            indices: Sequence[int]
            if rule.kind in ("pattern", "branch") or (rule.file, rule.keys[0]) in PATTERN_KEYS:
                indices = texts_by_rule[rule]
                if rule in unrecorded:
                    indices = find_texts(rule, lowered)
            else:
                name = rule.text.rpartition(" = ")[
                    2 if rule.keys[0] == "units" and rule.file == "units" else 0
                ]
                # The item of a list of lists is the text of a list, and occurs everywhere.
                is_list = rule.text.startswith("[")
                words = re.split(r"[=\s_]+", "" if is_list else (name or rule.text).lower())
                words = list(filter(None, words)) or ([""] if is_list else ["="])
                indices = [
                    i for i, text in enumerate(lowered) if any(word in text for word in words)
                ]
            record = in_child(measure_rule, tables, rule, texts, indices, verdicts, enough)
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            stream.flush()


def is_in_table(rule: Rule, path: str) -> bool:
    """Whether a rule is below a path of keys, such as ``phrases.unmarked.number``."""
    return f"{rule.file}.{'.'.join(rule.keys)}.".startswith(f"{path}.")


def find_texts(rule: Rule, texts: Sequence[str]) -> list[int]:
    """Return the numbers of the texts that contain what an alternative matches.

    Alternatives of negative lookarounds never match by themselves, and are looked for in the
    complete texts. One that cannot be compiled alone is taken to be in every text.
    """
    try:
        pattern = _compile(rule.text, re.IGNORECASE)
    except re.error:
        return list(range(len(texts)))
    if rule.kind == "pattern" or re.search(r"[$^]|\\[AZ]", rule.text):
        return list(range(len(texts)))
    return [index for index, text in enumerate(texts) if pattern.search(text)]


def in_child(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a forked process, which leaves this one as it was."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        sender.send(function(*args))
        os._exit(0)
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return {"error": "the process died", "args": str(args[1])}
    finally:
        os.waitpid(pid, 0)


def print_counts(rules: Sequence[Rule]) -> None:
    """Print the number of rules of each table by kind."""
    counts = Counter((rule.file, rule.kind) for rule in rules)
    for file in sorted({rule.file for rule in rules}):
        cells = "".join(
            f"{counts[file, kind]:>8} {kind}" for kind in ("row", "word", "pattern", "branch")
        )
        print(f"{file:<12}{cells}")
    print(f"{'all':<12}{len(rules):>8} rules")


def print_sizes(folder: Path, rules: Sequence[Rule]) -> None:
    """Print the regular expressions, the rows and the lines of a folder `fsdpo_data/answers`."""
    keys = sum(rule.kind == "row" and (rule.file, rule.keys[0]) in PATTERN_KEYS for rule in rules)
    patterns = sum(rule.kind == "pattern" for rule in rules)
    sources = [file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.py"))]
    compiled = sum(len(re.findall(r"\bre\.compile\(", source)) for source in sources)
    rows = sum(rule.kind in ("row", "word") for rule in rules) - keys
    print(f"regular expressions {patterns + keys} in tables, {compiled} in code")
    print(f"alternatives        {sum(rule.kind == 'branch' for rule in rules)}")
    print(f"rows and words      {rows}")
    toml_lines = sum(len(file.read_text("utf-8").splitlines()) for file in table_files(folder))
    generated_files = filter(is_generated, folder.rglob("*.toml"))
    generated_lines = sum(len(file.read_text("utf-8").splitlines()) for file in generated_files)
    print(
        f"lines               {sum(len(source.splitlines()) for source in sources)} of code, "
        f"{toml_lines} of tables, {generated_lines} generated"
    )


if __name__ == "__main__":
    typer.run(main)
