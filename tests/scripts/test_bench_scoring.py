"""scripts/bench_scoring.py: what it makes of times, and its text."""

import json

import bench_scoring
import pytest
from experiments.measures import as_text, data
from rendering import scoring

LESS = ["--vocab", "50", "--tokens", "300", "400"]


def test_text_of_binarised_data(tmp_path):
    folder, text = tmp_path / "data", tmp_path / "text"
    data.main(["--out", str(folder), "--vocab", "50", "--tokens", "400"])
    as_text.main([str(folder), "train", str(text)])
    lines = text.read_text(encoding="utf-8").splitlines()
    assert sum(len(line.split()) + 1 for line in lines) == 400
    assert set(" ".join(lines).split()) <= {f"w{rank}" for rank in range(1, 47)}
    assert sorted(tmp_path.iterdir()) == [folder, text]
    bench_scoring._repeat(text, tmp_path / "long", 1000)
    repeated = (tmp_path / "long").read_text(encoding="utf-8").splitlines()
    assert len(repeated) == 1000 == bench_scoring._lines(tmp_path / "long")
    assert repeated[0] == " ".join(lines[0].split()[:3]) == repeated[len(lines)]


def test_a_text_that_is_cut_off_is_not_taken_for_whole(tmp_path, monkeypatch):
    folder, text = tmp_path / "data", tmp_path / "text"
    data.main(["--out", str(folder), "--vocab", "50", "--tokens", "400"])
    load = as_text.data_utils.load_indexed_dataset
    monkeypatch.setattr(as_text.data_utils, "load_indexed_dataset", lambda *a: [load(*a)[0], None])
    with pytest.raises(TypeError):
        as_text.main([str(folder), "train", str(text)])
    assert not text.exists()


def test_a_model_of_other_options_is_another_one(tmp_path, monkeypatch):
    """A second call in the same folder would report the first one's model as its own."""
    for name in ("find_device", "make_data"):
        monkeypatch.setattr(bench_scoring, name, lambda *_, **__: {"device": "cpu"})
    monkeypatch.setattr(bench_scoring.sentences, "train", lambda *_: None)
    others = ([], ["--size", "300"], ["--arch", "rnn_lm"])
    others += (["--vocab", "60"], ["--tokens", "300", "500"])
    models = set()
    for other in others:
        options = bench_scoring._parser().parse_args(["--out", str(tmp_path), *LESS, *other])
        models.add(bench_scoring.Bench(options).checkpoint)
    assert len(models) == len(others)


@pytest.mark.slow
def test_a_small_run(tmp_path, capsys):
    """As a user calls it; the report's tables are those of the file."""
    arguments = ["--out", str(tmp_path), *LESS, "--exact-tokens", "200", "300", "--size", "8"]
    arguments += ["--memory-lines", "20", "--repeats", "1", "--device", "cpu"]
    assert bench_scoring.main(arguments) == 0
    found = json.loads((tmp_path / "scoring.json").read_text(encoding="utf-8"))
    printed = capsys.readouterr().out.splitlines()
    for lines in (scoring.speeds(found), scoring.memory(found)):
        assert set(lines) <= set(printed)
    assert [speed["system"] for speed in found["speeds"]] == list(bench_scoring._SYSTEMS)
    for speed in found["speeds"]:
        is_exact = speed["system"] in ("fairseq-bnce score --exact", "fairseq-eval-lm")
        assert speed["tokens"] == ([200, 300] if is_exact else [300, 400])
        assert min(speed["sentences"]) > 0
        assert min(speed["seconds"] + speed["cpu_seconds"]) > 0
    assert found["memory"]["20"]["peak_mib"] > 50 and found["machine"]["processor"]
