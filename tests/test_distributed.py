"""Two ranks on one machine: gloo through torchrun, both of fairseq's DDP backends."""

import re
import socket

import pytest
import torch
from tools import LSTM, PLUGIN, TIED_TRANSFORMER, TRAINING, run

# fairseq-train for one rank on a machine without a GPU. fairseq passes device ids to
# DistributedDataParallel, which CPU modules must not have. At the end each rank saves its model.
RANK = """
import os, sys, torch
import fairseq.models.distributed_fairseq_model as wrapping
from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main

plain = wrapping.DistributedDataParallel
class OnCPU(plain):
    def __init__(self, *args, device_ids=None, output_device=None, **kwargs):
        super().__init__(*args, **kwargs)
wrapping.DistributedDataParallel = OnCPU

folder, rank = sys.argv.pop(1), os.environ["RANK"]
sys.argv += ["--distributed-rank", rank]
models, make = [], Trainer.__init__
def remember(self, cfg, task, model, criterion, quantizer=None):
    models.append(model)
    make(self, cfg, task, model, criterion, quantizer)
Trainer.__init__ = remember
cli_main()
parameters = {name: p.detach() for name, p in models[0].named_parameters()}
torch.save(parameters, os.path.join(folder, "rank%s.pt" % rank))
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def train_on_two_ranks(corpus, folder, *flags, check=True):
    (folder / "rank.py").write_text(RANK, encoding="utf-8")
    launch = ["--nproc_per_node", "2", "--master_addr", "localhost"]
    launch += ["--master_port", free_port(), folder / "rank.py", folder]
    # Said in full: what fairseq infers from torchrun's environment, it divides by the GPUs.
    rest = ["--user-dir", PLUGIN, "--task", "language_modeling", "--save-dir", folder / "run"]
    rest += ["--distributed-backend", "gloo", "--distributed-world-size", "2"]
    rest += ["--distributed-init-method", "env://", "--distributed-no-spawn"]
    return run(
        "torch.distributed.run",
        *[*launch, corpus, *rest, *TRAINING, *flags],
        fresh=True,
        check=check,
    )


@pytest.mark.parametrize(
    "architecture, backend",
    [
        pytest.param(LSTM, "pytorch_ddp", id="lstm-pytorch_ddp"),
        pytest.param(TIED_TRANSFORMER, "legacy_ddp", id="tied-legacy_ddp"),
        # Three interpreters each: the other two combinations when there is time.
        pytest.param(LSTM, "legacy_ddp", id="lstm-legacy_ddp", marks=pytest.mark.slow),
        pytest.param(
            TIED_TRANSFORMER, "pytorch_ddp", id="tied-pytorch_ddp", marks=pytest.mark.slow
        ),
    ],
)
def test_ranks_stay_synchronised(architecture, backend, corpus, tmp_path):
    """15 batches on 2 ranks: in the last of 8 updates one rank has a dummy batch."""
    flags = [*architecture, "--criterion", "nce_regularized", "--ddp-backend", backend]
    output = train_on_two_ranks(corpus, tmp_path, *flags, "--log-z", "4", "--batch-size", "11")
    assert "training on 2 devices" in output and '"valid_num_updates": "8"' in output
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1))
    start = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=False)
    assert start["task_state"]["sigma_z"] > 0
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert torch.equal(value, start["model"][name]), name


def test_find_unused_parameters_is_refused(corpus, tmp_path):
    flags = [*LSTM, "--criterion", "bnce", "--find-unused-parameters"]
    output = train_on_two_ranks(corpus, tmp_path, *flags, check=False)
    assert "--find-unused-parameters: required off" in re.sub(r"\s+", " ", output)
