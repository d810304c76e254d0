"""Stateful truncated back-propagation: contiguous streams, whose recurrent state carries over.

The data are cut into as many contiguous streams as a batch has sentences; batch t holds block t of
every stream, and a :class:`StatefulDecoder` starts it with the state that batch t - 1 ended in,
through which no gradient flows. The state is zero at the start of an epoch or of a validation
subset, and never reset in between; a checkpoint holds it beside the position in the data.
"""

import inspect
import weakref
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Protocol, Tuple

from fairseq.data.iterators import EpochBatchIterator
from torch import Tensor, nn

from fairseq_bnce import ranks
from fairseq_bnce.data.token_counts import break_mode
from fairseq_bnce.errors import require

State = Optional[Tuple[Tensor, ...]]


class StatefulDecoder(Protocol):
    """A decoder's recurrent state: None, for zero, or tensors (layers, batch, size).

    Attributes:
        carried_state: what its forward pass starts from.
        final_state: after it, detached.
    """

    carried_state: State
    final_state: State


def streams_within(
    max_sentences: Optional[int], max_tokens: Optional[int], tokens_per_block: int
) -> int:
    """How many streams a batch is of: as many as it may have blocks; 1 where it has no limit.

    Raises:
        ValueError: if ``max_tokens`` has no room for one block.
    """
    required = f"at least {tokens_per_block}, a block of --tokens-per-sample, with --stateful"
    fits = max_tokens is None or max_tokens >= tokens_per_block
    flag = "--max-tokens (of validation data: --max-tokens-valid)"
    require(flag, required, max_tokens, fits)
    by_tokens = None if max_tokens is None else max_tokens // tokens_per_block
    return min((limit for limit in (max_sentences, by_tokens) if limit), default=1)


def stream_batches(blocks: int, streams: int, shards: int = 1) -> List[List[int]]:
    """Batches of block numbers: shard r's batch t, then shard r + 1's, then batch t + 1.

    Every shard has ``streams`` streams of its own. Streams differ by one block at most; the longer
    ones come first, so that a batch's streams are the first ones of the batch before.

    Args:
        blocks: how many blocks the data have.
        streams: sentences a batch, at least 1.
        shards: ranks that share the data.

    Raises:
        ValueError: if there are fewer blocks than streams.
    """
    total = streams * shards
    if blocks < total:
        raise ValueError(
            f"--batch-size: required at most {blocks // shards} streams with --stateful on data of "
            f"{blocks} blocks (--tokens-per-sample) and {shards} rank(s), got {streams}; for "
            "validation data --batch-size-valid is the flag"
        )
    base, longer = divmod(blocks, total)
    starts = [stream * base + min(stream, longer) for stream in range(total)]
    ends = [*starts[1:], blocks]
    return [
        [starts[s] + t for s in range(shard, total, shards) if starts[s] + t < ends[s]]
        for t in range(base + (longer > 0))
        for shard in range(shards)
    ]


def check_contiguous(args: Any) -> None:
    """Raise ValueError for blocks that are sentences."""
    mode = break_mode(args)
    required = "'none', one running text, with --stateful"
    require("--sample-break-mode", required, repr(mode), mode == "none")


def eval_lm_options(context_window: int = 0, **kwargs: Any) -> Dict[str, Any]:
    """What eval-lm asks for, as --stateful takes it.

    One text by default, --max-tokens aside: eval-lm gives that a value of its own.
    """
    required = "0 with --stateful, whose state is of all words before"
    require("--context-window", required, context_window, context_window == 0)
    return {**kwargs, "batch_size": kwargs.get("batch_size") or 1, "max_tokens": None}


def refusing_states(iterator: Any) -> Any:
    """An iterator without --stateful, which does not go on in the midst of streams."""
    if "load_state_dict" not in vars(iterator):  # fairseq keeps iterators
        # Weak, or what an epoch has read would stay until Python looks for cycles.
        kept: Any = weakref.ref(iterator)

        def load_state_dict(state_dict: Dict[str, Any]) -> None:
            _check_place(state_dict, is_stateful=False)
            type(kept()).load_state_dict(kept(), state_dict)

        iterator.load_state_dict = load_state_dict
    return iterator


