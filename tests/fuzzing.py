"""Inputs that nobody means to give, by seed: texts, n-best lists, questions, and the flags beside.

A case is the arguments of a command, made with its files in a folder, and what must hold of the
result where it is 0. Checks are made by other means than the command's own: Python's universal
newlines, fairseq's tokeniser, a scorer that scores one text after the other.
"""

import csv
import gzip
import io
import json
import math
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
from fairseq.tokenizer import tokenize_line

from fairseq_bnce import Scorer
from fairseq_bnce.text.penn import novel_words

WORDS = ["w0", "w1", "w2", "w3", "w17", "oov", "W1", "<unk>", "<s>", "</s>", "<pad>", "\xe9t\xe9"]
WORDS += [
    "\u65e5\u672c",
    "madeupword0000",
    "'s",
    '"',
    "``",
    "w1.",
    "...",
    "--",
    "_____",
    "|||",
    "=",
]
SPACES = [" ", " ", " ", "  ", "\t", "\xa0", "\u3000", "\x0b", "\x1c", "\x85", "\u2028"]
LINE_ENDS = ["\n", "\n", "\n", "\n", "\r\n", "\r", "\n\n"]
STRANGE = [
    b"\xff",
    b"\xc3",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\x1b[31m",
    b"\xf0\x9f\x98",
]
NUMBERS = ["0", "1", "-1", "2.5", "-3e2", "1e-300", "1e30", "007", "+4", ".5", "5."]
NO_NUMBERS = ["", "nan", "inf", "-inf", "-1e400", "x", "0x1", "1 2", "None"]
WHOLE = ["0", "1", "2", "7", "-1", "", "2.0", "x"]
NAMES = [
    "BNCE",
    "LM",
    "a.b",
    "",
    " ",
    "a b",
    "a|b",
    "a=b",
    "a,b",
    "a\nb",
    "score",
    "\udcff",
    "n" * 999,
]


class Result(NamedTuple):
    """Of a command: exit status, standard output, what it said besides."""

    status: int
    output: bytes
    errors: str

    def lines(self) -> List[bytes]:
        return self.output.split(b"\n")[:-1]


class Case(NamedTuple):
    """Arguments, and what must hold of a result of status 0."""

    arguments: List[str]
    check: Callable[[Result], None]


class Reference:
    """The model by itself: one text after the other, unshifted, remembered."""

    def __init__(self, path: Any):
        self.plain = Scorer.from_checkpoint(str(path))
        self.exact = self.plain.with_exact(True)
        self._known: Dict[Any, float] = {}

    def score(self, words: Sequence[str], exact: bool = False) -> float:
        key = (*words, exact)
        if key not in self._known:
            scorer = self.exact if exact else self.plain
            self._known[key] = float(scorer.score([" ".join(words)])[0])
        return self._known[key]


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.array(got, float), np.array(want, float), rtol=1e-4, atol=1e-3)


def damaged(rng: random.Random, content: bytes, chance: float) -> bytes:
    """A few bytes changed, put in or left out, or pieces doubled, by some chance."""
    while content and rng.random() < chance:
        place = rng.randrange(len(content))
        other = rng.randrange(place, min(len(content), place + 40) + 1)
        content = rng.choice(
            [
                content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :],
                content[:place] + rng.choice(STRANGE) + content[place:],
                content[:place] + content[other:],
                content[:other] + content[place:],
                content[:place],
                content.replace(b" ", b"", 1),
            ]
        )
    return content


def sentence(rng: random.Random, most: int = 9) -> str:
    return "".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randint(0, most)))


def options(rng: random.Random, flags: Dict[str, Optional[List[str]]], chance: float) -> List[str]:
    """Some of the flags, with a value where they take one."""
    found = []
    for flag, values in flags.items():
        if rng.random() < chance:
            found.append(flag if values is None else f"{flag}={rng.choice(values)}")
    return found


