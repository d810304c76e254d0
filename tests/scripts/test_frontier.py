"""scripts/frontier.py and the table beside its pictures: what is compared with what."""

import json
import re
from pathlib import Path

import frontier
import pytest
from experiments import plot
from rendering import frontier as systems

ROOT = Path(__file__).resolve().parents[2]

PTB, NOVELS = "843bee06371f", "2e5455782f16"


def run(label, ppl=None, sigma_z=None, seed=1, points=(), flags=(), machine="M", **others):
    """A training that was validated at (processor seconds, perplexity), scored if ppl is given."""
    keys = ("processor_seconds", "ppl")
    training = {"curve": [dict(zip(keys, p)) for p in points], "hardware": {"processor": machine}}
    found = {"label": label, "seed": seed, "flags": list(flags), "train": training, "updates": 1000}
    scores = {"valid_ppl": ppl, "sigma_z": sigma_z, "processor_seconds": 10.0 * seed}
    return {**found, **({"test_ppl": 1.0, **scores} if ppl else {}), **others}


def compared(*runs, data=PTB, recipe="rnn200", flags=()):
    found = {"recipe": {"name": recipe}, "data": {"fingerprint": data}, "flags": list(flags)}
    return {**found, "runs": list(runs)}


def row(label, arch, ours=None, paper=(), flags=()):
    keys = ("valid_ppl", "sigma_z")
    scores = ours and {**dict(zip(keys, ours)), "processor_seconds": 5.0}
    found = {"label": label, "flags": ["--arch", arch, *flags], "ours": scores}
    trained = {"seed": 1, "curve": [], "hardware": {"processor": "M"}} if ours else {}
    return {**found, "paper": dict(zip(keys, paper)), **trained}


def reproduced(*rows, flags=(), title="One & Other (2018), table 1: all, PTB"):
    found = {"title": title, "flags": list(flags), "data": {"fingerprint": PTB}}
    return {**found, "rows": list(rows)}


def places(groups):
    """{group: {(label, whether it is ours): (σ_z, perplexity)}}"""
    return {
        group: {(one.label, bool(one.runs)): one.place for one in found}
        for group, found in groups.items()
    }


def test_committed_pictures_are_of_the_committed_numbers(capsys):
    assert frontier.main(["--check"]) == 0, capsys.readouterr().out


def test_every_picture_is_on_the_page():
    text = (ROOT / "docs" / "frontier.md").read_text("utf-8")
    shown = re.findall(r"\]\(frontier/(.+?)\)", text)
    assert sorted(shown) == sorted(path.name for path in (ROOT / "docs/frontier").iterdir())


def test_what_was_trained_alike_is_a_group():
    found = compared(run("a", 90.0, 0.5), run("b", 80.0, 0.9), run("c", 85.0, 0.7, updates=2000))
    other = compared(run("a", 70.0, 0.1), run("b", 60.0, 0.2), data=NOVELS)
    families = systems.families([found, other])
    assert list(families) == ["PTB", "novels"]
    shown = {("a", True): (0.5, 90.0), ("b", True): (0.9, 80.0)}
    assert places(families["PTB"]) == {"rnn200, 1,000 updates": shown}  # "c" stands alone


def test_flags_of_all_runs_make_another_group():
    """Unless they say how long a training is."""
    runs = run("a", 90.0, 0.5), run("b", 80.0, 0.9)
    given = ["--max-update 1000", "--lr 0.1 --warmup-updates 100"]
    found = [compared(*runs, flags=flags.split()) for flags in ("", *given)]
    groups = places(systems.families(found)["PTB"])
    assert list(groups) == ["rnn200, 1,000 updates", "rnn200, 1,000 updates, --warmup-updates 100"]


def test_what_was_not_scored_or_died_has_no_place():
    dead = {"label": "d", "seed": 1, "flags": [], "failed": "lost"}
    found = compared(run("a", 90.0, 0.5), run("b", 80.0, 0.9), run("u"), run("s", 70.0), dead)
    (group,) = systems.families([found])["PTB"].values()
    assert [one.label for one in group] == ["a", "b"]


def test_a_seed_that_was_trained_anew_counts_once():
    first, again = run("a", 90.0, 0.5), run("a", 92.0, 0.7)
    other = run("b", 80.0, 0.9)
    (group,) = systems.families([compared(first, other), compared(again)])["PTB"].values()
    assert [(one.ppl, one.runs) for one in group] == [(92.0, 1), (80.0, 1)]