def _check_place(state: Dict[str, Any], is_stateful: bool) -> None:
    """A place in the midst of an epoch is one among streams, or it is not."""
    was_stateful = "carried_state" in state
    if state.get("iterations_in_epoch") and was_stateful != is_stateful:
        switch = {True: "on", False: "off"}
        raise ValueError(
            f"--stateful: required {switch[was_stateful]}, as in the epoch that the checkpoint is "
            f"in the midst of, got {switch[is_stateful]}; go on so, or with --reset-dataloader "
            "from a new epoch"
        )


class CarriedState:
    """What a decoder ended a batch in, to be what it starts the next one in, once attached.

    Args:
        model: a language model with a :class:`StatefulDecoder`.

    Raises:
        ValueError: for a decoder that keeps none.
    """

    def __init__(self, model: nn.Module):
        decoder: Any = model.decoder
        required = "an architecture that carries its recurrent state (rnn_lm and its presets)"
        carries = hasattr(decoder, "carried_state")
        require("--stateful", required, type(decoder).__name__, carries)
        self.decoder: StatefulDecoder = decoder
        self._training: State = None  # that of the last training batch
        self._of_all_ranks: List[State] = []  # the same, as several ranks told each other
        self._is_training = self._is_attached = False
        self._begins_update = True
        self._update: Tuple[List[int], State] = ([], None)  # its first blocks, and what it began in

    def attach(self) -> None:
        """Have the decoder carry its state over from now on: it reads streams."""
        if not self._is_attached:
            decoder: Any = self.decoder
            decoder.register_forward_pre_hook(self._before)
            decoder.register_forward_hook(self._after)
            self._is_attached = True

    def start_epoch(self, states: Optional[List[State]] = None) -> None:
        """Zero, or as a checkpoint has it, one for each rank."""
        if states is not None and len(states) != ranks.count():
            raise ValueError(
                f"checkpoint: required the recurrent states of {ranks.count()} rank(s), got "
                f"{len(states)}; go on with as many, or with --reset-dataloader from a new epoch"
            )
        own = None if states is None else states[ranks.rank()]
        # Here, and not by the first batch alone, which a rank's may be a dummy.
        self._training = None if own is None else tuple(map(self._as_parameters, own))
        self._of_all_ranks = [None] * ranks.count() if states is None else states
        self.decoder.carried_state = self._training
        self._is_training = self._begins_update = True
        self._update = ([], None)

    def start_other_data(self) -> None:
        """Zero, for validation or scoring; training goes on from where it was."""
        self.decoder.carried_state = None
        self._is_training = False

    def resume_training(self) -> None:
        """After a validation."""
        if not self._is_training:
            self.decoder.carried_state = self._training
            self._is_training = True

    @contextmanager
    def training(self, blocks: Tensor, is_dummy: bool, may_repeat: bool) -> Iterator[None]:
        """In here a training batch is read, on from the one before, also after a validation.

        A dummy batch starts from zero, of whatever width, and leaves no trace.

        Args:
            blocks: the numbers of its blocks, shape (batch,).
            is_dummy: whether it stands in for a batch that its rank does not have.
            may_repeat: whether an update's batches may come once more, as under --amp.
        """
        self.resume_training()
        if not is_dummy:
            if may_repeat:  # or else a GPU would be waited for in vain
                self._go_back_if_read_again(blocks)
            yield
            return
        before = self.decoder.carried_state, self._training
        self.decoder.carried_state = None
        try:
            yield
        finally:
            self.decoder.carried_state, self._training = before

    def _go_back_if_read_again(self, blocks: Tensor) -> None:
        """After an overflow under --amp fairseq's trainer gives an update's batches once more."""
        if not self._begins_update:
            return
        self._begins_update = False
        first_blocks = blocks.tolist()
        if first_blocks == self._update[0]:
            self._training = self.decoder.carried_state = self._update[1]
        self._update = (first_blocks, self._training)

    def end_update(self) -> None:
        self._begins_update = True
        self.tell_ranks()

    def tell_ranks(self) -> None:
        """Tell them each other's states: rank 0 alone writes checkpoints."""
        if ranks.count() > 1 and self._training is not None:
            turned = [part.transpose(0, 1) for part in self._training]
            lengths = ranks.lengths_of(turned[0])
            parts = [ranks.gather_uneven(part, lengths) for part in turned]
            self._of_all_ranks = [
                tuple(part[rank].transpose(0, 1).contiguous() for part in parts)
                for rank in range(ranks.count())
            ]

    def of_all_ranks(self) -> List[State]:
        """On the CPU, one for each rank: the states that the next batch starts from."""
        states = self._of_all_ranks if ranks.count() > 1 else [self._training]
        return [None if state is None else tuple(part.cpu() for part in state) for state in states]

    def _before(self, decoder: Any, inputs: Tuple) -> None:
        """Streams that have ended are the last ones; the state may come from a checkpoint."""
        if decoder.carried_state is not None:
            tokens = inputs[0]
            decoder.carried_state = tuple(
                self._as_parameters(part)[:, : len(tokens)].contiguous()
                for part in decoder.carried_state
            )

    def _as_parameters(self, part: Tensor) -> Tensor:
        """On the decoder's device, in its precision."""
        decoder: Any = self.decoder
        return part.to(next(decoder.parameters()))

    def _after(self, decoder: Any, inputs: Tuple, output: Any) -> None:
        decoder.carried_state = decoder.final_state
        if self._is_training:
            self._training = decoder.final_state