# ---------------------------------------------------------------- score


SCORE_FLAGS: Dict[str, Optional[List[str]]] = {
    **dict.fromkeys(["--per-word", "--summary", "--json", "--exact", "--lowercase", "--document"]),
    "--base": ["e", "10", "2"],
    "--batch-tokens": ["1", "5", "64", *WHOLE],
    "--context-window": ["0", "3", *WHOLE],
    "--log-z-shift": ["none", "checkpoint", "0.5", *NUMBERS, *NO_NUMBERS],
    "--tokenize": ["en", "xx", ""],
    "--threads": ["1", *WHOLE],
}


def score_case(rng: random.Random, folder: Path, model: Reference) -> Case:
    """A text, or several files of one."""
    content = "".join(sentence(rng) + rng.choice(LINE_ENDS) for _ in range(rng.randint(0, 12)))
    content = damaged(rng, content.encode(), 0.4)
    if rng.random() < 0.03:
        content = b"w1 " * rng.choice([3000, 70_000]) + content
    cut = rng.randint(0, len(content)) if rng.random() < 0.2 else len(content)
    files = [folder / "text", folder / "more"][: 1 if cut == len(content) else 2]
    for path, part in zip(files, (content[:cut], content[cut:])):
        path.write_bytes(part)
    flags = options(rng, SCORE_FLAGS, 0.15)
    lines = [words for path in files for words in lines_of(path.read_bytes())]

    def check(result: Result) -> None:
        check_scores(result, lines, flags, model)

    return Case(["score", *flags, *map(str, files)], check)


def lines_of(content: bytes) -> List[List[str]]:
    """The words of each line, as Python and fairseq cut them, without marks and <s>, </s>."""
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace", newline=None)
    found = []
    for line in text:
        words = tokenize_line(line.lstrip("\ufeff"))
        words = words[words[:1] == ["<s>"] :]
        found.append(words[: len(words) - (words[-1:] == ["</s>"])])
    return found


def check_scores(
    result: Result, lines: List[List[str]], flags: List[str], model: Reference
) -> None:
    named = dict(flag.partition("=")[::2] for flag in flags)
    if "--lowercase" in named:
        lines = [[word.lower() for word in words] for words in lines]
    if "--summary" in named:
        return check_summary(result, lines, named)
    rows = result.lines()
    assert len(rows) == len(lines)
    as_json = [json.loads(row) for row in rows] if "--json" in named else None
    totals = [float(row["log_prob"]) for row in as_json] if as_json else first_column(rows)
    assert all(map(math.isfinite, totals))
    if "--tokenize" in named or "--document" in named:
        return None
    exact = "--exact" in named
    want = np.array([model.score(words, exact) for words in lines])
    if not exact:
        counts = np.array([len(words) + 1 for words in lines])
        want = want + counts * (model.plain.shift - shift_of(named, model))
    close(np.array(totals) * (math.log(10) if named.get("--base") == "10" else 1), want)
    if not as_json:
        columns = [row.decode().split("\t") for row in rows]
        assert [int(row[1]) for row in columns] == [len(words) + 1 for words in lines]
        if "--per-word" in named:
            written = [[pair.rpartition(" ")[0] for pair in row[3:]] for row in columns]
            assert written == [[*words, "</s>"] for words in lines]
    return None


def first_column(rows: Sequence[bytes]) -> List[float]:
    return [float(row.split(b"\t")[0]) for row in rows]


def shift_of(named: Dict[str, str], model: Reference) -> float:
    given = named.get("--log-z-shift", "checkpoint")
    return (
        {"checkpoint": model.plain.shift, "none": 0.0}.get(given)
        if given.isalpha()
        else float(given)
    )


def check_summary(result: Result, lines: List[List[str]], named: Dict[str, str]) -> None:
    text = result.output.decode()
    if "--json" in named:
        found = json.loads(text)
        assert found["lines"] == len(lines)
    else:
        found = {"tokens": int(text.split("Tokens:\t")[1])}
    assert "--tokenize" in named or found["tokens"] == sum(len(words) + 1 for words in lines)


