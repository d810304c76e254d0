"""What a reduced partition function gains, by the number of its rows."""

import itertools
import math
import time
from typing import Any, Dict, Iterable, Sequence

import torch

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.scoring import reduction
from fairseq_bnce.scoring.diagnosis import Diagnosis, fit_offset, measuring, summary
from fairseq_bnce.text.reading import sampled

from ..workshop import lines_of


def measure(options: Any) -> Dict[str, Any]:
    torch.set_num_threads(options.threads)
    pairs = (model.partition("=")[::2] for model in options.models)
    return {"models": {name: _model(path, options) for name, path in pairs}}


def _model(path: str, options: Any) -> Dict[str, Any]:
    lines = list(itertools.islice(lines_of(options.text), options.lines))

    def load(exact: bool, **state: Any) -> Scorer:
        """Load the model, which a scorer changes, with the rows of ``state`` only."""
        trained = checkpoints.load(path, options.data)
        trained.state.reduced_partition = None
        trained.state.entries.update(state)
        return Scorer(trained, exact=exact)

    def way(rows: int, state: Dict[str, Any]) -> Dict[str, float]:
        numbers = _summary(load(True, **state), lines)
        found = {"rows": rows, **{name: numbers[name] for name in ("sigma_z", "ppl")}}
        found["u_ppl"] = numbers["u_ppl"] * math.exp(state["mu_z"])
        if options.shift is not None:
            mean = _summary(load(True, **state), lines_of(options.shift))["mu_z"]
            found["u_ppl_other_mean"] = numbers["u_ppl"] * math.exp(mean)
        found["speed"] = _speed(load(False, **state), lines)
        return found

    fitting, contexts = load(True), reduction.Contexts(options.contexts)
    text = sampled(lines_of(options.fit), options.contexts)
    measuring(fitting, contexts).score_words(text, tokenized=True)
    mean = contexts.parts()[1][1].mean().item()
    states: Dict[int, Dict[str, Any]] = {0: {"mu_z": mean - fitting.log_z}}
    for rows in options.rows:
        reduced, measured = fit_offset(fitting, contexts, rows)
        states[rows] = {"mu_z": measured["mu_z"], "reduced_partition": reduced._asdict()}
    ways = [way(*state) for state in states.items()]
    speed = _speed(load(True), lines)
    return {"words": len(fitting.dictionary), "exact_speed": speed, "ways": ways}


def _summary(exact: Scorer, lines: Iterable[str]) -> Dict[str, float]:
    diagnosis = Diagnosis(worst=0)
    list(diagnosis.fill(exact, lines))
    return summary(diagnosis.measures)


def _speed(scorer: Scorer, lines: Sequence[str]) -> float:
    """Return tokens per processor second, the best of three."""
    times, tokens = [], 0
    for _ in range(3):
        start = time.process_time()
        tokens = sum(len(score.words) for score in scorer.score_stream(lines, tokenized=True))
        times.append(time.process_time() - start)
    return tokens / min(times)
