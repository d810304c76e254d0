"""bench.py decoding: its lexicon, emissions and trigram, its systems, a small run."""

import json

import bench
import numpy as np
import pytest
from decoders import made
from rendering.cells import NAMES
from rendering.tables import TABLES
from tools import write_lines


def test_what_is_made():
    (spellings, one, _), (again, others, _) = (made.make(500, 3, 5) for _ in range(2))
    assert spellings == again and len(set(map(tuple, spellings))) == 500
    for emissions, other in zip(one, others):
        np.testing.assert_array_equal(emissions, other)
        np.testing.assert_allclose(np.exp(emissions).sum(axis=1), 1, rtol=1e-5)
    emissions = made.emit(spellings[:5], np.random.default_rng(2))
    tokens = [token for spelling in spellings[:5] for token in spelling]
    assert emissions.shape == (2 * len(tokens), len(made.TOKENS))
    assert (emissions.argmax(axis=1)[::2] == tokens).mean() > 0.5


TASK = {"utterances": 4, "length": 4, "seconds": 60, "lexicon": 1000}


@pytest.fixture
def measured(language_model, corpus, tmp_path):
    """What one system takes to decode, in this process."""
    lines = (corpus / "dict.txt").read_text("utf-8").splitlines()
    write_lines(tmp_path / "dict.txt", lines)
    write_lines(tmp_path / "train.txt", [" ".join(line.split()[0] for line in lines)])

    def decode(system):
        places = language_model("lstm_lm"), tmp_path, tmp_path / "arpa"
        return made.measure(system, *places, **TASK)

    return decode


def test_ours_decodes_as_fairseqs_way_does(measured):
    exact, prefix, kenlm = map(measured, ("ours exact", "prefix", "kenlm"))
    assert exact["texts"] == prefix["texts"] and all(exact["texts"]) and all(kenlm["texts"])
    assert all(run["utterances"] == 3 for run in (exact, prefix, kenlm))


@pytest.mark.slow
def test_a_small_run(tmp_path, capsys):
    """The printed table is that of the file."""
    arguments = ["decoding", "--out", str(tmp_path), "--vocab", "200", "--tokens", "4000"]
    arguments += ["--lexicon", "150", "--utterances", "3", "--length", "3", "--repeats", "1"]
    assert bench.main(arguments) == 0
    found = json.loads((tmp_path / "decoding.json").read_text(encoding="utf-8"))
    assert "\n".join(TABLES["decoding-speed"](found)) in capsys.readouterr().out
    assert [run["system"] for run in found["runs"]] == list(NAMES["searched"])
    assert all(run["utterances"] == 2 and run["peak_mib"] > 50 for run in found["runs"])
