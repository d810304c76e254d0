"""scripts/frontier.py: the pictures of the pages are of the committed numbers."""

import json
import re
import shutil
from pathlib import Path

import frontier
import pytest
from experiments import plot

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_committed_pictures_are_of_the_committed_numbers(capsys):
    assert frontier.main(["--check"]) == 0, capsys.readouterr().out
    shown = set()
    for page in (DOCS.parent / "README.md", *DOCS.rglob("*.md")):
        paths = re.findall(r"\]\((\S+\.png)\)", page.read_text("utf-8"))
        shown |= {(page.parent / path).resolve().relative_to(DOCS) for path in paths}
    assert set(map(Path, frontier.PICTURES)) <= shown
    assert shown == {path.relative_to(DOCS) for path in DOCS.rglob("*.png")}


def test_pictures_are_drawn_again_when_a_number_changes(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    docs = ["--docs", shutil.copytree(DOCS, tmp_path / "docs")]
    path = docs[1] / "results/adaptive/ptb/transformer-longer.json"
    changed = json.loads(path.read_text("utf-8"))
    changed["runs"][0]["train"]["curve"][-1]["ppl"] -= 1
    path.write_text(json.dumps(changed), "utf-8")
    docs = list(map(str, docs))
    assert frontier.main(["--check", *docs]) == 1
    assert re.findall(r"\S+\.png", capsys.readouterr().out) == ["ptb-time.png"]
    assert frontier.main(docs) == 0
    assert frontier.main(["--check", *docs]) == 0


def test_seeds_are_averaged_and_a_training_in_two_files_counts_once(tmp_path):
    """What is trained anew takes the earlier file's place; a curve has the first seed only."""

    def run(seed, ppl, seconds=3.0):
        points = ((1.0, 50), (2.0, 60), (seconds, 9))
        curve = [{"processor_seconds": s, "ppl": p} for s, p in points]
        found = {"label": "a@0.1", "seed": seed, "train": {"curve": curve}}
        return {**found, "valid_ppl": ppl, "sigma_z": 0.5}

    for name, runs in (("1", [run(1, 90.0)]), ("2", [run(1, 92.0, 5.0), run(2, 96.0)])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"runs": runs}), "utf-8")
    groups = {"group": ["*.json#runs/label=*"]}
    shown, _ = frontier.picture({"title": "", "clouds": groups}, tmp_path)
    assert shown[1]["points"] == [(0.5, 94.0, "a")]
    shown, _ = frontier.picture({"title": "", "curves": groups}, tmp_path)
    assert shown[0]["lines"] == [("a", [(1.0, 50), (3.0, 9)])]


def test_a_panel_shows_six_lines_and_a_method_has_one_colour():
    many = ["bnce", "bnce+800", "nce", "dev", "dev0.1", "dev10", "ranking", "softmax", "and"]
    assert plot.chosen(many) == ["softmax", "bnce", "ranking", "nce", "dev", "and"]
