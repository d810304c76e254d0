"""``--user-dir fairseq_bnce``, as README.md writes it, from a folder that is not the checkout."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

MADE_HERE = Path(sys.prefix, ".recipe")  # scripts/setup_env.sh's
BESIDE_FAIRSEQ = Path(sysconfig.get_path("purelib"), "fairseq_bnce")

pytestmark = pytest.mark.skipif(
    not MADE_HERE.exists() and not BESIDE_FAIRSEQ.exists(),
    reason="an editable install of one's own, which needs a link (README.md, Install)",
)


def run_elsewhere(module: str, folder: Path, *arguments: Any) -> str:
    """In a new interpreter that knows the package from its environment alone."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_fairseq_train(corpus, tmp_path):
    flags = ["--task", "language_modeling", "--arch", "rnn_lm", "--criterion", "bnce", "--cpu"]
    flags += ["--decoder-embed-dim", "8", "--decoder-hidden-size", "8", "--optimizer", "sgd"]
    flags += ["--lr", "1", "--batch-size", "8", "--tokens-per-sample", "16", "--max-epoch", "1"]
    run_elsewhere("fairseq_cli.train", tmp_path, corpus, "--user-dir", "fairseq_bnce", *flags)
    assert (tmp_path / "checkpoints" / "checkpoint_best.pt").exists()


def test_fairseq_hydra_train(corpus, tmp_path):
    fields = ["common.user_dir=fairseq_bnce", "task=language_modeling", f"task.data={corpus}"]
    fields += ["task.tokens_per_sample=16", "dataset.batch_size=8", "model=rnn_lm"]
    fields += ["criterion=bnce", "optimizer=sparse_sgd", "optimization.lr=[1]", "common.cpu=true"]
    fields += ["model.decoder_embed_dim=8", "model.decoder_hidden_size=8"]
    fields += ["optimization.max_epoch=1", "checkpoint.save_dir=checkpoints", "hydra.run.dir=run"]
    run_elsewhere("fairseq_cli.hydra_train", tmp_path, *fields)
    assert list(tmp_path.rglob("checkpoint_best.pt"))
