"""Stateful truncated back-propagation: contiguous streams, whose recurrent state carries over.

The data are cut into as many contiguous streams as a batch has sentences. Batch t holds block t of
every stream, and the decoder (rnn_lm) starts it with the state in which batch t - 1 ended, but for
a few streams, which start anew (``--state-reset-rate``). No gradient flows through that state. The
state is zero at the start of an epoch and of a validation subset, and a checkpoint holds it beside
the position in the data.
"""

import inspect
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import FairseqDecoder
from torch import Tensor, nn

from fairseq_bnce import ranks
from fairseq_bnce.errors import require

State = Optional[Tuple[Tensor, ...]]  # (layers, batch, size) each; None for zero


def check_streams(blocks: int, streams: int, shards: int = 1) -> None:
    """Raise ValueError if there are fewer blocks than streams; see :func:`stream_batches`."""
    required = f"at most {blocks // shards} with --stateful, one for each block of a rank's data"
    require("--batch-size, --batch-size-valid", required, streams, blocks >= streams * shards)


def stream_batches(blocks: int, streams: int, shards: int = 1) -> List[List[int]]:
    """Return batches of block numbers: batch t of shard 0, 1, ..., then batch t + 1 of shard 0.

    Every shard has ``streams`` streams of its own. Streams differ by one block at most. The longer
    streams come first, so that the streams of a batch are the first ones of the batch before.

    Args:
        blocks: how many blocks the data have.
        streams: sentences a batch, at least 1.
        shards: ranks that share the data.

    Raises:
        ValueError: if there are fewer blocks than streams.
    """
    check_streams(blocks, streams, shards)
    total = streams * shards
    base, longer = divmod(blocks, total)
    starts = [stream * base + min(stream, longer) for stream in range(total)]
    ends = [*starts[1:], blocks]
    return [
        [starts[s] + t for s in range(shard, total, shards) if starts[s] + t < ends[s]]
        for t in range(base + (longer > 0))
        for shard in range(shards)
    ]


def eval_lm_options(context_window: int = 0, **kwargs: object) -> Dict[str, object]:
    """Return eval-lm's options for streams: one stream by default.

    eval-lm's default of --max-tokens would make more streams.
    """
    require("--context-window", "0 with --stateful", context_window, context_window == 0)
    return {**kwargs, "batch_size": kwargs.get("batch_size") or 1, "max_tokens": None}


class CarriedState:
    """The recurrent state that a decoder carries from batch to batch, once attached.

    Args:
        model: a language model whose decoder has a ``carried_state`` and a ``final_state``.
        reset_rate: the share of streams that start a training batch from zero, drawn anew for each
            batch. Without such starts a model does not learn to normalise the scores of a text
            that begins.

    Raises:
        ValueError: for any other decoder.
    """

    def __init__(self, model: nn.Module, reset_rate: float = 0.0):
        self.decoder: FairseqDecoder = model.decoder
        self._reset_rate = reset_rate
        required = "an architecture that carries its recurrent state (rnn_lm and its presets)"
        got = type(self.decoder).__name__
        require("--stateful", required, got, hasattr(self.decoder, "carried_state"))
        self._training: State = None  # after the last training batch
        self._all_ranks: List[State] = []  # the same for every rank
        self._is_training = self._is_attached = False

    def attach(self) -> None:
        """Let the decoder carry its state over from now on: it reads streams."""
        if not self._is_attached:
            self.decoder.register_forward_pre_hook(self._before)
            self.decoder.register_forward_hook(self._after)
            self._is_attached = True

    def start_epoch(self, states: Optional[List[State]] = None) -> None:
        """Start from zero, or from a checkpoint's states, one for each rank."""
        own = None if states is None else states[ranks.rank()]
        # On the device here: the first batch of a rank may be a dummy batch.
        self._training = None if own is None else tuple(map(self._as_parameters, own))
        self._all_ranks = [None] * ranks.count() if states is None else states
        self.decoder.carried_state = self._training
        self._is_training = True

    def start_other_data(self) -> None:
        """Start validation or scoring from zero; training goes on from where it was."""
        self.decoder.carried_state = None
        self._is_training = False

    @contextmanager
    def training(self, is_dummy: bool) -> Iterator[None]:
        """Let the decoder read training batches inside the context, on from the batch before.

        A dummy batch stands in for a batch that the rank does not have: it starts from zero and
        leaves no trace.
        """
        self._is_training, before = True, self._training
        self.decoder.carried_state = None if is_dummy else before
        try:
            yield
        finally:
            if is_dummy:
                self.decoder.carried_state = self._training = before

    def gather(self) -> None:
        """Exchange the states of all ranks: rank 0 alone writes checkpoints."""
        if ranks.count() > 1 and self._training is not None:
            by_batch = [part.transpose(0, 1) for part in self._training]
            parts = ranks.gather_uneven(*by_batch)
            self._all_ranks = [
                tuple(part[rank].transpose(0, 1).contiguous() for part in parts)
                for rank in range(ranks.count())
            ]

    def states(self) -> List[State]:
        """Return the state that each rank's next batch starts from, on the CPU."""
        states = self._all_ranks if ranks.count() > 1 else [self._training]
        return [None if state is None else tuple(part.cpu() for part in state) for state in states]

    def _before(self, decoder: FairseqDecoder, inputs: Tuple) -> None:
        """Drop the streams that have ended, which are the last ones; start some from zero."""
        if decoder.carried_state is None:
            return
        count = len(inputs[0])
        state = [self._as_parameters(part)[:, :count] for part in decoder.carried_state]
        if self._is_training and self._reset_rate:
            goes_on = torch.rand(count, 1).ge(self._reset_rate).to(state[0])
            state = [part * goes_on for part in state]
        decoder.carried_state = tuple(part.contiguous() for part in state)

    def _as_parameters(self, part: Tensor) -> Tensor:
        return part.to(next(self.decoder.parameters()))

    def _after(self, decoder: FairseqDecoder, inputs: Tuple, output: object) -> None:
        decoder.carried_state = decoder.final_state
        if self._is_training:
            self._training = decoder.final_state