# ---------------------------------------------------------------- rescore


RESCORE_FLAGS: Dict[str, Optional[List[str]]] = {
    **dict.fromkeys(["--exact", "--both", "--count-words", "--count-oov", "--lowercase"]),
    "--feature": NAMES,
    "--batch-tokens": ["1", "64", *WHOLE],
    "--log-z-shift": ["none", "0.5", *NO_NUMBERS],
    "--metric": ["bleu", "wer", "x"],
    "--bleu-tokenize": ["none", "13a", "char", "x"],
    "--seed": ["1", *WHOLE],
}
WEIGHTS = [
    "score=1",
    "score=-2",
    "score=0.5,TM=1",
    "TM=1 2",
    "BNCE=1",
    "X=1",
    "score=1e30",
    "score=",
]
WEIGHTS += [f"score={text}" for text in (*NUMBERS, *NO_NUMBERS)] + ["", ",", "=", "none", "a b=1"]


def rescore_case(rng: random.Random, folder: Path, model: Reference) -> Case:
    """Moses lists, or Kaldi's, with the model or weights or both."""
    lines, lists = _lists(rng), folder / "nbest"
    kaldi = rng.random() < 0.25
    if kaldi:
        lines = [f"u{number}-{rank} {words}" for number, rank, words, _ in lines]
    else:
        lines = [f"{number} ||| {words} ||| {rest}" for number, _, words, rest in lines]
    content = damaged(rng, "".join(f"{line}\n" for line in lines).encode(), 0.25)
    if rng.random() < 0.1:
        lists = folder / "nbest.gz"
        lists.write_bytes(damaged(rng, gzip.compress(content), 0.5))
    else:
        lists.write_bytes(content)
    weights = ["--weights", rng.choice(WEIGHTS)] if rng.random() < 0.5 else []
    if rng.random() < 0.25:
        weights += [*_tuning(rng, folder), "--weights-out", str(folder / "weights")]
    elif weights and rng.random() < 0.3:
        weights += ["--ref", _reference(rng, folder), "--resamples", rng.choice(["1", "9", *WHOLE])]
    best = ["--best", str(folder / "best")] if weights else []
    flags = options(rng, RESCORE_FLAGS, 0.12) + (["--format", "kaldi"] if kaldi else [])
    path = [] if weights and rng.random() < 0.4 else ["--path", "MODEL"]

    def check(result: Result) -> None:
        rows = content.split(b"\n")
        rows = rows[: len(rows) - (not rows[-1])]
        if weights:
            check_ranked(result, rows, kaldi, folder)
        else:
            check_annotated(result, rows, kaldi, flags, model)

    return Case(["rescore", *path, *flags, *weights, *best, str(lists)], check)


def _lists(rng: random.Random) -> List[tuple]:
    """(list, rank, words, the rest of a Moses line); now and then in a bad order."""
    found = []
    for number in range(rng.randint(0, 4)):
        for rank in range(rng.randint(1, 4)):
            words = re.sub(r"[|\n\r]|=", "", sentence(rng))
            values = f"{rng.gauss(0, 1):.3f} {rng.gauss(0, 1):.3f}"
            rest = f"TM= {values} LM= {_value(rng)} ||| {_value(rng)}"
            name = rng.choice(WHOLE) if rng.random() < 0.02 else number
            found.append((name, rank + 1, words, rest))
    if rng.random() < 0.2:
        rng.shuffle(found)
    return found


def _value(rng: random.Random) -> str:
    pool = NO_NUMBERS if rng.random() < 0.02 else NUMBERS[:5]
    return rng.choice(pool) if rng.random() < 0.2 else f"{rng.gauss(-5, 3):.4f}"


