"""Recurrent state that carries over between batches, in training, validation and eval-lm."""

import re
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from tools import build, evaluate, loss_bits

from fairseq_bnce.tasks.streams import stream_batches

RNN = ["--arch", "rnn_lm", "--decoder-embed-dim", "16", "--dropout", "0"]
STATEFUL = [*RNN, "--criterion", "bnce", "--stateful", "--state-reset-rate", "0", "--lr", "2"]


def stateful(corpus, *flags):
    """(task, model, training data) of a run with --stateful in blocks of 16."""
    _, task, model = build(corpus, *STATEFUL, *flags)
    task.args.train_subset = "train"
    task.load_dataset("train")
    return task, model, task.dataset("train")


def assert_carried(decoder, want):
    assert all(a is b for a, b in zip(decoder.carried_state, want))


@pytest.mark.parametrize("blocks, streams, shards", [(14, 3, 2), (23, 4, 3), (5, 5, 1)])
def test_streams_are_contiguous(blocks, streams, shards):
    batches = stream_batches(blocks, streams, shards)
    assert sorted(block for batch in batches for block in batch) == list(range(blocks))
    for shard in range(shards):
        own = batches[shard::shards]
        assert len(own[0]) == streams
        for before, after in zip(own, own[1:]):
            assert [block + 1 for block in before[: len(after)]] == after


def test_every_batch_starts_where_the_last_one_ended(corpus):
    """The features of all batches of an epoch are those of the streams read in one go."""
    task, model, dataset = stateful(corpus)
    iterator = task.get_batch_iterator(dataset, max_sentences=4)
    batches = [b["net_input"]["src_tokens"] for b in iterator.next_epoch_itr(shuffle=True)]
    with torch.no_grad():
        pieces = [model(batch)[0] for batch in batches]
        whole = [batch for batch in batches if len(batch) == 4]
        assert len(whole) > 5
        model.decoder.carried_state = None
        want = model(torch.cat(whole, dim=1))[0]
    torch.testing.assert_close(torch.cat(pieces[: len(whole)], dim=1), want)
    words = torch.cat([dataset[i]["source"] for i in range(len(dataset))])
    rows = torch.cat(whole, dim=1)
    assert torch.equal(rows[0], words[: rows.size(1)])


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_some_streams_start_a_training_batch_from_an_empty_state(rate, corpus):
    task, model, dataset = stateful(corpus, "--state-reset-rate", str(rate))
    iterator = task.get_batch_iterator(dataset, max_sentences=8)
    first, second = [b["net_input"]["src_tokens"] for b in iterator.next_epoch_itr()][:2]
    with torch.no_grad():
        found = model(first)[0], model(second)[0]
        task._carried_states[-1].start_other_data()
        carried = model(first)[0], model(second)[0]  # in validation every stream goes on
        model.decoder.carried_state = None
        empty = model(second)[0]
    torch.testing.assert_close(found[0], carried[0])
    is_new = torch.isclose(found[1], empty).all(dim=2).all(dim=1)
    goes_on = torch.isclose(found[1], carried[1]).all(dim=2).all(dim=1)
    assert (is_new ^ goes_on).all() and is_new.any() and goes_on.any() == (rate < 1)


def test_an_iterator_is_made_once(corpus):
    """Each has worker processes, and one that is dropped keeps them, and the next ones waiting."""
    _, task, _ = build(corpus, *STATEFUL)
    task.args.train_subset = "train"
    for split, combine in (("valid", False), ("train", True)):
        task.load_dataset(split, combine=combine)
        dataset = task.dataset(split)
        first = task.get_batch_iterator(dataset, max_sentences=4, num_workers=1)
        for _ in range(2):
            list(first.next_epoch_itr(shuffle=False))
            again = task.get_batch_iterator(dataset, max_sentences=4, num_workers=1)
            assert again is first and again.reuse_dataloader
        once = task.get_batch_iterator(dataset, max_sentences=2, disable_iterator_cache=True)
        assert task.dataset_to_epoch_iter[dataset] is first and once.streams == 2
        assert task.get_batch_iterator(dataset, max_sentences=3).streams == 3


@pytest.fixture
def checkpoint(training):
    last, _ = training(*STATEFUL, "--max-epoch", "2", "--clip-norm", "1")
    return last.with_name("checkpoint_best.pt")


def test_scored_as_one_text(corpus, checkpoint):
    """eval-lm --stateful in blocks of 2 is eval-lm in one block; without, it is not."""
    evaluated = partial(evaluate, corpus, checkpoint)
    for unnormalized in ([], ["--unnormalized"]):
        one_block = loss_bits(evaluated("--tokens-per-sample", "5000", *unnormalized))
        short = ["--tokens-per-sample", "2", *unnormalized]
        stateful = evaluated("--stateful", "--batch-size", "1", *short)
        assert loss_bits(stateful) == pytest.approx(one_block, abs=2e-4)
    blocks = evaluated(*short)
    assert abs(loss_bits(blocks) - one_block) > 1e-3
    streams = evaluated("--stateful", "--batch-size", "3", *short)
    words = [re.findall(r"Evaluated ([\d,]+) tokens", o)[0] for o in (stateful, blocks, streams)]
    assert len({*words}) == 1


@pytest.mark.parametrize("tokens, sentences, streams", [(95, None, 5), (95, 3, 3), (16, None, 1)])
def test_max_tokens_make_streams(tokens, sentences, streams, corpus):
    """As many as a batch of at most so many tokens has blocks."""
    task, _, dataset = stateful(corpus)
    first = task.get_batch_iterator(dataset, tokens, sentences).first_batch
    assert first["net_input"]["src_tokens"].shape == (streams, 16)


