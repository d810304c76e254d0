"""scripts/recipe.py: every table's rows, then the command itself on a tiny corpus."""

import json
import re
import shlex

import forks
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options, utils
from recipe import all_tables
from tools import PLUGIN, write_lines

from fairseq_bnce.tasks.streams import stream_batches

TABLES = all_tables()
# Small enough for a test, for each family of architectures.
SMALL = {
    "rnn": "--decoder-embed-dim 8 --decoder-hidden-size 8",
    "lbl": "--decoder-embed-dim 8",
}
QUICK = (
    "--tokens-per-sample 8 --batch-size 4 --batch-size-valid 4 --max-epoch 1 --max-update 20 "
    "--log-interval 5 --cpu"
)


def recipe(*arguments):
    """Return the exit status and the output."""
    return forks.script("recipe.py", *arguments)


def test_every_table_is_listed_and_shows_all_numbers_of_its_paper():
    status, output = recipe("--list")
    assert status == 0
    shown = {column[1] for table in TABLES.values() for column in table.columns}
    for name, table in TABLES.items():
        assert f"{name}: {table.title}" in output
        labels = [row.variant.label for row in table.rows]
        assert len(set(labels)) == len(labels)
        assert all(set(row.paper) <= shown for row in table.rows)
    assert {"gm2018_table1", "ok2017_table2", "zoph2016_obwb", "mt2012_ptb"} <= set(TABLES)


def test_fairseq_takes_the_flags_of_every_row(corpus):
    """One row of each criterion and set of flags' names."""
    kinds = {}
    for table in TABLES.values():
        for row in table.rows:
            line = [*table.regime.training, *row.variant.flags]
            names = (word for word in line if word.startswith("--"))
            kinds[(row.variant.criterion, *names)] = (table, row)
    utils.import_user_module(type("Options", (), {"user_dir": str(PLUGIN)}))
    parser = [str(corpus), "--user-dir", str(PLUGIN), "--task", "language_modeling"]
    for table, row in kinds.values():
        command = [*parser, "--criterion", row.variant.criterion, *table.regime.training]
        command += row.variant.flags
        found = options.parse_args_and_arch(options.get_training_parser(), command)
        assert found.criterion == row.variant.criterion


@pytest.fixture(scope="module")
def reproduced(corpus, tmp_path_factory):
    """Two rows of a table: (arguments, folder, exit status, output)."""
    out = tmp_path_factory.mktemp("recipe")
    places = ["--data", corpus, "--out", out, "--device", "cpu"]
    flags = ["--", *shlex.split(f"{SMALL['rnn']} {QUICK}")]
    table = ["gm2018_table5", *places, "--rows", "softmax-30", "nce-30", *flags]
    return (places, flags, out, *recipe(*table))


def content(out, name):
    found = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    return {row["label"]: row for row in found["rows"]}


def checkpoint(out, label):
    (found,) = out.glob(f"runs/{label}-seed1-*/checkpoints/checkpoint_best.pt")
    return found