class StreamIterator(EpochBatchIterator):
    """Batches in the order of the streams, whose saved position includes the recurrent state.

    Args:
        dataset: blocks in the order of the text.
        streams: sentences a batch.
        carried: the state of the decoder that reads the batches.
        trains: whether they are the training data, which may be validation data, too.
        block: tokens of one.
        num_shards: ranks.
        **kwargs: EpochBatchIterator's.
    """

    def __init__(
        self,
        dataset: Any,
        streams: int,
        carried: CarriedState,
        trains: bool,
        block: int,
        num_shards: int = 1,
        **kwargs: Any,
    ):
        self.carried, self.trains, self.streams, self.block = carried, trains, streams, block
        self.restored: Optional[List[State]] = None
        # A loader that is dropped keeps the next one waiting for its workers; not in 0.12.2.
        if "reuse_dataloader" in inspect.signature(EpochBatchIterator).parameters:
            kwargs["reuse_dataloader"] = True
        super().__init__(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=stream_batches(len(dataset), streams, num_shards),
            num_shards=num_shards,
            disable_shuffling=True,
            **kwargs,
        )

    def state_dict(self) -> Dict[str, Any]:
        state = super().state_dict()
        if state["iterations_in_epoch"]:
            state["carried_state"] = self.carried.of_all_ranks()
            state["tokens_per_sample"] = self.block
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """As fairseq's.

        Raises:
            ValueError: for the states of another number of streams, or none; for other blocks.
        """
        _check_place(state_dict, is_stateful=True)
        block = state_dict.get("tokens_per_sample", self.block)
        if block != self.block:
            raise ValueError(
                f"--tokens-per-sample: required {block}, as the checkpoint's place in the data is "
                f"of, got {self.block}; go on with as many, or with --reset-dataloader from a new "
                "epoch"
            )
        states = state_dict.get("carried_state")
        for state in states or []:
            if state is not None and state[0].size(1) != self.streams:
                saved = state[0].size(1)
                raise ValueError(
                    f"--batch-size: required {saved} streams a rank, as the checkpoint has states "
                    f"of, got {self.streams}; go on with as many, or with --reset-dataloader from "
                    "a new epoch"
                )
        super().load_state_dict(state_dict)
        self.restored = states

    def next_epoch_itr(
        self,
        shuffle: bool = True,
        fix_batches_to_gpus: bool = False,
        set_dataset_epoch: bool = True,
    ) -> Any:
        """As fairseq's, with the decoder's state where the data start.

        fairseq-train sets the dataset's epoch when it trains, and not when it validates.
        """
        if self.trains and set_dataset_epoch:
            restored, self.restored = self.restored, None
            self.carried.start_epoch(restored)
        else:
            self.carried.start_other_data()
        return super().next_epoch_itr(shuffle, fix_batches_to_gpus, set_dataset_epoch)
