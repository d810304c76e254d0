"""Where a criterion's noise comes from: samples of words, and log q of the noise."""

import functools
import logging
import math

import torch
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce import ranks
from fairseq_bnce.criterions.flags import Options, value_at
from fairseq_bnce.data.token_counts import training_target_counts
from fairseq_bnce.noise import KINDS, NoiseDistribution

logger = logging.getLogger(__name__)

_PRIOR = 10.0  # occurrences that a word's unigram share counts for, beside those in the batch


class NoiseSource:
    """The noise distributions of one training, counted at their first use.

    Where other targets of the batch are noise, their distribution is not the text's: a batch of
    sentences of one length has its own share of ``</s>``, and of frequent words.
    :meth:`target_log_p` corrects log q for both.

    A plain object, so that ``criterion.half()`` leaves log q alone.

    Args:
        task: a language modeling or translation task.
        options: from :func:`flags.read`.

    Attributes:
        samples: --noise-samples of this epoch, or None.
        has_sentences: whether a line of a batch holds whole sentences, and not a block of the text.
    """

    def __init__(self, task: FairseqTask, options: Options):
        self._task, self._options = task, options
        self.samples = options.noise_samples[0]
        args = getattr(task, "args", None)
        # Only language modeling cuts running text, unless a flag says otherwise.
        self.has_sentences = str(getattr(args, "sample_break_mode", None)) != "none"
        dictionary, has_starts = task.target_dictionary, getattr(args, "add_bos_token", False)
        self._marks = [dictionary.eos(), *[dictionary.bos()] * has_starts]  # one each a sentence
        if options.bnce_group == "time" and (self.has_sentences or has_starts):
            required = "--sample-break-mode none without --add-bos-token"
            reason = "the words at one place of several sentences are not unigram noise"
            logger.warning(f"--bnce-group time is for {required}: {reason}")

    def begin_epoch(self, epoch: int) -> None:
        """Take the number of noise samples of this epoch, counted from 1."""
        self.samples = value_at(self._options.noise_samples, epoch)

    @functools.cached_property
    def unigram(self) -> NoiseDistribution:
        """Return the distribution of the training targets."""
        return NoiseDistribution(self._counts)

    @functools.cached_property
    def distribution(self) -> NoiseDistribution:
        """Return the distribution that noise is sampled from."""
        kind, power = KINDS[self._options.noise], self._options.noise_power
        if kind.make is NoiseDistribution and power == 1:
            return self.unigram
        of = self._counts if kind.reads_counts else len(self._task.target_dictionary)
        return kind.make(of, power) if kind.takes_power else kind.make(of)

    @functools.cached_property
    def _counts(self) -> Tensor:
        return training_target_counts(self._task, self._options.train_subset)

    def sample(self, device: torch.device, *shape: int) -> Tensor:
        """Sample ids of this shape, int64. They repeat with torch's seed and differ by rank."""
        if 0 in shape:  # leaves torch's generator unchanged
            return torch.empty(shape, dtype=torch.int64, device=device)
        return self.distribution.to(device).sample(shape, generator=seeded_generator(device))

    def log_q(self, words: Tensor) -> Tensor:
        """Return log q of sampled words (U,), float32."""
        return self.distribution.to(words.device).log_q[words]

    def mixture_log_q(self, words: Tensor, log_p: Tensor, in_batch: int, sampled: int) -> Tensor:
        """Return log q of noise that is partly targets of the data and partly samples.

        The targets follow their own distribution p whatever ``--noise`` is. With samples from r,
        the noise is the mixture q = (in_batch p + sampled r) / K, K being the sum of both counts.

        Args:
            words: (U,) ids.
            log_p: (U,), from :meth:`target_log_p`.
            in_batch: how much of the noise are targets.
            sampled: how much of it is sampled.
        """
        if sampled == 0:
            return log_p
        log_r, share = self.log_q(words), sampled / (max(in_batch, 0) + sampled)
        if share == 1:
            return log_r
        return torch.logaddexp(log_p + math.log(1 - share), log_r + math.log(share))

    def target_log_p(self, words: Tensor, counts: Tensor, targets: int) -> Tensor:
        """Return log p of words (U,) among a batch's targets: the unigram distribution, corrected.

        fairseq makes a batch of lines of about one length. Sentences have one </s> each, and one
        <s> with --add-bos-token. So the share of these marks is the batch's, and not the text's.
        Other words may belong to a length too, such as a final full stop. Words that occur several
        times in the batch get the batch's share; rare words get nearly the text's.

        Args:
            words: (U,) distinct ids.
            counts: (U,) float, how often each is a target.
            targets: the number of targets.
        """
        unigram = self.unigram.to(words.device).log_q
        if not self.has_sentences or targets == 0:
            return unigram[words]
        marks, least = self._marks, 0.5 / targets  # no share is 0
        here = torch.stack([(words == mark).mul(counts).sum() / targets for mark in marks])
        here, usual = here.clamp(min=least), torch.stack([unigram[mark].exp() for mark in marks])
        rest_here, usual_rest = (1 - torch.stack([here.sum(), usual.sum()])).clamp(min=least)
        log_p = unigram[words] + torch.log(rest_here / usual_rest)
        # A word's rate has a gamma prior of mean 1. The first occurrence tells nothing of the rate,
        # because only words that occur are looked up.
        seen, expected = (counts - 1).clamp(min=0), log_p.exp() * (targets - 1)
        log_p = log_p + torch.log((seen + _PRIOR) / (expected + _PRIOR))
        for mark, share in zip(marks, here):
            log_p = torch.where(words == mark, share.log(), log_p)
        return log_p


def seeded_generator(device: torch.device) -> torch.Generator:
    """Return a generator seeded from torch's own state and the rank.

    fairseq seeds torch from the update number, so that a resumed run repeats exactly. But the seed
    is the same on all ranks, which would then sample the same noise.
    """
    seed = int(torch.randint(2**62, ()))
    return torch.Generator(device=device).manual_seed(seed + ranks.rank())