def test_validation_data_have_a_block_for_each_stream(corpus):
    """Stock fairseq reads them after the first epoch, which would be lost."""
    task, _, dataset = stateful(corpus, "--batch-size-valid", "1000")
    task.load_dataset("valid")
    with pytest.raises(ValueError, match="--batch-size-valid"):
        task.get_batch_iterator(dataset, max_sentences=2)


def test_scoring_is_of_one_stream_by_default(corpus):
    """--max-tokens has a default in fairseq-eval-lm: it does not make streams there."""
    task, _, dataset = stateful(corpus)
    options = {"max_tokens": 36000, "max_positions": 512, "num_workers": 0}
    batches = partial(task.eval_lm_dataloader, dataset, **options)
    assert len(list(batches())) == len(dataset)
    assert len(list(batches(batch_size=3))) == -(-len(dataset) // 3)
    with pytest.raises(ValueError, match="--context-window"):
        task.eval_lm_dataloader(dataset, context_window=4)


def read(model, iterator, batches):
    with torch.no_grad():
        for _ in range(batches):
            model(next(iterator)["net_input"]["src_tokens"])


def test_validation_on_the_training_data_does_not_disturb_training(corpus):
    """--valid-subset train. The training data's iterator says for itself that it trains."""
    task, model, dataset = stateful(corpus)
    task.begin_epoch(1, model)
    trains = task.get_batch_iterator(dataset, max_sentences=4).next_epoch_itr(shuffle=True)
    read(model, trains, 3)
    want = model.decoder.final_state
    validates = task.get_batch_iterator(dataset, max_sentences=2)
    read(model, validates.next_epoch_itr(shuffle=False, set_dataset_epoch=False), 2)
    with task._carried_states[-1].training(is_dummy=False):
        assert_carried(model.decoder, want)


def test_dummy_batch_leaves_no_trace(corpus):
    """What a rank gets that has no batch left: the first one of validation, if that came last."""
    task, model, dataset = stateful(corpus)
    optimizer = SimpleNamespace(backward=lambda loss: None)
    criterion = lambda model, sample: (model(**sample["net_input"])[0].sum(), 1, {})  # noqa: E731
    step = {"model": model, "criterion": criterion, "optimizer": optimizer, "update_num": 0}
    iterator = task.get_batch_iterator(dataset, max_sentences=4)
    batch = next(iterator.next_epoch_itr(shuffle=True))
    wider = task.get_batch_iterator(dataset, max_sentences=7).first_batch
    task.train_step(batch, **step, ignore_grad=False)
    want = model.decoder.carried_state
    task.train_step(wider, **step, ignore_grad=True)
    assert_carried(model.decoder, want)
    broken = {**wider, "net_input": {**wider["net_input"], "src_tokens": torch.tensor([[10**6]])}}
    with pytest.raises(IndexError):  # as fairseq catches errors of memory
        task.train_step(broken, **step, ignore_grad=True)
    assert_carried(model.decoder, want)
    assert [part.shape for part in iterator.state_dict()["carried_state"][0]] == [(1, 4, 16)] * 2


def test_no_state_is_carried_where_no_streams_are_read(checkpoint):
    """fairseq's own interface and shallow fusion read whole sentences, any number of them."""
    (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)])
    tokens = torch.arange(4, 24).reshape(2, 10)
    with torch.no_grad():
        first, again, wider = (model(batch)[0] for batch in (tokens, tokens, tokens.repeat(2, 1)))
    assert torch.equal(first, again) and torch.equal(first, wider[:2])


def test_an_epoch_starts_from_zero_whatever_the_last_one_was_resumed_with(corpus):
    task, model, dataset = stateful(corpus)
    iterator = task.get_batch_iterator(dataset, max_sentences=4)
    batches = iterator.next_epoch_itr(shuffle=True)
    read(model, batches, 2)
    state = iterator.state_dict()
    read(model, batches, len(batches) - 2)
    assert "carried_state" not in iterator.state_dict()  # at the end of an epoch
    resumed = task.get_batch_iterator(dataset, max_sentences=4)
    resumed.load_state_dict(state)
    resumed.next_epoch_itr(shuffle=True)
    assert torch.equal(model.decoder.carried_state[0], state["carried_state"][0][0])
    assert len(task._carried_states[-1].states()) == 1  # before the first update, too
    assert torch.equal(task._carried_states[-1].states()[0][0], state["carried_state"][0][0])
    resumed.next_epoch_itr(shuffle=True)
    assert model.decoder.carried_state is None


def test_other_streams_cannot_go_on(corpus):
    """Another number of them, other blocks, other ranks, or none before."""
    task, model, dataset = stateful(corpus)
    iterator = task.get_batch_iterator(dataset, max_sentences=4)
    read(model, iterator.next_epoch_itr(shuffle=True), 2)
    state = iterator.state_dict()
    three = task.get_batch_iterator(dataset, max_sentences=3)
    other, _, data = stateful(corpus, "--tokens-per-sample", "8")
    resumed = other.get_batch_iterator(data, max_sentences=4)
    two = {**state, "carried_state": state["carried_state"] * 2, "tokens_per_sample": 8}
    without = {name: value for name, value in two.items() if name != "carried_state"}
    for iterator, wrong in ((three, state), (resumed, state), (resumed, two), (resumed, without)):
        with pytest.raises(ValueError, match="--stateful"):
            iterator.load_state_dict(wrong)
    del state["tokens_per_sample"]  # of an older checkpoint
    resumed.load_state_dict(state)
