"""fairseq-hydra-train knows this plugin's names, from its command line and from a file."""

import sys
from types import SimpleNamespace

import composing
import pytest
import tools
import torch
from architectures import SEQ2SEQ
from fairseq.dataclass import utils
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.fairseq_bnce import FairseqBnceNames

FLAGS = ["common.cpu=true", "dataset.batch_size=4", "dataset.num_workers=0"]
FLAGS += ["optimization.max_epoch=1"]
FLAGS += ["task.tokens_per_sample=16", "checkpoint.no_epoch_checkpoints=true"]

FILE = f"""
# @package _group_
common:
  user_dir: {tools.PLUGIN}
task:
  _name: language_modeling
  data: ???
  tokens_per_sample: 16
  stateful: true
model:
  _name: rnn_lm_gm30
  dropout: 0.1
criterion:
  _name: nce_regularized
  nce_base: shared_nce
  noise_samples: 20
optimizer:
  _name: sparse_adagrad
optimization:
  lr: [0.1]
lr_scheduler:
  _name: fixed
"""
NAMES = ["task=language_modeling", "criterion=bnce", "optimizer=lazy_adam", "model=rnn_lm_gm30"]
NAMES += ["lr_scheduler=fixed", "criterion.noise_samples=20", "criterion.row_sparse=true"]
NAMES += ["model.dropout=0.1", "task.stateful=true", "optimization.lr=[0.01]"]
NAMES += [f"common.user_dir={tools.PLUGIN}"]


@pytest.mark.parametrize("place", ["command line", "file"])
def test_trained(place, corpus, tmp_path):
    """A preset has its values, and the checkpoint evaluates like one of fairseq-train's."""
    (tmp_path / "lm.yaml").write_text(FILE)
    file = ["--config-dir", tmp_path, "--config-name", "lm"]
    places = [f"checkpoint.save_dir={tmp_path}", f"hydra.run.dir={tmp_path}"]
    flags = [*(file if place == "file" else NAMES), *FLAGS, f"task.data={corpus}", *places]
    # Fresh: in a fork of this process the plugin would have been imported already.
    tools.run("fairseq_cli.hydra_train", *flags, plugin=False)
    checkpoint = tmp_path / "checkpoint_best.pt"
    found = torch.load(checkpoint, weights_only=False)
    values = [found["cfg"]["model"][name] for name in ("_name", "decoder_embed_dim", "dropout")]
    assert values == ["rnn_lm_gm30", 30, 0.1]
    assert found["model"]["decoder.rnn.weight_hh_l1"].shape == (120, 30)
    exact = tools.perplexity(tools.evaluate(corpus, checkpoint))
    shifted = tools.perplexity(tools.evaluate(corpus, checkpoint, "--unnormalized"))
    assert exact < 33  # the unigram model has 35
    assert shifted == pytest.approx(exact, rel=0.02)  # validation's own shift, on its own data


OURS, TRAIN = "somewhere/fairseq_bnce/", "fairseq_cli.hydra_train"


IMPORTED = [
    (TRAIN, "criterion=bnce", None),
    (TRAIN, "common.user_dir=somewhere/else", None),
    (TRAIN, f"+common.user_dir='{OURS}' task=x", OURS),
    (TRAIN, f"common.user_dir=x ++common.user_dir={OURS}", OURS),
    (TRAIN, "-c job --config-dir FOLDER --config-name lm", "from/file/fairseq_bnce"),
    (TRAIN, f"-cd=FOLDER -cn lm.yaml common.user_dir={OURS}", OURS),
    (TRAIN, "--config-dir FOLDER --config-name absent", None),
    ("another.program", f"common.user_dir={OURS}", None),
]


@pytest.mark.parametrize("program, arguments, imported", IMPORTED)
def test_the_user_dir_is_imported_before(program, arguments, imported, monkeypatch, tmp_path):
    """Where fairseq-hydra-train names ours; other commands are left alone."""
    (tmp_path / "lm.yaml").write_text("common:\n  user_dir: from/file/fairseq_bnce\n")
    found = []
    remember = lambda args: found.append(args.user_dir)  # noqa: E731
    monkeypatch.setattr("fairseq.utils.import_user_module", remember)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name=program))
    monkeypatch.setattr(sys, "argv", [program, *arguments.replace("FOLDER", str(tmp_path)).split()])
    FairseqBnceNames().manipulate_search_path(None)
    assert found == [imported] * (imported is not None)


SPARSE = ["--optimizer", "lazy_adam", "--row-sparse", "--lr", "0.1,0.2", "--save-dir", "it's"]
ERRORS = (HydraException, OmegaConfBaseException, OSError)
COSINE = ["--lr-scheduler", "cosine", "--warmup-updates", "3", "--max-update", "9"]


COMPOSED = [
    [*tools.LSTM, "--task", "language_modeling", "--criterion", "nce", *SPARSE],
    [*tools.TRANSFORMER, "--task", "language_modeling", *COSINE, "--fp16"],
    [*SEQ2SEQ, "--criterion", "bnce"],
]


@pytest.mark.parametrize("flags", COMPOSED)
def test_tests_compose_as_hydra_does(flags, monkeypatch):
    """Values and their types; and what fits no field is an error in both."""
    found = []
    for compose in (composing.by_hydra, composing.compose):
        monkeypatch.setattr(utils, "compose", compose)
        found.append(repr(tools.composed(["data", *flags])))
        for wrong in ("optimization.max_update=x", "common.nothing=1", "task=nothing"):
            with pytest.raises(ERRORS), utils.initialize(config_path="../config"):
                compose("config", overrides=[wrong], strict=False)
    assert found[0] == found[1]
