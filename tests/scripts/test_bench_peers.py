"""scripts/bench_peers.py, with a stand-in for the trained programs."""

import json

import bench_peers

EPOCHS = """\
valid:  8.0  elapsed: 40.0s+20.0s
valid:  7.0  elapsed: 1.0m+20.0s
valid:  9.0  elapsed: 50.0s+20.0s\tAwful: Nnet rejected
"""


def test_a_rejected_epoch_leaves_the_perplexity_of_the_model_before(tmp_path):
    for split in bench_peers.SPLITS:
        (tmp_path / f"{split}.txt").write_text("a <unk> b\n", "utf-8")
    (tmp_path / "epochs").write_text(EPOCHS, "utf-8")
    program = tmp_path / "rnnlm"
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/epochs'\n", "utf-8")
    program.chmod(0o755)
    out = tmp_path / "out"
    flags = ["--out", out, "--faster-rnnlm", program, "--settings", "NCE"]
    assert bench_peers.main([str(tmp_path), *map(str, flags)]) == 0
    found = json.loads((out / "peers.json").read_text("utf-8"))
    curve = found["systems"]["faster-rnnlm, NCE"]["curve"]
    assert [point["seconds"] for point in curve] == [40, 100, 150]
    assert [point["ppl"] for point in curve] == [256, 128, 128]
