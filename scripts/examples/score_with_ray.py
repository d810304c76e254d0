#!/usr/bin/env python3
"""Score a text on all workers of a Ray cluster. Writes Parquet: the text with its scores.

    score_with_ray.py --path checkpoint_best.pt --workers 8 --out scored text.txt
    score_with_ray.py --path checkpoint_best.pt --workers 8 --out scored texts/   # Parquet

Each line is a sentence, as for fairseq-bnce score. Each worker loads the model once. Ray gives the
lines of a worker that dies to another one. All machines need the checkpoint and its dict.txt at the
same path. Needs the extra ``ray``: pip install 'fairseq-bnce[ray]'.
"""

import argparse
from pathlib import Path
from typing import Any, Dict

import numpy as np
import ray
import ray.data

COLUMN = "text"  # of a Parquet file that is read


class Score:
    """A worker: adds log_prob (nats), tokens (with </s>) and oov to a batch of lines."""

    def __init__(self, path: str, exact: bool):
        import torch

        from fairseq_bnce import Scorer

        torch.set_num_threads(1)  # one CPU is what Ray gives a worker
        self.scorer = Scorer.from_checkpoint(path, exact=exact)

    def __call__(self, batch: Dict[str, np.ndarray]) -> Dict[str, Any]:
        found = list(self.scorer.score_stream(batch[COLUMN].tolist()))
        batch["log_prob"] = np.array([score.total for score in found])
        batch["tokens"] = np.array([len(score.words) for score in found])
        batch["oov"] = np.array([score.oov for score in found])
        return batch


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("text", help=f"a text, a sentence a line, or Parquet with a column {COLUMN!r}")
    add("--path", required=True, help="checkpoint")
    add("--out", required=True, help="folder of Parquet files")
    add("--workers", type=int, default=2)
    add("--batch", type=int, default=1000, help="lines that a worker gets at once")
    add("--exact", action="store_true", help="log-probabilities of the softmax")
    options = parser.parse_args()
    text, path = (str(Path(name).resolve()) for name in (options.text, options.path))
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    is_parquet = Path(text).is_dir() or text.endswith(".parquet")
    read = ray.data.read_parquet if is_parquet else ray.data.read_text
    more = {} if is_parquet else {"drop_empty_lines": False}
    # A worker takes 0.9 of a CPU, so that reading and writing find room beside all workers.
    lines = read(text, num_cpus=0.1, **more)
    scored = lines.map_batches(
        Score,
        fn_constructor_args=(path, options.exact),
        batch_size=options.batch,
        compute=ray.data.ActorPoolStrategy(size=options.workers),
        num_cpus=0.9,
    )
    out = str(Path(options.out).resolve())
    scored.write_parquet(out, ray_remote_args={"num_cpus": 0.1})


if __name__ == "__main__":
    main()
