"""``--user-dir fairseq_bnce``, as README.md writes it, from a folder that is not the checkout."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import forks
import pytest

MADE_HERE = Path(sys.prefix, ".recipe")  # scripts/setup_env.sh's
BESIDE_FAIRSEQ = Path(sysconfig.get_path("purelib"), "fairseq_bnce")

pytestmark = pytest.mark.skipif(
    not MADE_HERE.exists() and not BESIDE_FAIRSEQ.exists(),
    reason="an editable install of one's own, which needs a link (README.md, Install)",
)


# A module as the main program of a process that has fairseq, and not the plugin.
COMMAND = """
import json, os, runpy, sys

path, folder, module, *arguments = sys.argv[1:]
sys.path[:], sys.argv[1:] = json.loads(path), arguments
os.chdir(folder)
sys.modules.pop(module, None)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def run_elsewhere(folder: Path, *command: str) -> None:
    """In a process that knows the package from its environment alone, as a new interpreter does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ask = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path))"]
    path = subprocess.run(ask, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    (folder / "command.py").write_text(COMMAND)
    program = [sys.executable, folder / "command.py", path.stdout.decode(), folder]
    done = forks.run_alone([*program, *command], {**environment, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.modern  # scripts/setup_env.sh looks for it in both environments
def test_the_name_is_enough(corpus, tmp_path):
    """For fairseq-train and fairseq-hydra-train."""
    flags = ["--task", "language_modeling", "--arch", "rnn_lm", "--criterion", "bnce", "--cpu"]
    flags += ["--decoder-embed-dim", "8", "--decoder-hidden-size", "8", "--optimizer", "sgd"]
    flags += ["--lr", "1", "--batch-size", "8", "--tokens-per-sample", "16", "--max-update", "2"]
    flags += ["--disable-validation", "--save-dir", "by_flags"]
    fields = ["common.user_dir=fairseq_bnce", "task=language_modeling", f"task.data={corpus}"]
    fields += ["task.tokens_per_sample=16", "dataset.batch_size=8", "model=rnn_lm"]
    fields += ["criterion=bnce", "optimizer=sparse_sgd", "optimization.lr=[1]", "common.cpu=true"]
    fields += ["model.decoder_embed_dim=8", "model.decoder_hidden_size=8"]
    fields += ["optimization.max_update=2", "dataset.disable_validation=true"]
    fields += ["checkpoint.save_dir=by_fields", "hydra.run.dir=run"]
    train = ["fairseq_cli.train", str(corpus), "--user-dir", "fairseq_bnce"]
    run_elsewhere(tmp_path, *train, *flags)
    run_elsewhere(tmp_path, "fairseq_cli.hydra_train", *fields)
    assert (tmp_path / "by_flags" / "checkpoint_last.pt").exists()
    assert list(tmp_path.rglob("by_fields/checkpoint_last.pt"))
