"""scripts/rescoring_example.py: what rescore says of test, as JSON and as a table."""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import rescoring_example  # noqa: E402
from rendering import rescoring  # noqa: E402

LIST = """\
0 ||| a bad one of four words ||| TM= -1 Words= 6 BNCE= -9 Exact= -9 ||| -1
0 ||| the good one of these words ||| TM= -2 Words= 6 BNCE= -5 Exact= -6 ||| -2
"""
WEIGHTS = {
    "without": "score= 0.5\nTM= 0.5\n",
    "unnormalized": "score= 0.2\nTM= 0.2\nBNCE= 0.6\n",
    "exact": "score= 0.2\nTM= 0.2\nExact= -0.6\n",
}


def test_what_rescore_says_of_test_becomes_json_and_a_table(tmp_path, capsys):
    places = {"data": Path("fr-en"), "out": tmp_path / "out"}
    run = rescoring_example.Run(argparse.Namespace(**places, threads=1, gpu=False))
    for name, text in {
        "scored/test": LIST,
        "text/test.en": "the good one of these words\n",
        "done/tm": "1620\n",
        **{f"weights/{name}": text for name, text in WEIGHTS.items()},
    }.items():
        (run.folder / name).parent.mkdir(exist_ok=True)
        (run.folder / name).write_text(text, "utf-8")
    for variant in WEIGHTS:
        rescoring_example.apply(run, variant)
    rescoring_example.exchange(run)
    rescoring_example.report(run)
    found = json.loads((run.folder / "rescoring.json").read_text("utf-8"))
    assert found["seconds"] == {"tm": 1620}
    variants = found["variants"]
    assert variants["unnormalized"]["after"] == [100.0, 100.0, 100.0]
    assert variants["exact"]["weights"] == {"score": 0.2, "TM": 0.2, "Exact": -0.6}
    assert variants["exchanged"]["weights"] == {"score": 0.2, "TM": 0.2, "Exact": 0.6}
    before = variants["without"]["before"][0]
    assert variants["without"]["after"][0] == before < 50
    lines = rescoring.bleu(found)[2:]
    interval = f"{before:.2f} [{before:.2f}, {before:.2f}]"
    assert lines[0] == f"| the list's own order | {interval} | – | – |"
    assert lines[1] == f"| score, TM, number of words | {interval} | +0.00 [+0.00, +0.00] | – |"
    assert "language model | 100.00 [100.00, 100.00] | +" in lines[2]
    assert [line.split("|")[-2] for line in lines[2:]] == [" 0.600 ", " −0.600 ", " 0.600 "]