def _reference(rng: random.Random, folder: Path) -> str:
    path = folder / "reference"
    moses = rng.random() < 0.75
    count = rng.choice([4, 4, 4, 0, 1])
    lines = [("" if moses else f"u{number} ") + "w1 w2 w3 w0" for number in range(count)]
    path.write_bytes(damaged(rng, "".join(f"{line}\n" for line in lines).encode(), 0.1))
    return str(path)


def _tuning(rng: random.Random, folder: Path) -> List[str]:
    flags = ["--tune", _reference(rng, folder), "--restarts", rng.choice(["0", "1", *WHOLE[:4]])]
    flags += ["--resamples", "5"]
    names = rng.choice(["score,TM", "score,BNCE", "TM,LM", "score", ",", "score,X", ""])
    return flags + (["--tune-features", names] if rng.random() < 0.7 else [])


def check_annotated(
    result: Result, rows: List[bytes], kaldi: bool, flags: List[str], model: Reference
) -> None:
    """Every line with its score, and otherwise as it was."""
    found = result.lines()
    assert len(found) == len(rows)
    named = dict(flag.partition("=")[::2] for flag in flags)
    name = named.get("--feature", "BNCE").encode()
    for got, row in zip(found, rows):
        if kaldi:
            key, *words = row.decode("utf-8", "replace").lstrip("\ufeff").split()
            assert got.decode("utf-8", "replace").split()[0] == key
            values = got.decode("utf-8", "replace").split()[1:]
            total = -float(values[1] if values[0] == "[" else values[0])
        else:
            before, after = row.split(b"|||"), got.split(b"|||")
            assert before[:2] + before[3:] == after[:2] + after[3:]
            assert after[2].strip().startswith(before[2].strip())
            total = float(
                re.search(rb"(?:^| )" + re.escape(name) + rb"= ?(\S+)", after[2]).group(1)
            )
            words = before[1].decode("utf-8", "replace").split()
        assert math.isfinite(total)
        if "--lowercase" in named:
            words = [word.lower() for word in words]
        words = words[words[:1] == ["<s>"] :]
        words = words[: len(words) - (words[-1:] == ["</s>"])]
        exact = "--exact" in named
        shift = 0 if exact else model.plain.shift - shift_of(named, model)
        close(total, model.score(words, exact) + (len(words) + 1) * shift)


def check_ranked(result: Result, rows: List[bytes], kaldi: bool, folder: Path) -> None:
    """A permutation within each list, sorted by finite totals, and a best hypothesis of each."""
    found = result.lines()
    ids = [_list_id(row, kaldi) for row in rows]
    assert [_list_id(row, kaldi) for row in found] == ids
    assert all(ids[i] == ids[i - 1] or ids.index(ids[i]) == i for i in range(1, len(ids)))
    if kaldi:
        assert Counter(found) == Counter(rows)
    else:
        assert Counter(map(_kept, found)) == Counter(map(_kept, rows))
        totals = [float(row.split(b"|||")[3]) for row in found]
        assert all(map(math.isfinite, totals))
        for one, following, first, second in zip(totals, totals[1:], ids, ids[1:]):
            assert first != second or one >= following - 1e-6 * max(1, abs(one))
    best = (folder / "best").read_bytes().split(b"\n")[:-1]
    assert len(best) == len(set(ids))
    if (folder / "weights").exists():
        text = (folder / "weights").read_text()
        values = [float(x) for line in text.splitlines() for x in line.partition("=")[2].split()]
        assert abs(sum(map(abs, values)) - 1) < 1e-6 or not any(values)


def _list_id(row: bytes, kaldi: bool) -> str:
    text = row.decode("utf-8", "surrogateescape").lstrip("\ufeff")
    if kaldi:
        return text.split()[0].rpartition("-")[0]
    plain = text.split("|||")[0].strip().lstrip("\ufeff").strip()
    return str(int(plain)) if re.fullmatch("[0-9]{1,99}", plain) else plain


