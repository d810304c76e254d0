"""Two ranks on this machine: of fairseq-train, and of functions in forks of this process."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import forks
import torch
from tools import LANGUAGE_MODELING, PLUGIN, TRAINING, run

# fairseq-train for one rank on a machine without a GPU. fairseq passes device ids to
# DistributedDataParallel, which CPU modules must not have. At the end each rank saves its model
# and how many bytes it has sent by way of Python (which pytorch_ddp's reducer does not take).
# IN_FLOAT64: to compare two ways of training, rounding left aside. DIES_AT: an update of rank 1.
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
exact = "IN_FLOAT64" in os.environ
models, make = [], Trainer.__init__
def remember(self, cfg, task, model, criterion, quantizer=None):
    models.append(model.double() if exact else model)
    make(self, cfg, task, model, criterion, quantizer)
Trainer.__init__ = remember

step = Trainer.train_step
def step_or_die(self, *args, **kwargs):
    if rank == "1" and os.environ.get("DIES_AT") == str(self.get_num_updates()):
        os.kill(os.getpid(), 9)
    return step(self, *args, **kwargs)
Trainer.train_step = step_or_die

sent = [0]
def counted(collective, argument):
    def call(*args, **kwargs):
        sent[0] += args[argument].numel() * args[argument].element_size()
        return collective(*args, **kwargs)
    return call
torch.distributed.all_reduce = counted(torch.distributed.all_reduce, 0)
torch.distributed.all_gather = counted(torch.distributed.all_gather, 1)
cli_main()
parameters = {name: p.detach() for name, p in models[0].named_parameters()}
result = {"parameters": parameters, "sent": sent[0]}
torch.save(result, os.path.join(folder, "rank%s.pt" % rank))
"""


def rank_command(corpus, folder, *flags, meet="env://", world=2, on_gpu=False):
    """RANK as a script in ``folder``, and its arguments; all ranks share the first GPU, if any."""
    folder.mkdir(exist_ok=True)
    (folder / "rank.py").write_text(RANK, encoding="utf-8")
    # Said in full: what fairseq infers from torchrun's environment, it divides by the GPUs.
    rest = ["--user-dir", PLUGIN, *LANGUAGE_MODELING, "--save-dir", folder / "run"]
    rest += ["--distributed-backend", "gloo", "--distributed-world-size", str(world)]
    rest += ["--distributed-init-method", meet, "--distributed-no-spawn"]
    flags = [*TRAINING, *flags]
    if on_gpu:
        flags = [*(flag for flag in flags if flag != "--cpu"), "--device-id", "0"]
    return [folder / "rank.py", folder, corpus, *rest, *flags]


def train_with_torchrun(corpus, folder, *flags):
    launch = ["--nproc_per_node", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]
    command = rank_command(corpus, folder, *flags)
    return run("torch.distributed.run", *launch, *command)


def train_on_ranks(corpus, folder, *flags, env=None, world=2, on_gpu=False):
    """As torchrun does, with a fork for each rank: (exit statuses, what the ranks printed).

    They meet in a file: a port that was free may be taken when they bind it.
    """
    meet = f"file://{tempfile.mkdtemp(dir=folder.parent)}/meet"
    own = rank_command(corpus, folder, *flags, meet=meet, world=world, on_gpu=on_gpu)
    command = [sys.executable, *own]
    shared = {**os.environ, **(env or {}), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    printed = [folder / f"rank{rank}.log" for rank in range(world)]
    ranks = []
    # CUDA works in no fork of a process that has used it.
    start = subprocess.Popen if on_gpu else forks.Popen
    for rank, log in enumerate(printed):
        named = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        with log.open("wb") as stream:
            ranks.append(start(command, env=named, stdout=stream, stderr=subprocess.STDOUT))
    return [rank.wait() for rank in ranks], "".join(log.read_text("utf-8") for log in printed)


def trained_on_ranks(corpus, folder, *flags, **named):
    """The ranks' results."""
    statuses, output = train_on_ranks(corpus, folder, *flags, **named)
    assert not any(statuses), output
    return results(folder)


def results(folder):
    return [torch.load(path) for path in sorted(folder.glob("rank?.pt"))]


def on_two_ranks(function, *arguments):
    """What ``function(rank, *arguments)`` returns on each of two gloo ranks, forks of this one."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in (0, 1):
            given = (rank, Path(folder), function, arguments)
            # Of daemons none waits for a rank that has failed once the tests are over.
            ranks.append(context.Process(target=in_rank, args=given, daemon=True))
            ranks[-1].start()
        for rank in ranks:
            rank.join()
            assert rank.exitcode == 0
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def in_rank(rank, folder, function, arguments):
    meet = f"file://{folder}/meet"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    torch.save(function(rank, *arguments), folder / f"{rank}.pt")
