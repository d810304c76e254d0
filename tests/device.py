"""Where tests run that are to hold on a GPU, too: there if there is one."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# fairseq's commands ask to be told where there is none.
FLAGS = [] if DEVICE == "cuda" else ["--cpu"]
