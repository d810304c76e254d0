"""scripts/render_tables.py: the pages' tables are those of the committed files."""

import json
import re
import shutil
from pathlib import Path

import pytest
import render_tables
from rendering import (
    adaptive,
    benchmarks,
    cells,
    comparisons,
    corpora,
    pages,
    papers,
    scoring,
)
from rendering.tables import TABLES

ROOT = Path(__file__).resolve().parents[2]

START = re.compile(r"^<!-- table: ", re.MULTILINE)
MARKER = re.compile(r"<!-- table: (\S+) from (.+?) -->")
PLACE = re.compile(r"^<!-- table: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_table_is_that_of_its_files(capsys):
    assert render_tables.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_column_of_numbers_comes_from_a_file(page):
    """Tables that no script writes explain flags and the like; their columns are on the left."""
    by_hand = PLACE.sub("", page.read_text("utf-8"))
    assert not re.findall(r"^\|.*---:.*\|$", by_hand, re.MULTILINE)


def test_every_file_of_results_is_in_a_table():
    named = {
        path
        for page in PAGES
        for table, files in MARKER.findall(page.read_text("utf-8"))
        for file in files.split(",")
        if table != "frontier"  # which takes all there are
        for path in page.parent.glob(file.strip())
    }
    unused = {*(ROOT / "docs").rglob("*.json*")} - named
    assert not unused


def test_every_table_is_on_a_page():
    named = {table for page in PAGES for table, _ in MARKER.findall(page.read_text("utf-8"))}
    assert named == set(TABLES)


def marked_pages():
    return [page for page in PAGES if START.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", marked_pages(), ids=lambda page: page.name)
def test_a_changed_digit_is_found_and_mended(page, tmp_path, capsys):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png"))
    copy, text = tmp_path / page.relative_to(ROOT), page.read_text("utf-8")
    # The last digit of every table, one after the other.
    for place in PLACE.finditer(text):
        last = re.compile(r".*(\d)", re.DOTALL).match(place[0]).start(1) + place.start()
        digit = str((int(text[last]) + 1) % 10)
        copy.write_text(text[:last] + digit + text[last + 1 :], "utf-8")
        assert render_tables.main(["--check", str(copy)]) == 1
        changed = text[:last].rpartition("\n")[2] + digit
        assert changed in capsys.readouterr().out
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


# ---------------------------------------------------------------- one recipe, several criteria


def trained(label, seed=1, **numbers):
    curve = [{"update": 10 * n, "ppl": 100.0 / n} for n in (1, 2, 3, 4, 5, 6)]
    return {"label": label, "seed": seed, "updates": 60, "train": {"curve": curve}, **numbers}


def test_epochs_end_where_the_last_max_epoch_says():
    labels = [label for label, _ in comparisons.PTB]
    found = {"runs": [trained(label) for label in labels], "flags": ["--max-epoch", "3"]}
    found["recipe"] = {"training": ["--max-epoch", "10"]}
    head, _, *lines = comparisons.epochs(found)
    assert head == "| valid PPL^f after epoch | 1 | 2 | 3 |"
    assert lines[0] == "| cross_entropy | 50.0 | 25.0 | 16.7 |"
    assert len(lines) == len(labels)


def test_seeds_stand_beside_each_other_with_their_mean():
    runs = [
        trained("cross_entropy", 1, valid_ppl=100.0, test_ppl=90.0, sigma_z=1.0),
        trained("cross_entropy", 2, valid_ppl=104.0, test_ppl=90.0, sigma_z=1.0),
        trained("r0.2+last", 1, valid_ppl=101.0, test_ppl=89.1, sigma_z=0.2),
        trained("r0.2+last", 2, valid_ppl=106.6, test_ppl=89.1, sigma_z=0.2),
    ]
    means = {"valid_ppl": {"mean": 102.0}, "test_ppl": {"mean": 90.0}, "sigma_z": {"mean": 0.25}}
    found = {"runs": runs, "summary": {"cross_entropy": means, "r0.2+last": means}}
    lines = comparisons.seeds(found)[2:]
    assert lines[0] == "| 1 | 100.00 | 101.00 | 1.0 % | 90.00 | 89.10 | −1.0 % | 0.200 |"
    assert lines[1].startswith("| 2 | 104.00 | 106.60 | 2.5 % |")
    assert lines[2] == "| mean | 102.00 | 102.00 | 0.0 % | 90.00 | 90.00 | 0.0 % | 0.250 |"


def test_sampled_criteria_stand_beside_the_softmax_of_another_comparison():
    names = ("valid_ppl", "test_ppl", "test_u_ppl_shifted", "mu_z", "sigma_z")
    values = dict(zip(names, (153.0, 144.0, 143.0, -0.25, 0.5)), words_per_processor_second=2e4)
    own = {label: {n: {"mean": v} for n, v in values.items()} for label, _ in comparisons.SAMPLED}
    softmax = {"cross_entropy": {"valid_ppl": {"mean": 150.0}, "test_ppl": {"mean": 140.0}}}
    head, _, first, second, *others = comparisons.sampled({"summary": own}, {"summary": softmax})
    assert head.startswith("| | valid PPL^f | over softmax | test PPL^f |")
    assert first == "| cross_entropy | 150.00 | | 140.00 | – | – | – | – |"
    line = "| bnce, 800 extra draws | 153.00 | 2.00 % | 144.00 | 143.00 | −0.250 | 0.500 | 20,000 |"
    assert second == line
    assert len(others) == len(own) - 1


def test_the_fused_lstm_stands_beside_fairseqs():
    speeds = {"rnn_lm-4x100-30": 30000.0, "lstm_lm-4x100-30": 5000.0}
    runs = [trained(label, words_per_processor_second=speed) for label, speed in speeds.items()]
    assert comparisons.fused({"runs": runs})[2:] == ["| 4 × 100 | 30 | 30,000 | 5,000 | 6.0 |"]


# ---------------------------------------------------------------- papers


def row(label, ours=None, criterion="nce", seed=1, **paper):
    ran = {"ours": ours, "seed": seed} if ours else {"ours": None}
    return {"label": label, "criterion": criterion, "paper": paper, **ran}


def test_the_papers_number_stands_beside_ours_where_a_row_of_its_size_has_run():
    ours = {"valid_ppl": 110.0, "mu_z": -0.1}
    rows = [row("nce-100", mu_z=-0.2), row("nce-30", valid_ppl=100.0), row("nce-650", mu_z=-0.2)]
    others = [row("nce-30", ours, valid_ppl=100.0), row("bnce-30"), row("bnce-100", {"mu_z": -0.3})]
    head, _, *lines = papers.ptb({"rows": rows}, {"rows": others})
    assert head == "| | valid PPL^f | paper | over it | µ_z | paper |"
    assert lines == [
        "| `nce-30` | 110.0 | 100.0 | 10.0 % | −0.100 | – |",
        "| `nce-100` | – | – | – | – | −0.2 |",
        "| `bnce-100` | – | – | – | −0.300 | – |",
    ]


def test_the_first_seed_is_shown_in_whatever_order_files_come():
    found = [{"rows": [row("nce-30", {"valid_ppl": 100.0 + n}, seed=n)]} for n in (3, 1, 2)]
    empty = {"rows": [row("nce-30", valid_ppl=90.0)]}
    for order in ((empty, *found), (*found, empty)):
        assert papers.ptb(*order)[2:] == ["| `nce-30` | 101.0 |"]


def test_a_spread_has_its_distance_from_the_papers():
    found = {"rows": [row("dev-30", {"sigma_z": 0.12}, sigma_z=0.1)]}
    assert papers.ptb(found)[2:] == ["| `dev-30` | 0.120 | 0.1 | 20.0 % |"]


def test_the_test_text_is_shown_of_what_has_run():
    ours = {"test_ppl": 100.0, "test_u_ppl": 120.0, "test_u_ppl_shifted": 99.5}
    rows = [row("nce-30", ours), row("dev-30", sigma_z=0.1)]
    assert papers.ptb_test({"rows": rows}) == [
        "| | test PPL^f | test PPL^n | shifted | off % |",
        "|---|---:|---:|---:|---:|",
        "| `nce-30` | 100.0 | 120.0 | 99.5 | 0.50 |",
    ]


def test_rows_of_several_seeds_stand_beside_the_softmax():
    values = {"sigma_z": 0.2, "test_ppl": 90.0}
    rows = [
        [
            row("softmax-30", {**values, "valid_ppl": softmax}),
            row("r-30", {**values, "valid_ppl": own}),
        ]
        for softmax, own in ((99.0, 102.0), (101.0, 102.0))
    ]
    rows[0] += [row("once-30", {**values, "valid_ppl": 99.5}), row("once-300", {**values})]
    assert papers.ptb_seeds(*({"rows": one} for one in rows))[2:] == [
        "| `softmax-30` | 2 | 100.00 ± 1.41 | 0.00 % | 0.200 ± 0.000 | 90.00 ± 0.00 | 0.00 % |",
        "| `r-30` | 2 | 102.00 ± 0.00 | 2.00 % | 0.200 ± 0.000 | 90.00 ± 0.00 | 0.00 % |",
        "| `once-30` | 1 | 99.50 | −0.50 % | 0.200 | 90.00 | 0.00 % |",
    ]


def test_a_softmaxs_raw_scores_have_no_perplexity():
    ours = {"test_ppl": 110.0, "test_u_ppl": 0.1, "test_u_ppl_shifted": 130.0}
    found = {"rows": [row("softmax-30", ours, criterion="cross_entropy", test_ppl=100.0)]}
    assert papers.ptb_test(found)[0] == "| | test PPL^f | paper | over it |"


def test_noise_has_the_mean_of_its_seeds():
    """And no measurement that a row has not: here the softmax's unnormalised perplexity."""
    recipes = [
        {
            "rows": [
                row("ml", {"test_ppl": 100.0, "test_u_ppl": 0.1}, criterion="cross_entropy"),
                row("unigram-1", {"test_ppl": ppl, "test_u_ppl": 120.0}),
                row("uniform-1"),
            ]
        }
        for ppl in (200.0, 202.0)
    ]
    cells = [line.split("|")[1:4] for line in papers.noise(*recipes)[2:]]
    assert cells == [
        [" `ml` ", " 100.0 ± 0.0 ", " – "],
        [" `unigram-1` ", " 201.0 ± 1.4 ", " 120.0 ± 0.0 "],
    ]


def test_sentence_completion_has_every_row_with_a_number():
    rows = [row("nce-650", accuracy=51.6), row("bnce-650"), row("bnce-200", {"accuracy": 43.75})]
    assert papers.completion({"rows": rows}) == [
        "| | right, exact % | paper |",
        "|---|---:|---:|",
        "| `nce-650` | – | 51.6 |",
        "| `bnce-200` | 43.8 | – |",
    ]


# ---------------------------------------------------------------- vocabulary, scoring, corpora


def test_exponents_stand_beside_their_own_systems():
    """Also where one before them has none."""
    runs = [
        {"system": system, "vocab": vocab, "words_per_second": None if failed else 5.0}
        for system, failed in (("cross_entropy", 0), ("adaptive_loss", 1), ("bnce", 0))
        for vocab in (10, 20)
    ]
    exponents = {"cross_entropy": 0.1, "adaptive_loss": None, "bnce": 0.3}
    growth = {system: {"update_exponent": value} for system, value in exponents.items()}
    lines = benchmarks.speeds_and_exponents({"runs": runs, "growth": growth})[2:]
    assert lines == ["| `cross_entropy` | 5 | 5 | 0.10 |", "| `bnce` | 5 | 5 | 0.30 |"]


def test_phases_are_those_of_row_sparse_bnce_by_vocabulary():
    def update(system, vocab, features):
        value = {"milliseconds": {"features": features, "clip": 1.0}, "update_ms": features + 1}
        return {"system": system, "vocab": vocab, "parts": {"update": {"value": value}}}

    runs = [
        update("bnce_sparse", 2000, 9.0),
        update("bnce", 10, 7.0),
        update("bnce_sparse", 10, 8.0),
    ]
    head, _, *lines = benchmarks.phases({"runs": runs})
    assert head == "| V | features | clip | all, ms |"
    assert lines == ["| 10 | 8.0 | 1.0 | 9.0 |", "| 2,000 | 9.0 | 1.0 | 10.0 |"]


def test_scoring_speed_leaves_out_what_both_texts_take():
    def speed(system, seconds):
        times = {"seconds": [10, 10 + seconds], "cpu_seconds": [5, 5 + seconds / 2]}
        return {"system": system, "sentences": [100, 300], **times}

    found = {"speeds": [speed(system, n + 1) for n, system in enumerate(scoring.SYSTEMS)]}
    lines = scoring.speeds(found)[2:]
    assert lines[0] == "| `fairseq-bnce score`, text | 200 | 400 | 4.0 |"
    assert lines[3] == "| `fairseq-eval-lm`, binarised | 50 | 100 | 1.0 |"


def test_printed_lines_are_the_commands(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: printed from f.jsonl -->\n<!-- end -->\n", "utf-8")
    one, two = ({"log_prob": number, "tokens": 3, "oov": 1} for number in (-1.5, -2.25))
    (tmp_path / "f.jsonl").write_text(f"{json.dumps(one)}\n{json.dumps(two)}\n", "utf-8")
    filled = pages.rendered(page, {"printed": scoring.printed})
    assert "-->\n```\n-1.500000\t3\t1\n-2.250000\t3\t1\n```\n<!--" in filled


def test_completion_has_a_line_for_each_sum():
    shares = {"right": 9, "asked": 20, "share": 0.45, "low": 0.2582, "high": 0.658}
    differ = {"count": 1, "asked": 20, "share": 0.05}
    answers = {"path": "a/lbl.pt:lstm.pt", "exact": shares, "unnormalized": shares}
    lines = scoring.completed({**answers, "differ": differ})
    assert lines[2] == "| `lbl` + `lstm` | 45.0 [25.8, 65.8] | 45.0 [25.8, 65.8] | 5.0 |"


def test_contexts_that_are_farthest_are_code():
    context = {"deviation": -1.5, "entropy": 0.25, "before": "an <unk> of los", "word": "angeles"}
    lines = scoring.farthest({"farthest": [context]})
    assert lines[2] == "| `an <unk> of los [angeles]` | −1.500 | 0.250 |"


def test_unknown_words_are_a_share_of_the_splits_tokens():
    split = {"lines": 1000, "types": 50, "tokens": 20000, "unk": 30}
    lines = corpora.splits({"corpus": {"name": "ptb"}, "splits": {"train": split}})
    assert lines[2] == "| `ptb` | train | 1,000 | 50 | 20,000 | 0.15 % |"


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


def of_batch(size, updates, first, second):
    flags = {"recipe": {"training": ["--batch-size", "80", "--tokens-per-sample", "20"]}}
    runs = [run("bnce@0.1", [(updates, 5, first)]), run("bnce@0.05", [(updates, 5, second)])]
    runs += [run("bnce@0.2", [(updates, 5, 99.0)])] if size > 20 else []
    return {**flags, "flags": ["--batch-size", str(size)], "runs": runs}


def test_batches_are_compared_after_as_many_targets():
    found = of_batch(40, 200, 90.0, 91.0), of_batch(20, 401, 80.0, 70.0)
    head, _, *lines = adaptive.batches(*found)
    assert head.startswith("| validation PPL after 160,000 to 160,400 targets | targets a batch |")
    assert head.endswith("| lr 0.05 | lr 0.1 | lr 0.2 |")
    assert lines == [
        "| `bnce --row-sparse` | 400 | **70.0** | 80.0 | – |",
        "| `bnce --row-sparse` | 800 | 91.0 | **90.0** | 99.0 |",
    ]
    head, _, line = adaptive.best_of_batches(*found)
    assert head == "| best validation PPL (lr), by targets a batch | 400 | 800 |"
    assert line == "| `bnce --row-sparse` | 70.0 (0.05) | 90.0 (0.1) |"
    with pytest.raises(ValueError, match=r"as many targets, but have \[160000, 240000\]"):
        adaptive.batches(found[0], of_batch(20, 600, 1.0, 2.0))


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


def test_speed_and_memory_are_those_of_all_the_longest_runs():
    """A first seed alone would stand beside the perplexities of three."""
    of_seed = {1: (8000, 900), 2: (9000, 1000), 3: (10000, 1100)}
    runs = [
        run("bnce@0.05", [(1000, 100, 8.0)], s, words_per_processor_second=speed, peak_mib=memory)
        for s, (speed, memory) in of_seed.items()
    ]
    short = run("bnce@0.1", [(500, 9, 8.0)], words_per_processor_second=1, peak_mib=1)
    found = {"runs": [short, *runs]}
    assert "| 9,000 ± 1,000 | 1,000 ± 100 |" in adaptive.overview(found)[2]
    assert "| 9,000 ± 1,000 | 1,000 ± 100 |" in adaptive.speed(found)[2]


def test_the_readmes_table_has_equal_updates_and_equal_time():
    scored = {"accuracy": 30.0, "u_accuracy": 29.0, "exact_tokens_per_second": 900.0}
    longer = [(500, 50, 160.0), (1000, 100, 140.0)]
    found = {"runs": [*GRID["runs"], run("bnce@0.05", longer, test_ppl=141.0, **scored)]}
    head, _, *lines = adaptive.overview(found)
    assert "| valid PPL after 1,000 updates | after 100 s of processor time |" in head
    assert lines[0].startswith("| `adaptive_loss` | 150.0 | 180.0 |")
    assert lines[1].startswith("| `bnce --row-sparse` | 140.0 | 140.0 |")
    assert lines[1].endswith("| 900 → – | 30.0 / 29.0 |")


def committed(name):
    return json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))


def test_what_the_pages_say_of_the_vocabulary():
    grown = committed("vocabulary/lstm200/benchmark.json")["growth"]["bnce_sparse"]
    assert grown["speed_kept"] > 0.8 and grown["update_exponent"] < 0.05
    assert grown["memory_growth"] == pytest.approx(1, abs=0.05)


def test_what_the_pages_say_of_speech():
    """Unnormalised scores are as good as exact ones, and better than none, beyond chance."""
    found = committed("rescoring/speech.json")["differences"]
    assert abs(found["unnormalized - exact"][0]) < 0.2
    assert all(found[f"unnormalized - {name}"][2] < 0 for name in ("first", "trigram"))
    found = committed("decoding/first-pass.json")["differences"]
    for name in ("flashlight", "pyctcdecode"):
        assert abs(found[f"{name} ours - {name} ours exact"][0]) < 0.2
