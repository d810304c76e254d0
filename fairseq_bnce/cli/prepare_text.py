"""Turn text into the binarised data that fairseq's language models train on.

Each line of text is one sentence (or whatever unit the model is to see). The steps are: tokenise,
split into train, valid and test, count the words of train, cut the vocabulary, write <unk> for
every other word, and run fairseq-preprocess, which ends every line with one </s>.

The result is a folder with text/ (what the model sees, as words), bin/ (for fairseq-train) and
report.json (settings and counts). It appears when everything has succeeded, not before.

  fairseq-bnce prepare-text --train a.txt b.txt --valid c.txt --out data
  fairseq-bnce prepare-text --input corpus.txt --split 0.8 0.1 0.1 --out data
"""

from __future__ import annotations

import argparse

from fairseq_bnce.data import options as text_options
from fairseq_bnce.data.preparation import prepare
from fairseq_bnce.data.results import (
    check_output,
    print_report,
    replaced_result,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of :mod:`fairseq_bnce.data.options`."""
    text_options.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Check everything, make the result, move it to its place and report."""
    out = options.out.resolve()
    text_options.check_sources(options)
    text_options.check_settings(options)
    inputs = [*text_options.input_files(options), *filter(None, [options.dict])]
    check_output(out, options.overwrite, inputs)
    with replaced_result(out) as scratch:
        report = prepare(options, scratch)
    print_report(report, options.out)
    return 0
