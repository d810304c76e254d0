"""bench.py peers, with a stand-in for the trained programs."""

import json
import math
import shutil

import bench
import numpy as np
from experiments.benches import peers
from pytest import approx


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)


def test_a_network_is_mixed_with_kenlm_word_by_word(language_model, made, corpus, tmp_path):
    checkpoint = language_model("rnn_lm")
    text, runs, kenlm = (tmp_path / name for name in ("text", "runs", "kenlm"))
    for folder in (text, kenlm, runs / "one" / "checkpoints"):
        folder.mkdir(parents=True)
    shutil.copy(checkpoint, runs / "one" / "checkpoints" / "checkpoint_last.pt")
    for split in peers.SPLITS:
        shutil.copy(corpus.parent / f"{split}.txt", text)
    run = {"label": "a", "seed": 1, "updates": 2, "processor_seconds": 3, "folder": "one"}
    (runs / "comparison.json").write_text(json.dumps({"runs": [run]}), "utf-8")
    # Every word has probability 0.1 by these n-grams.
    query = """awk '{n += NF + 1; for (i = 0; i <= NF; i++) printf "w=1 1 -1\\t"; print ""}
        END {print "including OOVs: 10\\nTokens: " n}'"""
    program(kenlm / "query", query)
    for name in ("lmplz", "build_binary"):
        program(kenlm / name, 'for last; do :; done; : > "$last"')
    out = tmp_path / "out"
    flags = ["--out", out, "--kenlm", kenlm, "--mix", runs / "comparison.json", "--running"]
    assert bench.main(["peers", str(text), *map(str, flags)]) == 0
    found = json.loads((out / "peers.json").read_text("utf-8"))["mixtures"][0]
    lines = (text / "valid.txt").read_text("utf-8").splitlines()
    for way, is_document in (("lines", False), ("running", True)):
        scores = made("rnn_lm", exact=True).score_stream(lines, document=is_document)
        network = np.concatenate([score.log_probs for score in scores])
        measured = found[way]["valid"]
        assert measured["network"] == approx(math.exp(-network.mean()), rel=1e-5)
        assert measured["ngrams"] == approx(10)
        weight = measured["weight"]
        mixed = np.log(weight * np.exp(network) + (1 - weight) * 0.1)
        assert measured["mixed"] == approx(math.exp(-mixed.mean()), rel=1e-5)
