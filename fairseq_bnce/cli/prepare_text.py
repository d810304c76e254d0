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

from fairseq_bnce.data.preparation import options as text_options
from fairseq_bnce.data.preparation.folder import (
    check_inputs,
    check_output,
    failures_named,
    install,
    staging_folder,
)
from fairseq_bnce.data.preparation.pipeline import prepare
from fairseq_bnce.data.preparation.report import print_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See :mod:`fairseq_bnce.data.preparation.options`."""
    text_options.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Check everything, make the result, move it to its place and report."""
    out = options.out.resolve()
    with failures_named():
        text_options.check_sources(options)
        text_options.fill_in(options)
        text_options.check_requirements(options)
        check_output(out, options.overwrite)
        check_inputs(out, [*text_options.inputs(options), *filter(None, [options.dict])])
        with staging_folder(out) as scratch:
            report = prepare(options, scratch)
            check_output(out, options.overwrite)
            install(scratch / "result", out, scratch)
    print_report(report, options.out)
    return 0
