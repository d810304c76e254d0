"""How torch's threads wait in a training: asleep, unless the user has chosen."""

import os
import subprocess
import sys

import pytest
from tools import LANGUAGE_MODELING, LSTM, PLUGIN, TRAINING

REGIONS = 100
# A thread that sleeps gives its processor away once a parallel region; one that spins does not.
PROGRAM = f"""
import glob, sys, torch
from fairseq_cli import train
torch.set_num_threads(2)
train.cli_main()
numbers = torch.ones(2**17)
def given_away():
    texts = [open(path).read() for path in glob.glob("/proc/self/task/*/status")]
    return sum(int(text.split("\\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)
numbers.exp()
before = given_away()
for _ in range({REGIONS}):
    numbers.exp()
print(given_away() - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="Linux counts how threads wait")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads take turns on one")
@pytest.mark.parametrize("policy, sleeps", [(None, True), ("ACTIVE", False)])
def test_threads_sleep_while_they_wait(policy, sleeps, corpus, tmp_path):
    environment = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    environment.update({"OMP_WAIT_POLICY": policy} if policy else {})
    command = [sys.executable, "-c", PROGRAM, corpus, "--user-dir", PLUGIN, *TRAINING, *LSTM]
    command += [*LANGUAGE_MODELING, "--criterion", "bnce", "--max-update", "1"]
    command += ["--save-dir", tmp_path, "--no-save"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    assert (int(done.stdout.split()[-1]) > REGIONS / 2) == sleeps