def test_seeds_are_averaged_and_a_training_in_two_files_counts_once():
    first = run("a", 90.0, 0.5)
    one, two = compared(first, run("b", 80.0, 0.9)), compared(first, run("a", 92.0, 0.7, seed=2))
    (group,) = systems.families([one, two])["PTB"].values()
    a, b = group
    assert (a.ppl, a.sigma_z, a.seconds, a.runs) == (91.0, pytest.approx(0.6), 15.0, 2)
    assert (b.label, b.runs) == ("b", 1)


def test_other_flags_of_one_label_are_another_system():
    found = compared(run("a", 90.0, 0.5), run("a", 80.0, 0.9, flags=["--noise-samples", "800"]))
    (group,) = systems.families([found])["PTB"].values()
    assert [one.ppl for one in group] == [90.0, 80.0]


def test_the_papers_numbers_are_in_the_group_of_their_size():
    rows = [
        row("nce-30", "gm30", ours=(250.0, 0.1), paper=(260.0, 0.2)),
        row("dev-30", "gm30", paper=(255.0, 0.3)),
        row("nce-r-100", "gm100", paper=(150.0, 0.3)),
        row("softmax-100", "gm100", paper=(140.0, 1.5)),
        row("and-100", "gm100", paper=(130.0,)),
    ]
    families = systems.families(
        [reproduced(*rows), reproduced(*rows[1:], title="One & Other (2018)")]
    )
    assert places(families["One & Other (2018), PTB"]) == {
        "gm30": {
            ("nce", True): (0.1, 250.0),
            ("nce", False): (0.2, 260.0),
            ("dev", False): (0.3, 255.0),
        },
        "gm100": {("nce-r", False): (0.3, 150.0), ("softmax", False): (1.5, 140.0)},
    }


def test_who_reads_what_follows_is_not_compared():
    rows = [
        row("unigram-25", "lbl", ours=(180.0, 0.3)),
        row("ml", "lbl", ours=(170.0, 1.3)),
        row("both", "lbl", ours=(90.0, 0.3), flags=["--bidirectional-context"]),
    ]
    (group,) = systems.families([reproduced(*rows)])["One & Other (2018), PTB"].values()
    assert [one.label for one in group] == ["ml", "unigram-25"]


def test_an_architecture_of_all_rows_is_overridden_by_a_rows_own():
    plain = {"label": "a", "flags": [], "ours": None, "paper": {"valid_ppl": 1.0, "sigma_z": 2.0}}
    rows = [plain, {**plain, "label": "b"}, row("c", "own", paper=(3.0, 4.0)), row("d", "own")]
    families = systems.families([reproduced(*rows, flags=["--arch", "all"])])
    assert [*families["One & Other (2018), PTB"]] == ["all"]


def test_rows_of_a_reduced_partition_function_are_a_models_group():
    ways = [{"rows": 0, "ppl": 99.0, "sigma_z": 0.9}, {"rows": 50, "ppl": 99.0, "sigma_z": 0.1}]
    found = {"models": {"softmax, lstm": {"words": 10008, "ways": ways}}}
    shown = {("a constant", True): (0.9, 99.0), ("50 rows", True): (0.1, 99.0)}
    families = systems.families([found])
    assert places(families["PTB, reduced partition function"]) == {"softmax, lstm": shown}


def test_other_results_are_passed_over():
    others = [[1, 2], {"speeds": []}, {"models": {"m": {"exact": {}}}}, {"runs": [{"vocab": 3}]}]
    assert systems.families(others) == systems.curves(others) == {}


def test_a_front_is_what_nothing_beats_in_both():
    points = [(0.9, 80.0), (0.1, 100.0), (0.5, 90.0), (0.6, 95.0), (0.1, 99.0), (1.0, 80.0)]
    assert systems.front(points) == [(0.1, 99.0), (0.5, 90.0), (0.9, 80.0)]


SLOW = [(1.0, 50.0), (3.0, 40.0), (5.0, 45.0)]
FAST = [(2.0, 45.0), (4.0, 35.0), (6.0, 34.0)]


def test_curves_are_the_best_until_then_of_all_rates():
    runs = [run("a@1", points=SLOW), run("a@2", points=FAST), run("b@1", points=SLOW)]
    more = [run("b@1", points=FAST, seed=2), run("c@1", points=FAST[:2])]
    found = systems.curves([compared(*runs, *more)])
    best = [(1.0, 50.0), (2.0, 45.0), (3.0, 40.0), (4.0, 35.0), (6.0, 34.0)]
    assert found == {"PTB": {"rnn200, 1,000 updates, M": {"a": best, "b": SLOW[:2]}}}


