"""Recurrent state that carries over between batches, in training, validation and eval-lm."""

import re
import weakref
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.optim import AMPOptimizer
from tools import LSTM, build, evaluate, goes_on_from, loss_bits, train
from two_ranks import results, train_on_two_ranks, trained_on_two_ranks

from fairseq_bnce import ranks
from fairseq_bnce.tasks.streams import CarriedState, refusing_states, stream_batches

RNN = ["--arch", "rnn_lm", "--decoder-embed-dim", "16", "--dropout", "0"]
STATEFUL = [*RNN, "--criterion", "bnce", "--stateful", "--lr", "2"]


@pytest.mark.parametrize("blocks, streams, shards", [(12, 3, 1), (14, 3, 2), (23, 4, 3), (5, 5, 1)])
def test_streams_are_contiguous(blocks, streams, shards):
    batches = stream_batches(blocks, streams, shards)
    assert sorted(block for batch in batches for block in batch) == list(range(blocks))
    for shard in range(shards):
        own = batches[shard::shards]
        assert len(own[0]) == streams
        for before, after in zip(own, own[1:]):
            assert [block + 1 for block in before[: len(after)]] == after


def test_too_many_streams():
    with pytest.raises(ValueError, match="--batch-size: required at most 3 streams .* got 4"):
        stream_batches(7, 4, 2)


def test_every_batch_starts_where_the_last_one_ended(corpus):
    """The features of all batches of an epoch are those of the streams read in one go."""
    cfg, task, model = build(corpus, *STATEFUL)
    task.args.train_subset = "train"
    task.load_dataset("train")
    dataset = task.dataset("train")
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
        assert task.get_batch_iterator(dataset, max_sentences=3).streams == 3
    task.load_dataset("train")  # as a --valid-subset: training keeps its place in its own
    one, other = (task.get_batch_iterator(task.dataset("train"), max_sentences=4) for _ in "ab")
    assert one is not other


def test_iterators_of_shards_are_not_kept(corpus):
    """Every epoch has a data set of its own; kept, its worker processes would stay to the end."""
    _, task, _ = build(corpus, *STATEFUL)
    task.args.train_subset = "train"
    for _ in range(3):
        task.load_dataset("train", combine=True)
        dataset = task.dataset("train")
        made = task.get_batch_iterator(dataset, max_sentences=4, disable_iterator_cache=True)
        assert made.streams == 4
    assert not task.dataset_to_epoch_iter


def test_scored_as_one_text(corpus, tmp_path):
    """eval-lm --stateful in blocks of 2 is eval-lm in one block; without, it is not."""
    train(corpus, tmp_path, *STATEFUL, "--max-epoch", "4", "--clip-norm", "1")
    checkpoint = tmp_path / "checkpoint_best.pt"
    for unnormalized in ([], ["--unnormalized"]):
        long = ["--tokens-per-sample", "5000", *unnormalized]
        short = ["--tokens-per-sample", "2", *unnormalized]
        one_block = loss_bits(evaluate(corpus, checkpoint, *long))
        stateful = evaluate(corpus, checkpoint, "--stateful", "--batch-size", "1", *short)
        blocks = evaluate(corpus, checkpoint, *short)
        assert loss_bits(stateful) == pytest.approx(one_block, abs=2e-4)
        assert abs(loss_bits(blocks) - one_block) > 1e-3
        streams = evaluate(corpus, checkpoint, "--stateful", "--batch-size", "3", *short)
        words = {
            re.findall(r"Evaluated ([\d,]+) tokens", o)[0] for o in (stateful, blocks, streams)
        }
        assert len(words) == 1


@pytest.mark.parametrize("flags, updates", [([], (25, 32)), (["--update-freq", "3"], (10, 12))])
def test_resumed_run_repeats_the_uninterrupted_one(flags, updates, corpus, tmp_path):
    """The checkpoint in the midst of an epoch holds the state; validation does not disturb it."""
    flags = [*STATEFUL, "--save-interval-updates", "5", "--max-epoch", "3", *flags]
    until, end = map(str, updates)
    train(corpus, tmp_path / "whole", *flags, "--max-update", end)
    train(corpus, tmp_path / "parts", *flags, "--max-update", until)
    middle = torch.load(tmp_path / "parts" / "checkpoint_last.pt", weights_only=False)
    (state,) = middle["extra_state"]["train_iterator"]["carried_state"]
    assert [part.shape for part in state] == [(1, 8, 16)] * 2 and state[0].abs().max() > 0
    resumed = train(corpus, tmp_path / "parts", *flags, "--max-update", end)
    assert goes_on_from(resumed, int(until))
    want, got = (
        torch.load(tmp_path / run / "checkpoint_last.pt", weights_only=False)["model"]
        for run in ("whole", "parts")
    )
    assert all(torch.equal(got[name], value) for name, value in want.items())


