"""scripts/frontier.py and the table beside its pictures: which systems are compared."""

import json
import re
from pathlib import Path

import frontier
import pytest
from experiments import plot

ROOT = Path(__file__).resolve().parents[2]

PTB, NOVELS = "843bee06371f", "2e5455782f16"
SLOW = [(1.0, 50.0), (3.0, 40.0), (5.0, 45.0)]
FAST = [(2.0, 45.0), (4.0, 35.0), (6.0, 34.0)]


def run(label, ppl=None, sigma_z=None, seed=1, points=(), flags=(), machine="M", **others):
    """Return a training, validated at (processor seconds, perplexity), scored if ppl is given."""
    keys = ("processor_seconds", "ppl")
    training = {"curve": [dict(zip(keys, p)) for p in points], "hardware": {"processor": machine}}
    found = {"label": label, "seed": seed, "flags": list(flags), "train": training, "updates": 1000}
    scores = {"valid_ppl": ppl, "sigma_z": sigma_z, "processor_seconds": 10.0}
    return {**found, **({"test_ppl": 1.0, **scores} if ppl else {}), **others}


def compared(*runs, data=PTB, flags=()):
    found = {"recipe": {"name": "rnn200"}, "data": {"fingerprint": data}, "flags": list(flags)}
    return {**found, "runs": list(runs)}


def row(label, arch, ours=None, paper=(), flags=()):
    keys = ("valid_ppl", "sigma_z")
    scores = ours and {**dict(zip(keys, ours)), "processor_seconds": 5.0}
    found = {"label": label, "flags": ["--arch", arch, *flags], "ours": scores}
    trained = {"seed": 1, "curve": [], "hardware": {"processor": "M"}} if ours else {}
    return {**found, "paper": dict(zip(keys, paper)), **trained}


def reproduced(*rows):
    found = {"title": "One & Other (2018), table 1: all", "data": {"fingerprint": PTB}}
    return {**found, "flags": [], "rows": list(rows)}


def labels(contents):
    """Return {family: {group: [(label, whether it is ours)]}}."""
    found: dict = {}
    for family, groups in frontier.families(contents).items():
        for name, group in groups.items():
            found.setdefault(family, {})[name] = [(one.label, bool(one.runs)) for one in group]
    return found


def test_committed_pictures_are_of_the_committed_numbers(capsys):
    assert frontier.main(["--check"]) == 0, capsys.readouterr().out
    text = (ROOT / "docs/results/frontier.md").read_text("utf-8")
    shown = re.findall(r"\]\(frontier/(.+?)\)", text)
    assert sorted(shown) == sorted(path.name for path in (ROOT / "docs/results/frontier").iterdir())


def test_systems_of_one_corpus_model_and_length_are_a_group():
    runs = [run("a", 90.0, 0.5), run("b", 80.0, 0.9), run("alone", 85.0, 0.7, updates=2000)]
    runs += [run("unscored"), {"label": "dead", "seed": 1, "flags": [], "failed": "lost"}]
    pair = runs[:2]
    contents = [compared(*runs), compared(*pair, data=NOVELS)]
    contents.append(compared(*pair, flags=["--lr", "0.1", "--dropout", "0.3"]))
    warm = ["--optimizer", "sparse_adagrad", "--warmup-updates", "100"]
    cold = run("b", 80.0, 0.9, flags=["--warmup-updates", "0"], updates=3000)
    contents += [compared(run("a", 90.0, 0.5, updates=3000), cold, flags=warm)]
    contents += [[1, 2], {"speeds": []}, {"models": {"m": {"exact": {}}}}]  # other results
    both, name = [("a", True), ("b", True)], "fused LSTM 2 × 200, 1,000 updates"
    warmed = "fused LSTM 2 × 200, Adagrad, 3,000 updates, bnce with a warm-up"
    assert labels(contents) == {
        "PTB": {name: both, f"{name}, dropout 0.3": both, warmed: both},
        "novels": {name: both},
    }


def test_seeds_are_averaged_and_a_training_in_two_files_counts_once():
    first, other = run("a", 90.0, 0.5), run("b", 80.0, 0.9)
    again, second = run("a", 92.0, 0.7), run("a", 96.0, 0.9, seed=2)
    (group,) = frontier.families([compared(first, other), compared(again, second)])["PTB"].values()
    a, b = group
    assert (a.ppl, a.sigma_z, a.runs) == (94.0, pytest.approx(0.8), 2)
    assert (b.label, b.runs) == ("b", 1)


def write(docs, name, content):
    (docs / name).write_text(json.dumps(content), "utf-8")


def test_pictures_are_drawn_again_when_a_number_changes(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    docs = ["--docs", str(tmp_path)]
    (tmp_path / "frontier").mkdir()
    runs = [run("a", 90.0, 0.5, points=SLOW), run("b", 80.0, 0.9, points=FAST)]
    write(tmp_path, "one.json", compared(*runs))
    write(tmp_path, "two.json", reproduced(row("n-30", "gm30", (250.0, 0.1), (240.0, 0.2))))
    names = ["one-other-2018-ptb.png", "ptb-time.png", "ptb.png"]
    assert frontier.main(["--check", *docs]) == 1
    assert frontier.main(docs) == 0
    assert sorted(path.name for path in (tmp_path / "frontier").iterdir()) == names
    assert frontier.main(["--check", *docs]) == 0
    capsys.readouterr()

    write(tmp_path, "one.json", compared(run("a", 90.1, 0.5, points=SLOW), runs[1]))
    write(tmp_path, "two.json", {})
    assert frontier.main(["--check", *docs]) == 1
    named = re.findall(r"\S+\.png", capsys.readouterr().out)
    assert sorted(named) == [names[0], names[2]]  # the curves did not change


def test_a_panel_shows_six_lines_and_a_method_has_one_colour():
    many = ["bnce", "bnce+800", "nce", "dev", "dev0.1", "dev10", "ranking", "softmax", "and"]
    assert plot.chosen(many) == ["softmax", "bnce", "ranking", "nce", "dev", "and"]
    assert plot.chosen(["b", "a"]) == ["a", "b"]
    alike = ("cross_entropy", "softmax"), ("bnce", "bnce_sparse", "bnce+800"), ("dev", "dev0.1")
    places = [{plot.method(label) for label in labels} for labels in alike]
    assert all(len(one) == 1 for one in places) and len(set.union(*places)) == 3
