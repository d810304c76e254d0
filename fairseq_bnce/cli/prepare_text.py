"""Prepare binarised data for fairseq's language models, from text files.

Each line of text is one sentence, or another unit that the model is to see.
The steps are: tokenise, split into train, valid and test, count the words of
train, cut the vocabulary, write <unk> for every other word, and run
fairseq-preprocess, which ends every line with one </s>.

The result is a folder with text/ (what the model sees, as words), bin/ (for
fairseq-train) and report.json (settings and counts). The folder appears when
everything has succeeded, not before.

  fairseq-bnce prepare-text --train a.txt b.txt --valid c.txt --out data
  fairseq-bnce prepare-text --input a.txt --split 0.8 0.1 0.1 --out data
"""

from __future__ import annotations

import argparse

from fairseq_bnce.data import options as text_options
from fairseq_bnce.data import results
from fairseq_bnce.data.preparation import prepare

add_arguments = text_options.add_arguments


def run(options: argparse.Namespace) -> None:
    """Check everything, make the result, move it to its place and report."""
    out = options.out.resolve()
    text_options.check_sources(options)
    text_options.check_settings(options)
    inputs = [*text_options.input_files(options), *filter(None, [options.dict])]
    results.check_output(out, options.overwrite, inputs)
    with results.replaced_result(out) as scratch:
        report = prepare(options, scratch)
    results.print_report(report, options.out)
