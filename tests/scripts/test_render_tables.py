"""scripts/render_tables.py: tables and marked figures of the pages are the committed files'."""

import json
import re
from pathlib import Path

import pytest
import render_tables
from experiments.command import UsageError
from rendering.tables import TABLES

ROOT = Path(__file__).resolve().parents[2]

MARKER = re.compile(r"<!-- table: (\S+) from (.+?) -->")
PLACE = re.compile(r"^<!-- table: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_table_and_figure_is_that_of_its_files(capsys):
    assert render_tables.main(["--check"]) == 0, capsys.readouterr().out


def test_a_column_of_numbers_comes_from_a_file():
    """Tables that people write explain flags and the like; their columns are left-aligned."""
    for page in PAGES:
        by_hand = PLACE.sub("", page.read_text("utf-8"))
        assert not re.findall(r"^\|.*---:.*\|$", by_hand, re.MULTILINE), page


def test_every_file_of_results_and_every_table_is_on_a_page():
    named, used = set(), set()
    for page in PAGES:
        text = page.read_text("utf-8")
        files = [file for _, some in MARKER.findall(text) for file in some.split(",")]
        files += re.findall(r"\]\((\S+?\.json)\)", text)  # links
        files += re.findall(r"(\S+?\.json)#", text)  # figures in sentences
        named |= {table for table, _ in MARKER.findall(text)}
        used |= {path.resolve() for one in files for path in page.parent.glob(one.strip())}
    assert named == set(TABLES)
    assert not {*(ROOT / "docs").rglob("*.json*")} - used


def test_a_changed_digit_is_found_and_corrected(tmp_path, capsys):
    (tmp_path / "a.json").write_text('{"rows": {"bnce, exact": {"ppl": 98.04}}}', "utf-8")
    page = tmp_path / "page.md"
    page.write_text("<!-- table: quickstart from a.json -->\n<!-- end -->\n", "utf-8")
    assert render_tables.main([str(page)]) == 0
    text = page.read_text("utf-8")
    page.write_text(text.replace("98.0", "98.1"), "utf-8")
    assert render_tables.main(["--check", str(page)]) == 1
    assert "-| bnce, exact | 98.1 |\n+| bnce, exact | 98.0 |" in capsys.readouterr().out
    assert render_tables.main([str(page)]) == 0 and page.read_text("utf-8") == text


RUNS = [
    {"label": "bnce@0.1", "seed": 1, "ppl": 120.0, "curve": [{"update": 500, "ppl": 180.0}]},
    {"label": "bnce@0.1", "seed": 2, "ppl": 124.0, "curve": [{"update": 500, "ppl": 190.0}]},
    {"label": "softmax", "seed": 1, "ppl": 1100.04, "curve": None},
]


def sentence(folder, figure, place, kind="="):
    """Write a page with a figure and its mark."""
    (folder / "a.json").write_text(json.dumps({"runs": RUNS}), "utf-8")
    page = folder / "page.md"
    page.write_text(f"It was at {figure}<!-- {kind} {place} --> then.\n", "utf-8")
    return page


FIGURES = [
    ("1", "a.json#runs/label=bnce@0.1/ppl", "122"),  # the mean
    ("1.0", "sd a.json#runs/label=bnce@0.1/ppl", "2.8"),
    ("1", "min a.json#runs/ppl", "120"),
    ("1.0", "a.json#runs/curve/update=500/ppl", "185.0"),
    ("1.0", "a.json#runs/label=softmax/ppl / #runs/label=bnce@0.1/ppl", "9.0"),
    ("1.0", "a.json#runs/seed=2/ppl over a.json#runs/label=bnce@0.1/seed=1/ppl", "3.3"),
    ("1", "a.json#runs/seed=2/ppl under *.json#runs/seed=2/curve/ppl", "35"),
    ("1", "a.json#runs/seed=2/ppl of 200", "62"),
    ("1,200", "~ a.json#runs/label=softmax/ppl", "1,100"),
    ("+1.0", "a.json#runs/seed=2/ppl under 120", "−3.3"),
]


@pytest.mark.parametrize("figure, place, expected", FIGURES)
def test_a_figure_in_a_sentence_comes_from_its_file(figure, place, expected, tmp_path):
    page = sentence(tmp_path, figure, place.lstrip("~ "), "~" if place[0] == "~" else "=")
    changed = figure != expected
    assert render_tables.main(["--check", str(page)]) == changed
    assert render_tables.main([str(page)]) == 0
    assert page.read_text("utf-8").startswith(f"It was at {expected}<!-- ")
    assert render_tables.main(["--check", str(page)]) == 0


NO_NUMBERS = ["a.json#runs/seed=3/ppl", "a.json#runs/label", "b.json#runs/ppl"]


@pytest.mark.parametrize("place", NO_NUMBERS)
def test_a_figure_without_a_number_is_an_error(place, tmp_path):
    with pytest.raises((UsageError, FileNotFoundError)):
        render_tables.main([str(sentence(tmp_path, "1", place))])


# What the committed files do not show.


def run(label, points, seed=1, **others):
    """Return a run that was validated at (update, processor seconds, perplexity)."""
    curve = [{"update": u, "processor_seconds": s, "ppl": p} for u, s, p in points]
    update, seconds, _ = points[-1]
    numbers = {"updates": update, "processor_seconds": seconds, **others}
    return {"label": label, "seed": seed, "train": {"curve": curve}, **numbers}


def test_the_longest_runs_are_compared_at_equal_time():
    grid = [
        run("adaptive@0.1", [(500, 100, 200.0)]),
        run("adaptive@0.05", [(500, 100, 180.0), (1000, 200, 150.0)]),
        {"label": "bnce@0.2", "seed": 1, "failed": "lost"},
    ]
    longer = [(500, 50, 160.0), (1000, 100, 140.0)]
    seeds = [run("bnce@0.05", longer), run("bnce@0.05", [*longer[:1], (1000, 110, 144.0)], seed=2)]
    files = {"runs": grid}, {"runs": [run("bnce@0.05", longer[:1]), *seeds]}
    assert TABLES["methods-1000"](*files)[2:] == [
        "| `adaptive_loss` | 0.05 | 180.0 | 150.0 |",
        "| `bnce --row-sparse` | 0.05 | 160.0 | 142.0 ± 2.8 |",
    ]
    head, _, *lines = TABLES["adaptive-equal-time"](*files)
    assert head == "| validation PPL after | 50 s | 100 s |"
    own = "| `bnce --row-sparse` | 160.0 | 143.3 ± 4.6 |"
    assert lines == ["| `adaptive_loss` | – | 180.0 |", own]


def committed(name):
    return json.loads((ROOT / "docs/results" / name).read_text(encoding="utf-8"))


def test_claims_of_the_pages_about_speech():
    """Unnormalised scores are as good as exact ones, and better than none, beyond chance."""
    found = committed("rescoring/speech.json")["differences"]
    assert abs(found["unnormalized - exact"][0]) < 0.2
    assert all(found[f"unnormalized - {name}"][2] < 0 for name in ("first", "trigram"))
    found = committed("decoding/first-pass.json")["differences"]
    for name in ("flashlight", "pyctcdecode"):
        assert abs(found[f"{name} ours - {name} ours exact"][0]) < 0.2
