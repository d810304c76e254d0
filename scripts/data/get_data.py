#!/usr/bin/env python3
"""From the original archive of a well-known corpus to the data that fairseq-train takes.

    python scripts/data/get_data.py ptb --out data/ptb
    python scripts/data/get_data.py obwb --source 1-billion-word-...tar.gz --out data/obwb
    python scripts/data/get_data.py ltcb --out data/ltcb -- --vocab-size 40000

Without --source the archive is looked for in --cache, and downloaded to it if need be. The
result is scripts/prepare_text.py's: ``text/``, ``bin/`` and ``report.json``; options behind
``--`` go to it and override the recipe's. docs/data.md says how each corpus is read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Iterator, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # prepare_text, and this package

from preparation import options as text_options  # noqa: E402
from preparation.command import exit_status  # noqa: E402
from preparation.folder import check_output, install, staging_folder  # noqa: E402
from preparation.report import print_report  # noqa: E402
from preparation.splits import SPLITS  # noqa: E402
from prepare_text import prepare  # noqa: E402

from data import fetch, novels  # noqa: E402
from data.corpora import CORPORA, WHOLE, Corpus, Published  # noqa: E402
from data.fetch import DataError  # noqa: E402

PROGRAM = "get_data.py"


# ---------------------------------------------------------------- comparison


def comparisons(published: Published, report: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """(what, published, here) of every count that is known."""
    splits = report["splits"]
    if published.types is not None:
        yield "types", published.types, splits["train"]["types"] + published.markers
    for split, tokens in published.tokens.items():
        if split in splits:
            yield f"{split} tokens", tokens, splits[split]["tokens"]
    if published.words is not None:
        words = sum(found["tokens"] - found["lines"] for found in splits.values())
        yield "words in all splits", published.words, words


def verdict(what: str, expected: int, found: int) -> str:
    """One line about one count."""
    if expected == found:
        return f"{what}: {found:,}, as published"
    return f"warning: {what}: {expected:,} are published, but came {found:,}"


# ---------------------------------------------------------------- preparing


def text_settings(corpus: Corpus, args: argparse.Namespace, raw: Path) -> argparse.Namespace:
    """prepare_text.py's settings for the text files in ``raw``, checked but for these files."""
    command = ["--out", str(args.out), "--tokenized", *corpus.options]
    command += ["--workers", str(args.workers)]
    for name in corpus.files:
        command += [f"--{name}", str(raw / name)]
    command += ["--overwrite"] * args.overwrite + ["--text-only"] * args.text_only
    settings = text_options.make_parser().parse_args([*command, *args.options])
    if settings.split:
        text_options.check_split(settings.split)
    text_options.check_requirements(settings)
    return settings


def prepare_questions(args: argparse.Namespace, result: Path, scratch: Path) -> None:
    """The questions in the vocabulary of the result, binarised as a split of their own."""
    folder = scratch / "questions"
    folder.mkdir()
    text = novels.write_questions(args.questions, args.answers, folder)
    dictionary = result / ("text" if args.text_only else "bin") / "dict.txt"
    command = ["--tokenized", "--test", str(text), "--dict", str(dictionary)]
    command += ["--out", str(folder), "--workers", "1", *["--text-only"] * args.text_only]
    prepare(text_options.make_parser().parse_args(command), folder)
    (folder / "result").rename(result / "questions")
    if args.answers:
        (folder / "answers.txt").rename(result / "questions" / "answers.txt")


def make(corpus: Corpus, source: Path, args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Make the result in ``scratch / "result"``; return prepare_text.py's report, completed."""
    raw = scratch / "raw"
    raw.mkdir()
    corpus.write(source, raw)
    settings = text_settings(corpus, args, raw)
    text_options.check_sources(settings)
    report = prepare(settings, scratch)
    if args.questions:
        prepare_questions(args, scratch / "result", scratch)
    for name in (*SPLITS, WHOLE):  # they named files that are gone by then
        del report["settings"][name]
    report["corpus"] = {
        "name": args.corpus,
        "title": corpus.title,
        "source": source.name,
        "counts": [
            {"what": what, "published": expected, "here": found}
            for what, expected, found in comparisons(corpus.published, report)
        ],
    }
    text = json.dumps(report, indent=1, default=str, ensure_ascii=False)
    (scratch / "result" / "report.json").write_text(text + "\n", encoding="utf-8")
    return report


def check_questions(args: argparse.Namespace) -> None:
    """Refuse questions without a use, before the work."""
    if args.answers and not args.questions:
        raise DataError("--answers: --questions is required with it, but was not given")
    if args.questions and args.corpus != "mscc":
        raise DataError(f"--questions: the corpus mscc is required, but came {args.corpus}")
    for path in (args.questions, args.answers):
        if path and not path.is_file():
            raise DataError(f"a table (CSV) is required, but {path} is not a file")


def run(args: argparse.Namespace) -> None:
    """Find the archive, make the result, move it to its place and report."""
    corpus = CORPORA[args.corpus]
    check_questions(args)
    out = args.out.resolve()
    check_output(out, args.overwrite)
    text_settings(corpus, args, Path())  # what is wrong with the options, before a long download
    source = fetch.locate(corpus.archive, args.source, args.cache)
    print(f"{corpus.title}: {source}")
    with staging_folder(out) as scratch:
        report = make(corpus, source, args, scratch)
        install(scratch / "result", out, scratch)
    print_report(report, args.out)
    if args.questions:
        print(f"questions: {args.out / 'questions'}")
    for line in comparisons(corpus.published, report):
        print(verdict(*line))


# ---------------------------------------------------------------- command line


def make_parser() -> argparse.ArgumentParser:
    """The command line of this script."""
    parser = argparse.ArgumentParser(
        description="Turn the archive of a well-known corpus into the data that fairseq-train "
        "takes.",
        epilog="Options behind -- go to scripts/prepare_text.py and override the recipe's.",
    )
    parser.add_argument("corpus", choices=sorted(CORPORA), help="which corpus")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="gets text/, bin/, report.json"
    )
    parser.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="a local copy of the original archive, or a folder with it or with its files",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("downloads"),
        metavar="FOLDER",
        help="where archives are downloaded to, and found again (default: %(default)s)",
    )
    parser.add_argument("--questions", type=Path, metavar="CSV", help="of mscc: its questions too")
    parser.add_argument("--answers", type=Path, metavar="CSV", help="of mscc: and their answers")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace earlier results in the folder"
    )
    parser.add_argument(
        "--text-only", action="store_true", help="write the text without fairseq-preprocess"
    )
    parser.add_argument(
        "--workers",
        type=text_options.at_least(1),
        default=text_options.usable_cpus(),
        metavar="N",
        help="processes (default: the processors there are)",
    )
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The settings, with what stands behind ``--`` as ``options``."""
    own = list(argv)
    options: list[str] = []
    if "--" in own:
        options = own[own.index("--") + 1 :]
        own = own[: own.index("--")]
    args = make_parser().parse_args(own)
    args.options = options
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 with a message on standard error, or 130 if interrupted."""
    args = parse(sys.argv[1:] if argv is None else argv)
    return exit_status(PROGRAM, lambda: run(args), DataError)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
