"""fairseq-hydra-train knows this plugin's names, from its command line and from a file."""

import re
import sys
from pathlib import Path

import composing
import pytest
import tools
import torch
from architectures import SEQ2SEQ
from fairseq.dataclass import utils
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins import fairseq_bnce as plugin

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
  _name: rnn_lm
  decoder_embed_dim: 16
  decoder_hidden_size: 16
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


def train(data: Path, save_dir: Path, *flags: str) -> str:
    # Fresh: in a fork of this process the plugin would have been imported already.
    places = [f"task.data={data}", f"checkpoint.save_dir={save_dir}", f"hydra.run.dir={save_dir}"]
    return tools.run("fairseq_cli.hydra_train", *flags, *FLAGS, *places, plugin=False)


def check_scoring(data: Path, save_dir: Path) -> None:
    """The checkpoint evaluates like one of fairseq-train's."""
    checkpoint = save_dir / "checkpoint_best.pt"
    exact = tools.perplexity(tools.evaluate(data, checkpoint))
    shifted = tools.perplexity(tools.evaluate(data, checkpoint, "--unnormalized"))
    assert exact < 33  # the unigram model has 35
    assert shifted == pytest.approx(exact, rel=0.02)  # validation's own shift, on its own data


def test_groups_of_the_command_line(corpus, tmp_path):
    names = ["task=language_modeling", "criterion=bnce", "optimizer=sparse_sgd", "model=rnn_lm"]
    names += ["lr_scheduler=fixed"]
    fields = ["criterion.noise_samples=20", "criterion.row_sparse=true", "task.stateful=true"]
    sizes = ["model.decoder_embed_dim=16", "model.decoder_hidden_size=16", "optimization.lr=[8]"]
    user_dir = f"common.user_dir={tools.PLUGIN}"
    train(corpus, tmp_path, user_dir, *names, *fields, *sizes)
    check_scoring(corpus, tmp_path)


@pytest.mark.parametrize("place", ["command line", "file"])
def test_a_preset_has_its_values(place, corpus, tmp_path):
    names = ["task=language_modeling", "criterion=bnce", "optimizer=sparse_sgd"]
    names += ["lr_scheduler=fixed", "model=rnn_lm_gm30", f"common.user_dir={tools.PLUGIN}"]
    if place == "file":
        preset = re.sub("rnn_lm\n.*\n.*\n", "rnn_lm_gm30\n  dropout: 0.1\n", FILE)
        (tmp_path / "lm.yaml").write_text(preset)
        names = ["--config-dir", tmp_path, "--config-name", "lm"]
    names += ["optimization.max_update=1", "optimization.lr=[1]", "dataset.disable_validation=true"]
    train(corpus, tmp_path, *names, "model.dropout=0.4")
    found = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    model = found["cfg"]["model"]
    assert (model["_name"], model["decoder_embed_dim"]) == ("rnn_lm_gm30", 30)
    assert model["dropout"] == 0.4
    assert found["model"]["decoder.rnn.weight_hh_l1"].shape == (120, 30)


def test_configuration_file(corpus, tmp_path):
    (tmp_path / "lm.yaml").write_text(FILE)
    train(corpus, tmp_path, "--config-dir", tmp_path, "--config-name", "lm")
    check_scoring(corpus, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["criterion=bnce"], None),
        (["+common.user_dir='a b/fairseq_bnce'", "task=x"], "a b/fairseq_bnce"),
        (["common.user_dir=x", "++common.user_dir=y"], "y"),
        (["-c", "job", "--config-dir", "FOLDER", "--config-name", "lm"], "from/file"),
        (["-cd=FOLDER", "-cn", "lm.yaml", "common.user_dir=given"], "given"),
        (["--config-dir", "FOLDER", "--config-name", "absent"], None),
    ],
)
def test_named_user_dir(tmp_path, arguments, expected):
    (tmp_path / "lm.yaml").write_text("common:\n  user_dir: from/file\n")
    arguments = [argument.replace("FOLDER", str(tmp_path)) for argument in arguments]
    assert plugin.named_user_dir(arguments) == expected


@pytest.mark.parametrize(
    ("program", "user_dir", "imported"),
    [
        ("fairseq_cli.hydra_train", "somewhere/fairseq_bnce/", ["somewhere/fairseq_bnce/"]),
        ("fairseq_cli.hydra_train", "somewhere/else", []),
        ("another.program", "somewhere/fairseq_bnce", []),
    ],
)
def test_other_commands_are_left_alone(monkeypatch, program, user_dir, imported):
    found = []
    monkeypatch.setattr(
        "fairseq.utils.import_user_module", lambda args: found.append(args.user_dir)
    )
    monkeypatch.setattr(plugin, "_main_module", lambda: program)
    monkeypatch.setattr(sys, "argv", ["program", f"common.user_dir={user_dir}"])
    plugin.FairseqBnceNames().manipulate_search_path(None)
    assert found == imported


SPARSE = ["--optimizer", "lazy_adam", "--row-sparse", "--lr", "0.1,0.2", "--save-dir", "it's"]
ERRORS = (HydraException, OmegaConfBaseException, OSError)
COSINE = ["--lr-scheduler", "cosine", "--warmup-updates", "3", "--max-update", "9"]


@pytest.mark.parametrize(
    "flags",
    [
        [*tools.LSTM, "--task", "language_modeling", "--criterion", "nce", *SPARSE],
        [*tools.TRANSFORMER, "--task", "language_modeling", *COSINE, "--fp16"],
        [*SEQ2SEQ, "--criterion", "bnce"],
    ],
)
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
