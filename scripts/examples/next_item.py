#!/usr/bin/env python3
"""Train a recommender of the next item, by fairseq_bnce's losses and by a full softmax.

    next_item.py --items 50000 --sessions 20000

The log is synthetic: popularity is Zipf's, and 60 % of the items come from the four followers of
the item before. Each loss trains the same GRU for one epoch. The table has the recall among the
first 10 of all items, on sessions that were held out, and the processor time of the training. Needs
no fairseq.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, Dict, Tuple

import torch
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.optim.update_rules import LazyAdam

LENGTH, SIZE, BATCH, DRAWS = 20, 64, 50, 500
OURS: Dict[str, Any] = {
    "ranking_nce_loss": losses.ranking_nce_loss,  # sampled softmax, log q corrected, in batch
    "batch_nce_loss": losses.batch_nce_loss,  # binary, the batch's items as negatives
    "sampled_bce_loss": losses.sampled_bce_loss,  # binary over all items, estimated
}


def make_sessions(items: int, sessions: int) -> Tensor:
    """Return a log (sessions, LENGTH) of item ids."""
    popular = NoiseDistribution(1 / torch.arange(10.0, items + 10))
    followers = popular.sample(items * 4).view(items, 4)
    log = popular.sample(sessions * LENGTH).view(sessions, LENGTH)
    follows = torch.rand(log.shape) < 0.6
    choice = torch.randint(4, log.shape)
    for place in range(1, LENGTH):
        chosen = followers[log[:, place - 1], choice[:, place]]
        log[:, place] = torch.where(follows[:, place], chosen, log[:, place])
    return log


class Recommender(nn.Module):
    """Items so far to features; a row and a bias for each item that may be next."""

    def __init__(self, items: int, bias: Tensor, sparse: bool):
        super().__init__()
        self.items = nn.Embedding(items, SIZE, sparse=sparse)
        self.gru = nn.GRU(SIZE, SIZE, batch_first=True)
        self.rows = nn.Embedding(items, SIZE, sparse=sparse)
        self.bias = nn.Embedding.from_pretrained(bias[:, None].clone(), freeze=False, sparse=sparse)
        nn.init.normal_(self.rows.weight, std=0.01)

    def forward(self, ids: Tensor) -> Tensor:
        return self.gru(self.items(ids))[0].flatten(0, 1)


def loss_of(name: str, model: Recommender, ids: Tensor, q: NoiseDistribution) -> Tensor:
    """Return the loss of a batch of sessions."""
    features, target = model(ids[:, :-1]), ids[:, 1:].flatten()
    if name == "cross_entropy":
        scores = features @ model.rows.weight.t() + model.bias.weight[:, 0]
        return nn.functional.cross_entropy(scores, target)
    draws = q.sample(DRAWS)
    used, places = torch.cat([target, draws]).unique(return_inverse=True)
    layer = model.rows(used), model.bias(used)[:, 0], q.log_q[used]
    target, draws = places.split([len(target), DRAWS])
    return OURS[name](features, target, *layer, noise_ids=draws) / len(target)


def train(name: str, log: Tensor, q: NoiseDistribution) -> Tuple[Recommender, float]:
    """Return a model, and the processor seconds of its training."""
    torch.manual_seed(1)
    is_sparse = name in OURS
    model = Recommender(len(q.log_q), q.log_q, is_sparse)
    rule = LazyAdam if is_sparse else torch.optim.Adam
    optimizer = rule(model.parameters(), lr=0.005)
    start = time.process_time()
    for ids in log.split(BATCH):
        optimizer.zero_grad()
        loss_of(name, model, ids, q).backward()
        optimizer.step()
    return model, time.process_time() - start


@torch.no_grad()
def recall(model: Recommender, log: Tensor, count: int = 10) -> float:
    """Return the share of next items among the ``count`` best-scored of all items."""
    hits = 0
    for ids in log.split(BATCH):
        scores = model(ids[:, :-1]) @ model.rows.weight.t() + model.bias.weight[:, 0]
        hits += (scores.topk(count).indices == ids[:, 1:].reshape(-1, 1)).sum().item()
    return hits / log[:, 1:].numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--sessions", type=int, default=20_000, help="to train on")
    parser.add_argument("--out", type=Path, help="file for the table, as JSON")
    options = parser.parse_args()
    torch.manual_seed(0)
    log = make_sessions(options.items, options.sessions + 500)
    held_out, log = log[:500], log[500:]
    q = NoiseDistribution(torch.bincount(log.flatten(), minlength=options.items) + 1)
    found: Dict[str, Any] = {"items": options.items, "sessions": options.sessions, "losses": {}}
    print("loss               recall@10  processor s")
    for name in (*OURS, "cross_entropy"):
        model, seconds = train(name, log, q)
        found["losses"][name] = {"recall": recall(model, held_out), "processor_seconds": seconds}
        print(f"{name:18} {found['losses'][name]['recall']:9.3f} {seconds:12.1f}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