def test_state_matters_to_training(corpus, tmp_path):
    """The same batches without carried state train another model."""
    flags = [*STATEFUL, "--max-update", "12", "--disable-validation"]
    train(corpus, tmp_path / "carried", *flags)
    train(corpus, tmp_path / "zero", *[flag for flag in flags if flag != "--stateful"])
    carried, zero = (
        torch.load(tmp_path / run / "checkpoint_last.pt", weights_only=False)["model"]
        for run in ("carried", "zero")
    )
    assert not torch.equal(carried["decoder.rnn.weight_hh_l0"], zero["decoder.rnn.weight_hh_l0"])


@pytest.mark.slow  # three runs of two ranks
def test_two_ranks_resume(corpus, tmp_path):
    flags = [*STATEFUL, "--batch-size", "4", "--save-interval-updates", "5", "--max-epoch", "2"]
    for name, updates in (("whole", "9"), ("parts", "5"), ("parts", "9")):
        arguments = [*flags, "--max-update", updates]
        statuses, output = train_on_two_ranks(corpus, tmp_path / name, *arguments)
        assert statuses == [0, 0]
    assert goes_on_from(output, 5)
    whole, parts = (results(tmp_path / run)[1]["parameters"] for run in ("whole", "parts"))
    assert all(torch.equal(parts[name], value) for name, value in whole.items())


@pytest.mark.parametrize(
    "flags, message",
    [
        ([*LSTM, "--stateful"], "--stateful: required an architecture that carries"),
        (
            [*RNN, "--stateful", "--sample-break-mode", "eos"],
            "--sample-break-mode: required 'none'",
        ),
        ([*RNN, "--stateful", "--batch-size", "500"], "--batch-size: required at most"),
    ],
)
def test_refused(flags, message, corpus, tmp_path):
    output = train(corpus, tmp_path, *flags, "--criterion", "bnce", check=False)
    assert message in re.sub(r"\s+", " ", output)


def stateful(corpus, *flags):
    """(task, model, training data) of a run with --stateful in blocks of 16."""
    _, task, model = build(corpus, *STATEFUL, *flags)
    task.args.train_subset = "train"
    task.load_dataset("train")
    return task, model, task.dataset("train")


@pytest.mark.parametrize(
    "limits, streams",
    [({"max_tokens": 95}, 5), ({"max_tokens": 95, "max_sentences": 3}, 3), ({"max_tokens": 16}, 1)],
)
def test_max_tokens_make_streams(limits, streams, corpus):
    """As many as a batch of at most so many tokens has blocks."""
    task, _, dataset = stateful(corpus)
    first = task.get_batch_iterator(dataset, **limits).first_batch
    assert first["net_input"]["src_tokens"].shape == (streams, 16)


def test_max_tokens_of_no_block(corpus):
    task, _, dataset = stateful(corpus)
    message = r"--max-tokens \(of .* --max-tokens-valid\): required at least 16, .* got 15"
    with pytest.raises(ValueError, match=message):
        task.get_batch_iterator(dataset, max_tokens=15)