def _kept(row: bytes) -> tuple:
    """What of a Moses line does not change: all but features that are added, and the score."""
    fields = row.split(b"|||")
    return (*fields[:2], *fields[2].split()[:3], *fields[4:])


# ---------------------------------------------------------------- complete


COMPLETE_FLAGS: Dict[str, Optional[List[str]]] = {
    **dict.fromkeys(["--exact", "--tokenized"]),
    "--batch-tokens": ["1", "64", *WHOLE],
    "--log-z-shift": ["none", "0.5", *NO_NUMBERS],
}


def complete_case(rng: random.Random, folder: Path, model: Reference) -> Case:
    """Questions in either form, with answers or without."""
    count = rng.randint(0, 5)
    gaps = [(_plain(sentence(rng, 5)), _plain(sentence(rng, 4))) for _ in range(count)]
    choices = [[_plain(rng.choice(WORDS)) or "w1" for _ in range(5)] for _ in range(count)]
    machine = rng.random() < 0.5
    whole = (_machine if machine else _table)(gaps, choices).encode()
    content = damaged(rng, whole, 0.25)
    if rng.random() < 0.02:
        content += b"x" * rng.choice([6000, 140_000]) + b"\n"
    (folder / "questions").write_bytes(content)
    answers = "id,answer\n" + "".join(f"{n},{rng.choice('abcde')}\n" for n in range(count))
    (folder / "answers").write_bytes(damaged(rng, answers.encode(), 0.15))
    flags = options(rng, COMPLETE_FLAGS, 0.15)
    answered = rng.random() < 0.5
    if answered:
        flags += ["--answers", str(folder / "answers")]
    out = folder / "table"
    want = None
    if content == whole and "--tokenized" not in flags:
        texts = [[f"{a} {c} {b}" for c in some] for (a, b), some in zip(gaps, choices)]
        want = [[novel_words(text).split() for text in some] for some in texts]

    def check(result: Result) -> None:
        check_choices(result, out, want, answered, model)

    return Case(["complete", *flags, "--out", str(out), str(folder / "questions")], check)


def _plain(text: str) -> str:
    """Without what the forms take for their own."""
    return re.sub(r"[\[\]\x0b\x1c\x85\u2028]|_____", "", text).strip()


def _table(gaps: List[tuple], choices: List[List[str]]) -> str:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["id", "question", "a)", "b)", "c)", "d)", "e)"])
    for number, ((before, after), some) in enumerate(zip(gaps, choices)):
        writer.writerow([number, f"{before} _____ {after}", *some])
    return table.getvalue()


def _machine(gaps: List[tuple], choices: List[List[str]]) -> str:
    return "".join(
        f"{number}{letter}) {before} [{choice}] {after}\n"
        for number, ((before, after), some) in enumerate(zip(gaps, choices))
        for letter, choice in zip("abcde", some)
    )


def check_choices(
    result: Result, out: Path, want: Optional[list], answered: bool, model: Reference
) -> None:
    rows = list(csv.DictReader(io.StringIO(out.read_bytes().decode(), newline="")))
    assert rows and len({row["id"] for row in rows}) == len(rows)
    for name in ("unnormalized", "exact"):
        if name not in rows[0]:
            continue
        scores = np.array([[float(row[f"{name}_{c}"]) for c in "abcde"] for row in rows])
        assert np.isfinite(scores).all()
        chosen = np.array(["abcde".index(row[name]) for row in rows])
        assert (scores.max(1) - scores[np.arange(len(rows)), chosen] < 1e-5).all()
        if want is not None and name == "exact":
            close(scores, [[model.score(words, True) for words in some] for some in want])
    for right, asked in re.findall(r"(\d+) of (\d+) right", result.output.decode()):
        assert int(right) <= int(asked) == len(rows)
    assert answered == (b" right, " in result.output)


CASES = {"score": score_case, "rescore": rescore_case, "complete": complete_case}