class StreamIterator(EpochBatchIterator):
    """Batches in the order of the streams; the saved position includes the recurrent state.

    Args:
        dataset: blocks in the order of the text.
        streams: sentences a batch.
        carried: the state of the decoder that reads the batches.
        trains: whether these are the training data, which may be validation data, too.
        block: tokens of a block.
        **kw: of get_batch_iterator, with num_shards; EpochBatchIterator gets those that it knows.
    """

    def __init__(
        self, dataset: Any, streams: int, carried: CarriedState, trains: bool, block: int, **kw: Any
    ):
        self.carried, self.trains, self.streams, self.block = carried, trains, streams, block
        self.restored: Optional[List[State]] = None
        known = inspect.signature(EpochBatchIterator).parameters  # fewer in fairseq 0.12.2
        # Without reuse_dataloader, a dropped loader would keep the next one waiting.
        kw["reuse_dataloader"] = True
        super().__init__(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=stream_batches(len(dataset), streams, kw.get("num_shards", 1)),
            disable_shuffling=True,
            **{name: value for name, value in kw.items() if name in known},
        )

    def state_dict(self) -> Dict[str, object]:
        state = super().state_dict()
        if state["iterations_in_epoch"]:
            state["carried_state"] = self.carried.states()
            state["tokens_per_sample"] = self.block
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the place in the data and the states.

        Raises:
            ValueError: for a place among other streams, or among none.
        """
        self.restored = state_dict.get("carried_state")
        if state_dict.get("iterations_in_epoch"):
            states = self.restored or []
            streams = next((len(state[0][0]) for state in states if state), self.streams)
            block = state_dict.get("tokens_per_sample", self.block)
            saved, now = (len(states), streams, block), (ranks.count(), self.streams, self.block)
            required = "{} rank(s), {} streams (--batch-size) and blocks of {} tokens"
            required = f"{required.format(*saved)}, as in the checkpoint, or --reset-dataloader"
            require("--stateful", required, " and ".join(map(str, now)), saved == now)
        super().load_state_dict(state_dict)

    def next_epoch_itr(self, *flags: bool, set_dataset_epoch: bool = True, **kw: bool) -> Iterator:
        """Start the decoder's state where the data start.

        fairseq-train sets the dataset's epoch for training, and not for validation.
        """
        if self.trains and set_dataset_epoch:
            restored, self.restored = self.restored, None
            self.carried.start_epoch(restored)
        else:
            self.carried.start_other_data()
        return super().next_epoch_itr(*flags, set_dataset_epoch=set_dataset_epoch, **kw)