def entropies_and_partitions(path):
    """Of p(. | c) and log Z_c in all contexts of the validation data, as 20 streams are read."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    task.load_dataset("valid")
    dataset, scores = task.dataset("valid"), []
    batches = stream_batches(len(dataset), 20, 1)
    for stream in range(20):
        blocks = [dataset[batch[stream]]["source"] for batch in batches if stream < len(batch)]
        model.decoder.carried_state = None
        with torch.no_grad():
            scores.append(model.eval()(torch.cat(blocks)[None])[0][0])
    scores = torch.cat(scores).double().numpy()
    log_z = np.logaddexp.reduce(scores, axis=1)
    log_p = scores - log_z[:, None]
    return -(np.exp(log_p) * log_p).sum(axis=1), log_z


def test_a_table_has_our_numbers_beside_the_papers(reproduced):
    _, _, out, status, output = reproduced
    assert status == 0, output
    rows = content(out, "gm2018_table5")
    for label in ("softmax-30", "nce-30"):
        ours = rows[label]["ours"]
        entropy, log_z = entropies_and_partitions(checkpoint(out, label))
        assert ours["entropy"] == pytest.approx(entropy.mean(), rel=1e-5)
        assert ours["mu_z"] == pytest.approx(log_z.mean(), abs=1e-5)
        assert ours["sigma_z"] == pytest.approx(log_z.std(), rel=1e-4)
        correlation = np.corrcoef(entropy, log_z)[0, 1]
        assert ours["entropy_correlation"] == pytest.approx(correlation, abs=1e-3)
    assert rows["bnce-30"]["ours"] is None
    assert rows["nce-30"]["paper"]["valid_ppl"] == 267.6
    text = (out / "gm2018_table5.md").read_text(encoding="utf-8")
    assert text in output and "| `bnce-30` | – |" in text


def test_tables_share_runs_and_a_row_that_dies_is_in_the_table(reproduced):
    """The two rows that both have are taken from disk; one of another table dies."""
    places, flags, out, *_ = reproduced
    arguments = [*places, "--rows", "bnce-30", "nce-30", "softmax-30", *flags]
    status, output = recipe("gm2018_table1", *arguments)
    assert status == 0, output
    assert re.findall(r"(\S+)-seed1: train", output) == ["bnce-30"]
    rows, first = content(out, "gm2018_table1"), content(out, "gm2018_table5")
    for label in ("softmax-30", "nce-30"):
        assert rows[label]["ours"]["valid_ppl"] == first[label]["ours"]["valid_ppl"]
    found = rows["softmax-30"]["ours"]["valid_ppl"]
    text = (out / "gm2018_table1.md").read_text(encoding="utf-8")
    assert f"| `softmax-30` | {found:.1f} | 243.4 | " in text
    broken = [*flags, "--no-such-flag", "3"]
    status, output = recipe("gm2018_table2", *places, "--rows", "dev-30", *broken)
    assert status == 1 and "failed" in content(out, "gm2018_table2")["dev-30"]
    assert "runs/dev-30-seed1-" in (out / "gm2018_table2.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_sentence_completion_is_measured(corpus, tmp_path):
    questions, answers = tmp_path / "questions.csv", tmp_path / "answers.csv"
    right = "cadbebca"
    asked = [f"{n},w{n} _____ w2,w3,w4,w5,w6,w7" for n in range(len(right))]
    write_lines(questions, ["id,question,a),b),c),d),e)", *asked])
    write_lines(answers, ["id,answer", *(f"{n},{letter}" for n, letter in enumerate(right))])
    places = ["--data", corpus, "--out", tmp_path / "out", "--rows", "bnce-200"]
    flags = ["--", *shlex.split(f"{SMALL['rnn']} --max-update 20")]
    asked = ["--questions", questions, "--answers", answers]
    status, output = recipe("gm2018_mscc", *places, *asked, *flags)
    assert status == 0, output
    ours = content(tmp_path / "out", "gm2018_mscc")["bnce-200"]["ours"]
    (answered,) = tmp_path.glob("out/runs/*/complete.json")
    found = json.loads(answered.read_text("utf-8"))
    keys = {"accuracy": "exact", "u_accuracy": "unnormalized", "choices_that_differ": "differ"}
    assert all(ours[name] == 100 * found[key]["share"] for name, key in keys.items())
    assert found["exact"]["share"] * 8 in range(9)


FAMILIES = {
    "mt2012_ptb": ("uniform-25", SMALL["lbl"]),
    "ok2017_table4": ("bnce-ffnn", SMALL["rnn"]),
    "zoph2016_obwb": ("shared_nce-100", SMALL["rnn"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_trains_and_scores(corpus, tmp_path, name):
    row, small = FAMILIES[name]
    flags = ["--", *shlex.split(f"{small} {QUICK}"), "--num-workers", "0"]
    status, output = recipe(name, "--data", corpus, "--out", tmp_path, "--rows", row, *flags)
    assert status == 0, output
    found = content(tmp_path, name)[row]
    best = min(point["ppl"] for point in found["curve"])
    assert found["ours"]["valid_ppl"] == pytest.approx(best, rel=1e-3)
