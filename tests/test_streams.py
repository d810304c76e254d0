"""Recurrent state that carries over between batches, in training, validation and eval-lm."""

import re

import pytest
import torch
from test_distributed import results, train_on_two_ranks
from tools import LSTM, build, evaluate, loss_bits, train

from fairseq_bnce.streams import stream_batches

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


def test_scored_as_one_text(corpus, tmp_path):
    """eval-lm --stateful in blocks of 2 is eval-lm in one block; without, it is not."""
    train(corpus, tmp_path, *STATEFUL, "--max-epoch", "4", "--clip-norm", "1")
    checkpoint = tmp_path / "checkpoint_best.pt"
    one_block = loss_bits(evaluate(corpus, checkpoint, "--tokens-per-sample", "5000"))
    for unnormalized in ([], ["--unnormalized"]):
        short = ["--tokens-per-sample", "2", *unnormalized]
        stateful = evaluate(corpus, checkpoint, "--stateful", "--batch-size", "1", *short)
        blocks = evaluate(corpus, checkpoint, *short)
        if not unnormalized:
            assert loss_bits(stateful) == pytest.approx(one_block, abs=2e-4)
            assert abs(loss_bits(blocks) - one_block) > 1e-3
        streams = evaluate(corpus, checkpoint, "--stateful", "--batch-size", "3", *short)
        words = {
            re.findall(r"Evaluated ([\d,]+) tokens", o)[0] for o in (stateful, blocks, streams)
        }
        assert len(words) == 1


def test_resumed_run_repeats_the_uninterrupted_one(corpus, tmp_path):
    """The checkpoint in the midst of an epoch holds the state; validation does not disturb it."""
    flags = [*STATEFUL, "--save-interval-updates", "5", "--max-epoch", "3"]
    train(corpus, tmp_path / "whole", *flags, "--max-update", "32")
    train(corpus, tmp_path / "parts", *flags, "--max-update", "25")
    middle = torch.load(tmp_path / "parts" / "checkpoint_last.pt", weights_only=False)
    (state,) = middle["extra_state"]["train_iterator"]["carried_state"]
    assert [part.shape for part in state] == [(1, 8, 16)] * 2 and state[0].abs().max() > 0
    train(corpus, tmp_path / "parts", *flags, "--max-update", "32")
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
    train_on_two_ranks(corpus, tmp_path / "whole", *flags, "--max-update", "9")
    train_on_two_ranks(corpus, tmp_path / "parts", *flags, "--max-update", "5")
    train_on_two_ranks(corpus, tmp_path / "parts", *flags, "--max-update", "9")
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
