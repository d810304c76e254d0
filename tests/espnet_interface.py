"""What ESPnet 202511 asks of a scorer: in the place of ``espnet.nets.scorer_interface``.

The classes, their bases, and the methods with their parameters; and what the two methods return
that have a use without being overridden.
"""

from typing import Any


class ScorerInterface:
    def init_state(self, x: Any) -> Any:
        return None

    def select_state(self, state: Any, i: int, new_id: Any = None) -> Any:
        raise NotImplementedError

    def score(self, y: Any, state: Any, x: Any) -> Any:
        raise NotImplementedError

    def final_score(self, state: Any) -> float:
        return 0.0


class BatchScorerInterface(ScorerInterface):
    def batch_init_state(self, x: Any) -> Any:
        return self.init_state(x)

    def batch_score(self, ys: Any, states: Any, xs: Any) -> Any:
        raise NotImplementedError


class PartialScorerInterface(ScorerInterface):
    def score_partial(self, y: Any, next_tokens: Any, state: Any, x: Any) -> Any:
        raise NotImplementedError


class BatchPartialScorerInterface(BatchScorerInterface, PartialScorerInterface):
    def batch_score_partial(self, ys: Any, next_tokens: Any, states: Any, xs: Any) -> Any:
        raise NotImplementedError
