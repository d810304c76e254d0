"""The folder that prepare-text and get-data make, and the report on it."""

import contextlib
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Mapping, Sequence

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.tokens import BOS, EOS, PAD, UNK
from fairseq_bnce.text.writing import say

Report = Dict[str, Any]  # of a result
REPORT = "report.json"
RESULTS = ("text", "bin", REPORT)
# The shares of lines above or below which a text looks escaped, wrapped, or not cut at sentences.
ESCAPED, WRAPPED, ENDED = 0.01, 0.5, 0.35
NOTES = {
    "empty": "line(s) without a word, {kept}",
    "empty_files": "empty input file(s)",
    "cut": f"line break(s) made at a {BOS} or {EOS} inside a line",
    "pad": f"{PAD} in the text, written as {UNK}",
}

# ---------------------------------------------------------------- the folder


def check_output(
    out: Path, overwrite: bool, inputs: Iterable[object] = (), names: Sequence[str] = RESULTS
) -> None:
    """Refuse to replace anything but the result of an earlier run.

    Args:
        out: the output folder, an absolute path.
        overwrite: whether the result of an earlier run may be replaced.
        inputs: the files and folders that are read.
        names: the files and folders of a result.

    Raises:
        InputError: naming the folder.
    """
    found = {out / name for name in names if (out / name).exists()}
    if out.is_file() or not overwrite and any(out.glob("[!.]*")):
        required = "an empty or new folder"
        required += ", or --overwrite to replace an earlier result" if names else ""
        raise InputError(f"--out: required {required}, got {out}, which has data in it")
    folders = {path if path.name not in RESULTS else out for path in found}
    if not all((folder / REPORT).exists() for folder in folders):
        required = f"the result of an earlier run, with its {REPORT}"
        raise InputError(f"--overwrite: required {required}, got {out} with other data")
    for path in map(Path, map(str, inputs)):
        if found & {path.resolve(), *path.resolve().parents}:
            raise InputError(f"--out: required a folder other than that of {path}, got {out}")


@contextlib.contextmanager
def replaced_result(
    out: Path, overwrite: bool, inputs: Iterable[object] = (), names: Sequence[str] = RESULTS
) -> Iterator[Path]:
    """Make a scratch folder, and move its ``result`` to ``out`` at the end of the block.

    After an error or an interruption, ``out`` is as it was before. Arguments and errors are those
    of :func:`check_output`, which looks twice: another program may have written to ``out`` by then.
    """
    check_output(out, overwrite, inputs, names)
    parent = out if out.exists() else out.parent  # the same disk; out may be a disk of its own
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=parent) as folder:
        scratch = Path(folder)
        yield scratch
        check_output(out, overwrite, inputs, names)
        if not out.exists():
            (scratch / "result").rename(out)
            return
        (scratch / "replaced").mkdir()
        moves = [(out / name, scratch / "replaced" / name) for name in names]
        moves += [(new, out / new.name) for new in sorted((scratch / "result").iterdir())]
        with contextlib.ExitStack() as undo:
            for source, target in moves:
                if os.path.lexists(source):
                    undo.callback(_move_back, target, source)  # first: Ctrl-C may follow the move
                    source.rename(target)
            undo.pop_all()


def _move_back(path: Path, earlier: Path) -> None:
    if os.path.lexists(path):
        path.rename(earlier)


# ---------------------------------------------------------------- the report


def write_report(folder: Path, report: Report) -> None:
    """Write report.json. Bytes of a file's name that are not UTF-8 are escaped."""
    text = json.dumps(report, indent=1, default=str, ensure_ascii=False)
    (folder / REPORT).write_text(text + "\n", "utf-8", errors="backslashreplace")


def print_report(report: Report, out: Path) -> None:
    """Print the counts of a result, notes and warnings about its text, and its folders."""
    say(f"split{'lines':>14}{'types':>14}{'tokens':>14}{UNK:>14}{'rate':>9}")
    for split, found in report["splits"].items():
        counts = "".join(f"{count:>14,}" for count in found.values())
        say(f"{split:5}{counts}{found['unk'] / found['tokens']:>9.2%}")
    say(report["vocabulary"])
    for remark in _remarks(report):
        say(remark)
    say(f"text: {out / 'text'}")
    if not report["settings"]["text_only"]:
        say(f"binarised data: {out / 'bin'}")


def _remarks(report: Mapping[str, Any]) -> Iterator[str]:
    read, splits = Counter(report["read"]), report["splits"]
    kept = "kept" if report["settings"]["keep_empty_lines"] else "left out"
    yield f"note: {read['read']:,} line(s) read"
    for name, text in NOTES.items():
        if read[name]:
            yield f"note: {read[name]:,} {text.format(kept=kept)}"
    lack = [split for split, found in splits.items() if not found["unk"]]
    if lack[:1] == ["train"] and len(lack) < len(splits):
        yield (
            f"note: train has no {UNK}, but another split has: a model cannot learn to predict it "
            "(cut the vocabulary, for instance with --min-count 2)"
        )
    usable = read["usable"]
    if read["escaped"] > ESCAPED * usable:
        yield (
            f"warning: {read['escaped']:,} line(s) have Moses' escapes (&apos; or &quot;), which "
            "plain text does not have; unescape the text first"
        )
    if read["of_a_page"] > WRAPPED * usable and read["ended"] < ENDED * usable:
        yield (
            f"warning: {read['of_a_page']:,} line(s) have 60 to 80 characters, and few lines end "
            "a sentence: the text looks broken to fit a page; join the lines of a paragraph first"
        )