def test_machines_are_not_compared_by_time():
    here, there = run("a", points=SLOW), run("b", points=FAST, machine="N")
    untimed = run("c", points=[(None, p) for _, p in FAST])
    assert systems.curves([compared(here, there, untimed)]) == {"PTB": {}}


def test_the_table_has_the_fronts_of_ours():
    runs = [run("cross_entropy", 90.0, 1.5), run("bnce+800", 95.0, 0.25), run("x", 96.0, 0.3)]
    paper = reproduced(row("nce-30", "gm30", (250.0, 0.1), (240.0, 0.05)))
    head, _, *lines = systems.fronts(compared(*runs), paper)
    assert head == "| | trained as | system | PPL^f | σ_z | processor s | runs |"
    own, group = "`bnce+800`: bnce, 800 extra draws", "rnn200, 1,000 updates"
    assert lines == [
        "| One & Other (2018), PTB | gm30 | `nce` | 250.0 | 0.100 | 5 | 1 |",
        f"| PTB | {group} | {own} | 95.0 | 0.250 | 10 | 1 |",
        f"| PTB | {group} | `cross_entropy` | 90.0 | 1.500 | 10 | 1 |",
    ]


def write(docs, name, content):
    (docs / "inner").mkdir(parents=True, exist_ok=True)
    (docs / "inner" / name).write_text(json.dumps(content), "utf-8")


def test_pictures_are_drawn_anew_when_a_number_changes(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    docs = ["--docs", str(tmp_path)]
    (tmp_path / "frontier").mkdir()
    runs = [run("a", 90.0, 0.5, points=SLOW), run("b", 80.0, 0.9, points=FAST)]
    write(tmp_path, "one.json", compared(*runs))
    write(tmp_path, "two.json", reproduced(row("n-30", "gm30", (250.0, 0.1), (240.0, 0.2))))
    names = ["one-other-2018-ptb.png", "ptb-time.png", "ptb.png"]
    assert frontier.main(["--check", *docs]) == 1
    assert sorted(capsys.readouterr().out.splitlines()) == [f"{name}: to draw" for name in names]
    assert frontier.main(docs) == 0
    assert sorted(path.name for path in (tmp_path / "frontier").iterdir()) == names
    assert all(f"{name}: written" in capsys.readouterr().out for name in names[:1])
    assert frontier.main(["--check", *docs]) == 0

    write(tmp_path, "one.json", compared(run("a", 90.1, 0.5, points=SLOW), runs[1]))
    assert frontier.main(["--check", *docs]) == 1
    assert capsys.readouterr().out == "ptb.png: to draw\n"  # the curves are what they were
    assert frontier.main(docs) == 0

    write(tmp_path, "two.json", {})
    assert frontier.main(["--check", *docs]) == 1
    assert capsys.readouterr().out.endswith("one-other-2018-ptb.png: of results that are gone\n")


def test_without_matplotlib_a_picture_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(plot.importlib.util, "find_spec", lambda name: None)
    said = plot.lines([plot.Panel([("a", [(1, 1)])], {})], "", tmp_path / "a.png")
    assert said == "a.png: skipped, matplotlib is not installed (pip install matplotlib)"
    assert not list(tmp_path.iterdir())


def test_a_picture_of_crowded_points_names_them_all():
    plt = pytest.importorskip("matplotlib.pyplot")
    names = [f"system {n}" for n in range(12)]
    points = [(1 + n / 100, 100.0, name) for n, name in enumerate(names)]
    figure = plot._clouds(plt, [plot.Cloud("all", points)], {})
    texts = [text for text in figure.axes[0].texts if text.get_visible()]
    plt.close(figure)
    assert [text.get_text() for text in texts] == names
    assert len({text.get_position() for text in texts}) > 1


def test_panels_go_on_in_a_next_row():
    plt = pytest.importorskip("matplotlib.pyplot")
    panels = [plot.Panel([("a", SLOW)], {"title": str(n)}) for n in range(plot.ACROSS + 1)]
    figure = plot._lines(plt, panels, "all")
    shown = [one for one in figure.axes if one.get_visible()]
    plt.close(figure)
    assert [one.get_title() for one in shown] == [str(n) for n in range(plot.ACROSS + 1)]
    assert len({one.get_position().y0 for one in shown}) == 2
