"""scripts/render_tables.py: the pages' tables are those of the committed files."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import render_tables  # noqa: E402
from rendering import adaptive, cells, comparisons, pages  # noqa: E402

START = re.compile(r"^<!-- table: ", re.MULTILINE)


def test_every_table_is_that_of_its_files(capsys):
    assert render_tables.main(["--check"]) == 0, capsys.readouterr().out


def marked_pages():
    return [page for page in (ROOT / "docs").glob("*.md") if START.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", marked_pages(), ids=lambda page: page.name)
def test_a_changed_digit_is_found_and_mended(page, tmp_path, capsys):
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("*.png"))
    copy, text = docs / page.name, page.read_text("utf-8")
    # The last digit of the last row of every table, one after the other.
    for row in re.finditer(r"(\d)(\D*)\n<!-- end -->", text):
        digit = str((int(row[1]) + 1) % 10)
        copy.write_text(text[: row.start(1)] + digit + text[row.end(1) :], "utf-8")
        assert render_tables.main(["--check", str(copy)]) == 1
        assert digit + row[2] in capsys.readouterr().out
        assert render_tables.main([str(copy)]) == 0
        assert copy.read_text("utf-8") == text


@pytest.mark.parametrize(
    "text, message",
    [
        ("<!-- table: a from b.json -->\n", "required '<!-- table: NAME from FILE -->' ..."),
        ("<!-- table: a from b.json -->\n<!-- end -->\n", "table: required one of known, got a"),
        ("<!-- table: known from b.json -->\n<!-- end -->\n", "required b.json, got no such file"),
    ],
)
def test_what_cannot_be_filled_is_said(tmp_path, text, message):
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    with pytest.raises(pages.PageError) as error:
        pages.rendered(page, {"known": lambda found: []})
    assert message in str(error.value)


def test_a_place_is_filled_and_the_rest_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: t from f.json -->\nold\n<!-- end -->\nb\n", "utf-8")
    (tmp_path / "f.json").write_text("[1, 2]", "utf-8")
    filled = pages.rendered(page, {"t": lambda found: [str(sum(found)), "x"]})
    assert filled == "a\n<!-- table: t from f.json -->\n3\nx\n<!-- end -->\nb\n"


def test_numbers_are_rounded_and_signed_as_the_pages_have_them():
    assert cells.number(-1234.56, ",.1f") == "−1,234.6"
    assert cells.number(None, ".1f") == "–"
    assert cells.over(105.037, 100) == "5.04 %"
    assert cells.table(["", "x"], [["a", ""]]) == ["| | x |", "|---|---:|", "| a | |"]


# README.md's table of PTB has these rows; its markers are in the README itself.
def test_the_readmes_table_of_ptb():
    found = json.loads((ROOT / "docs" / "ptb" / "comparison.json").read_text("utf-8"))
    lines = comparisons.readme(found)
    assert lines[2] == "| cross_entropy | 133.7 | 127.1 | – | 1.32 | 3,183 | 10,438 → – |"
    assert lines[-1].startswith("| nce_regularized, α = 10 | 197.8 | 185.2 | 185.1 | 0.10 |")


# ---------------------------------------------------------------- learning-rate grids


def run(label, points, seed=1, **others):
    """A run that was validated at (update, processor seconds, perplexity)."""
    curve = [{"update": u, "processor_seconds": s, "ppl": p} for u, s, p in points]
    update, seconds, _ = points[-1]
    numbers = {"updates": update, "processor_seconds": seconds, **others}
    return {"label": label, "seed": seed, "train": {"curve": curve}, **numbers}


GRID = {
    "runs": [
        run("adaptive@0.1", [(500, 100, 200.0)]),
        run("adaptive@0.05", [(500, 100, 180.0), (1000, 200, 150.0)]),
        run("bnce@0.1", [(500, 50, 170.0)]),
        run("bnce@0.05", [(500, 50, 160.0)]),
        {"label": "bnce@0.2", "seed": 1, "failed": "lost"},
    ]
}
LONGER = {
    "runs": [
        run("bnce@0.05", [(500, 50, 160.0), (1000, 100, 140.0)], test_ppl=141.0),
        run("bnce@0.05", [(500, 50, 164.0), (1000, 110, 144.0)], seed=2, test_ppl=143.0),
    ]
}


def test_a_grid_shows_every_rate_at_equal_updates_and_the_best_in_bold():
    head, _, *lines = adaptive.grid(GRID)
    assert head == "| validation PPL after 500 updates, lr | 0.05 | 0.1 |"
    assert lines == [
        "| `adaptive_loss` | **180.0** | 200.0 |",
        "| `bnce --row-sparse` | **160.0** | 170.0 |",
    ]


def test_leaders_are_shown_with_their_longest_runs_and_all_seeds():
    head, _, *lines = adaptive.leaders(GRID, LONGER)
    assert head == "| | lr | valid PPL after 500 updates | valid PPL after 1,000 updates |"
    assert lines[0] == "| `adaptive_loss` | 0.05 | 180.0 | 150.0 |"
    assert lines[1] == "| `bnce --row-sparse` | 0.05 | 162.0 ± 2.8 | 142.0 ± 2.8 |"


def test_speed_is_shown_of_methods_that_trained_too_little_to_be_leaders():
    few = {"runs": [run("softmax@0.05", [(20, 80, 900.0)], words_per_second=400.0)]}
    head, _, *lines = adaptive.speed(GRID, few)
    assert head.startswith("| training | updates | words/s |")
    assert lines[0] == "| `cross_entropy` | 20 | 400 | – | – | – |"
    assert lines[1].startswith("| `adaptive_loss` | 1,000 |")


def test_perplexities_at_equal_processor_time_are_interpolated():
    slow = {"runs": [run("adaptive@0.05", [(250, 0, 400.0), (500, 100, 100.0)])]}
    fast = {"runs": [run("bnce@0.05", [(250, 30, 9.0), (500, 50, 8.0)])]}
    head, _, *lines = adaptive.equal_time(slow, fast)
    assert head == "| validation PPL after | 25 s | 50 s |"
    # Half-way between two validations: the geometric mean. None before the first one.
    assert lines == ["| `adaptive_loss` | 282.8 | 200.0 |", "| `bnce --row-sparse` | – | 8.0 |"]


def test_seeds_that_were_trained_for_less_count_as_far_as_they_came():
    seeds = {"runs": [run("adaptive@0.05", [(500, 90, 184.0)], seed=seed) for seed in (2, 3)]}
    lines = adaptive.leaders(GRID, seeds)
    assert lines[2] == "| `adaptive_loss` | 0.05 | 182.7 ± 2.3 | 150.0 |"
    assert adaptive.equal_time(GRID, seeds)[0] == "| validation PPL after | 25 s | 50 s |"
    assert adaptive.speed(GRID, seeds)[2].startswith("| `adaptive_loss` | 1,000 |")


def test_scoring_shows_what_was_measured_and_no_empty_column():
    head, _, *lines = adaptive.scoring(GRID, LONGER)
    assert head == "| | updates | test PPL, exact |"
    assert lines == ["| `bnce --row-sparse` | 1,000 | 142.0 ± 1.4 |"]


def test_the_readmes_table_has_equal_updates_and_equal_time():
    scored = {"accuracy": 30.0, "u_accuracy": 29.0, "exact_tokens_per_second": 900.0}
    longer = [(500, 50, 160.0), (1000, 100, 140.0)]
    found = {"runs": [*GRID["runs"], run("bnce@0.05", longer, test_ppl=141.0, **scored)]}
    head, _, *lines = adaptive.overview(found)
    assert "| valid PPL after 1,000 updates | after 100 s of processor time |" in head
    assert lines[0].startswith("| `adaptive_loss` | 150.0 | 180.0 |")
    assert lines[1].startswith("| `bnce --row-sparse` | 140.0 | 140.0 |")
    assert lines[1].endswith("| 900 → – | 30.0 / 29.0 |")