def test_scoring_is_of_one_stream_by_default(corpus):
    """--max-tokens has a default in fairseq-eval-lm: it does not make streams there."""
    task, _, dataset = stateful(corpus)
    batches = list(
        task.eval_lm_dataloader(dataset, max_tokens=36000, max_positions=512, num_workers=0)
    )
    assert len(batches) == len(dataset)
    limits = {"max_tokens": 36000, "max_positions": 512, "batch_size": 3}
    three = list(task.eval_lm_dataloader(dataset, **limits, num_workers=0))
    assert len(three) == -(-len(dataset) // 3)
    with pytest.raises(ValueError, match="--context-window: required 0 with --stateful, .* got 4"):
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
    task._carried.resume_training()
    assert all(a is b for a, b in zip(model.decoder.carried_state, want))


def steps(corpus):
    """A training's task, its iterator, the batches of an epoch, and what a step takes."""
    cfg, task, model = build(corpus, *STATEFUL)
    task.args.train_subset = "train"
    task.load_dataset("train")
    criterion = task.build_criterion(cfg.criterion)
    iterator = task.get_batch_iterator(task.dataset("train"), max_sentences=4)
    batches = iterator.next_epoch_itr(shuffle=True)
    optimizer = SimpleNamespace(backward=lambda loss: None, step=lambda **options: None)
    step = {"model": model, "criterion": criterion, "optimizer": optimizer, "update_num": 0}
    return task, model, iterator, batches, step


class Amp(AMPOptimizer):
    """By its name; it does nothing."""

    def __init__(self):
        pass

    def backward(self, loss):
        pass

    def step(self, **options):
        pass


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")  # fairseq's autocast
def test_an_update_that_amp_does_again_starts_where_it_started(corpus):
    """After an overflow fairseq's trainer steps, and gives the same batches once more."""
    task, model, _, batches, step = steps(corpus)
    step["optimizer"] = Amp()

    def update(*samples):
        for sample in samples:
            task.train_step(sample=sample, **step, ignore_grad=False)
        task.optimizer_step(step["optimizer"], model, 0)
        return model.decoder.carried_state

    first, second, third, fourth = (next(batches) for _ in range(4))
    update(first, second)
    want = update(third, fourth)
    for _ in range(2):
        torch.testing.assert_close(update(third, fourth), want, rtol=0, atol=0)


def test_an_update_that_overflows_has_read_its_batch(corpus):
    """Under --fp16 fairseq's trainer does not step then, and may save a checkpoint all the same."""
    task, model, iterator, batches, step = steps(corpus)
    task.train_step(sample=next(batches), **step, ignore_grad=False)
    task.optimizer_step(step["optimizer"], model, 0)
    task.train_step(sample=next(batches), **step, ignore_grad=False)
    (saved,) = iterator.state_dict()["carried_state"]
    assert torch.equal(saved[0], model.decoder.final_state[0])


def test_ranks_tell_each_other_before_a_validation_what_overflowed(corpus, monkeypatch):
    task, model, iterator, batches, step = steps(corpus)
    task.train_step(sample=next(batches), **step, ignore_grad=False)
    monkeypatch.setattr(ranks, "count", lambda: 2)
    monkeypatch.setattr(ranks, "lengths_of", lambda tensor: [len(tensor)] * 2)
    monkeypatch.setattr(ranks, "gather_uneven", lambda tensor, lengths: [tensor, tensor + 1])
    task.begin_valid_epoch(1, model)
    first, second = iterator.state_dict()["carried_state"]
    assert torch.equal(first[0], model.decoder.final_state[0])
    assert torch.equal(second[0], model.decoder.final_state[0] + 1)


def test_dummy_batch_leaves_no_trace(corpus):
    """What a rank gets that has no batch left: the first one of validation, if that came last."""
    task, model, iterator, batches, step = steps(corpus)
    wider = task.get_batch_iterator(task.dataset("train"), max_sentences=7).first_batch
    task.train_step(sample=next(batches), **step, ignore_grad=False)
    want = model.decoder.carried_state
    task.train_step(sample=wider, **step, ignore_grad=True)
    task._carried.end_update()
    assert all(a is b for a, b in zip(model.decoder.carried_state, want))
    assert [part.shape for part in iterator.state_dict()["carried_state"][0]] == [(1, 4, 16)] * 2


def test_ranks_with_uneven_numbers_of_batches(corpus, tmp_path):
    """Validation with a larger batch in mid-epoch, then a dummy batch on rank 1."""
    block = ["--tokens-per-sample", "10"]
    _, _, dataset = stateful(corpus, *block)
    batches = stream_batches(len(dataset), 4, 2)
    assert batches[-1] == []
    flags = [*STATEFUL, *block, "--batch-size", "4", "--batch-size-valid", "6"]
    flags += ["--validate-interval-updates", str(len(batches) // 2 - 1)]
    trained_on_two_ranks(corpus, tmp_path, *flags, "--max-epoch", "1")
    first, second = (result["parameters"] for result in results(tmp_path))
    assert all(torch.equal(second[name], value) for name, value in first.items())


def test_no_state_is_carried_where_no_streams_are_read(corpus, tmp_path):
    """fairseq's own interface and shallow fusion read whole sentences, any number of them."""
    train(corpus, tmp_path, *STATEFUL, "--max-update", "5")
    path = str(tmp_path / "checkpoint_last.pt")
    (model,), _ = checkpoint_utils.load_model_ensemble([path])
    tokens = torch.arange(4, 24).reshape(2, 10)
    with torch.no_grad():
        first, again, wider = (model(batch)[0] for batch in (tokens, tokens, tokens.repeat(2, 1)))
    assert torch.equal(first, again) and torch.equal(first, wider[:2])


def test_a_state_of_another_precision_goes_on(corpus):
    """A run in halves, resumed in float32 with --reset-optimizer."""
    _, model, dataset = stateful(corpus)
    carried = CarriedState(model)
    carried.attach()
    carried.start_epoch([tuple(torch.ones(1, 4, 16, dtype=torch.bfloat16) for _ in range(2))])
    with torch.no_grad():
        model(torch.stack([dataset[n]["source"] for n in range(4)]))
    assert {part.dtype for part in model.decoder.final_state} == {torch.float32}


def test_an_epoch_starts_from_zero_whatever_the_last_one_was_resumed_with(corpus):
    task, model, dataset = stateful(corpus)
    iterator = task.get_batch_iterator(dataset, max_sentences=4)
    batches = iterator.next_epoch_itr(shuffle=True)
    read(model, batches, 2)
    task._carried.end_update()
    state = iterator.state_dict()
    read(model, batches, len(batches) - 2)
    assert "carried_state" not in iterator.state_dict()  # at the end of an epoch
    resumed = task.get_batch_iterator(dataset, max_sentences=4)
    resumed.load_state_dict(state)
    resumed.next_epoch_itr(shuffle=True)
    assert torch.equal(model.decoder.carried_state[0], state["carried_state"][0][0])
    assert len(task._carried.of_all_ranks()) == 1  # before the first update, too
    assert torch.equal(task._carried.of_all_ranks()[0][0], state["carried_state"][0][0])
    resumed.next_epoch_itr(shuffle=True)
    assert model.decoder.carried_state is None


def test_states_of_more_ranks_cannot_go_on(corpus):
    _, model, _ = stateful(corpus)
    with pytest.raises(ValueError, match=r"required the recurrent states of 1 rank\(s\), got 2"):
        CarriedState(model).start_epoch([None, None])


def test_another_number_of_streams_cannot_go_on(corpus):
    task, model, dataset = stateful(corpus)
    iterator = task.get_batch_iterator(dataset, max_sentences=4)
    read(model, iterator.next_epoch_itr(shuffle=True), 2)
    task._carried.end_update()
    state = {**iterator.state_dict(), "carried_state": task._carried.of_all_ranks()}
    task.get_batch_iterator(dataset, max_sentences=4).load_state_dict(state)
    for streams in (3, 5):
        message = rf"--batch-size: required 4 streams .*, got {streams}; .* --reset-dataloader"
        with pytest.raises(ValueError, match=message):
            task.get_batch_iterator(dataset, max_sentences=streams).load_state_dict(state)


def place_in_mid_epoch(task, model, dataset):
    """What a checkpoint has of the training data's iterator after two batches of four."""
    iterator = task.get_batch_iterator(dataset, max_sentences=4)
    batches = iterator.next_epoch_itr(shuffle=True)
    if task.args.stateful:
        read(model, batches, 2)
        task._carried.end_update()
    else:
        next(batches), next(batches)
    return iterator.state_dict()


def test_other_blocks_cannot_go_on(corpus):
    state = place_in_mid_epoch(*stateful(corpus))
    task, _, dataset = stateful(corpus, "--tokens-per-sample", "8")
    with pytest.raises(ValueError, match="--tokens-per-sample: required 16, .*, got 8"):
        task.get_batch_iterator(dataset, max_sentences=4).load_state_dict(state)
    del state["tokens_per_sample"]  # of a checkpoint of before
    task.get_batch_iterator(dataset, max_sentences=4).load_state_dict(state)


@pytest.mark.parametrize("flags", [[], ["--stateful"]], ids=["dropped", "added"])
def test_an_epoch_is_of_streams_or_not(flags, corpus):
    """Another order of batches would begin in its midst, or streams from zero."""
    without = [flag for flag in STATEFUL if flag != "--stateful"]
    _, other, model = build(corpus, *without)
    other.args.train_subset = "train"
    other.load_dataset("train")
    ways = [stateful(corpus), (other, model, other.dataset("train"))]
    before, (task, _, dataset) = reversed(ways) if flags else ways
    state = place_in_mid_epoch(*before)
    for _ in range(2):  # the second one is kept of the first
        iterator = task.get_batch_iterator(dataset, max_sentences=4)
        said = "--stateful: required (on|off), as in the epoch .* or with --reset-dataloader"
        with pytest.raises(ValueError, match=said):
            iterator.load_state_dict(state)
    iterator.load_state_dict({**state, "iterations_in_epoch": 0, "carried_state": None})
    place_in_mid_epoch(task, model, dataset)


def test_an_iterator_that_refuses_states_is_freed_at_once():
    """And with it what its epoch has read."""

    class Iterator:
        def load_state_dict(self, state):
            self.state = state

    iterator = refusing_states(Iterator())
    iterator.load_state_dict({"iterations_in_epoch": 3})
    assert iterator.state == {"iterations_in_epoch": 3}
    kept = weakref.ref(iterator)
    del iterator
    assert kept() is None
