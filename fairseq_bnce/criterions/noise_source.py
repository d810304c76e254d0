"""Where a criterion's noise comes from: draws of words, and log q of what is noise."""

import functools
import logging
import math
from argparse import Namespace
from typing import List

import torch
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce import ranks
from fairseq_bnce.criterions.flags import draws_by_epoch, of_epoch
from fairseq_bnce.data.token_counts import break_mode, training_target_counts
from fairseq_bnce.errors import require
from fairseq_bnce.noise import NoiseDistribution

logger = logging.getLogger(__name__)

_PRIOR = 10.0  # occurrences that a word's unigram share counts as, beside those in the batch


class NoiseSource:
    """The distributions of one training, counted when they are first asked for.

    A plain object, so that ``criterion.half()`` leaves log q alone.

    Args:
        task: a language modeling or translation task.
        options: noise, noise_power, noise_samples, noise_samples_by_epoch and train_subset.

    Attributes:
        samples: how many draws the flags ask for in this epoch; None is for the loss to decide.
        is_of_sentences: whether a line of a batch is made of whole sentences, and not a block of
            the text.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    def __init__(self, task: FairseqTask, options: Namespace):
        self._task, self._subset = task, options.train_subset
        self.is_of_sentences = _is_of_sentences(task)
        self._kind, self._power = str(options.noise), options.noise_power
        self._by_epoch = draws_by_epoch(options.noise_samples, options.noise_samples_by_epoch)
        by_epoch = options.noise_samples_by_epoch is not None
        self._flag = "--noise-samples-by-epoch" if by_epoch else "--noise-samples"
        self.samples = self._by_epoch[0]
        if self._kind == "uniform" and self._power != 1:
            logger.warning(
                "--noise-power changes nothing with --noise uniform, which has no counts"
            )

    def begin_epoch(self, epoch: int) -> None:
        """Draw as many as the flags say of this epoch, counted from 1."""
        self.samples = of_epoch(self._by_epoch, epoch)

    def require_draws(self) -> None:
        """Raise ValueError for an epoch without a draw."""
        for count in self._by_epoch:
            require(self._flag, "at least 1 for this loss", count, count is None or count >= 1)

    def warn_without_draws(self) -> None:
        """For a loss whose noise is the batch's own targets, and draws if there are any."""
        if not any(self._by_epoch) and (self._kind != "unigram" or self._power != 1):
            logger.warning(
                "--noise and --noise-power change nothing without --noise-samples: the noise is "
                "the batch's other targets, which are unigram noise"
            )

    def warn_of_places(self, group: str) -> None:
        """For a loss whose noise may be the targets at the same place of other lines."""
        if group == "time" and (self.is_of_sentences or _has_starts(self._task)):
            logger.warning(
                "--bnce-group time is for --sample-break-mode none without --add-bos-token: words "
                "at one place of several sentences, such as the first, are not unigram, and which "
                "they are is not learned"
            )

    @functools.cached_property
    def unigram(self) -> NoiseDistribution:
        """Of the training targets."""
        return NoiseDistribution(self._counts)

    @functools.cached_property
    def distribution(self) -> NoiseDistribution:
        """What draws come from."""
        if self._kind == "uniform":
            return NoiseDistribution.uniform(len(self._task.target_dictionary))
        if self._power == 1:
            return self.unigram
        return NoiseDistribution(self._counts, self._power)

    @functools.cached_property
    def _counts(self) -> Tensor:
        return training_target_counts(self._task, self._subset)

    def draw(self, device: torch.device, *shape: int) -> Tensor:
        """Ids of this shape, int64, that repeat with torch's seed and differ between ranks."""
        if 0 in shape:  # torch's generator stays where it is
            return torch.empty(shape, dtype=torch.int64, device=device)
        return self.distribution.to(device).sample(shape, generator=seeded_generator(device))

    def log_q(self, words: Tensor) -> Tensor:
        """log q of words (U,) that are drawn, (U,) float32."""
        return self.distribution.to(words.device).log_q[words]

    def mixture_log_q(self, words: Tensor, log_p: Tensor, in_batch: int, drawn: int) -> Tensor:
        """log q of noise of which ``in_batch`` are targets of the data and ``drawn`` are draws.

        The targets follow their own distribution p whatever ``--noise`` says, so with draws from r
        the noise is the mixture q = (in_batch p + drawn r) / K.

        Args:
            words: (U,) ids.
            log_p: (U,), see :meth:`log_p`.
            in_batch, drawn: K is their sum.
        """
        if drawn == 0:
            return log_p
        r, share = self.log_q(words), drawn / (max(in_batch, 0) + drawn)
        return torch.logaddexp(log_p + math.log(1 - share), r + math.log(share)) if share < 1 else r

    def log_p(self, words: Tensor, counts: Tensor, targets: int) -> Tensor:
        """log p of words (U,) among the targets of a batch: the unigram distribution's.

        fairseq makes a batch of lines of about one length. Of sentences, each has one </s>, and one
        <s> with --add-bos-token, whose share is therefore the batch's, and not the text's. Other
        words may be bound to a length, too, such as a final full stop: those that the batch has
        several times are scored by what it has, the rarer the more by the text's.

        Args:
            words: (U,) distinct ids.
            counts: (U,) float, how often they are among the targets.
            targets: how many these are.
        """
        unigram = self.unigram.to(words.device).log_q
        if not self.is_of_sentences or targets == 0:
            return unigram[words]
        marks, least = self._marks, 0.5 / targets  # no share is 0
        here = torch.stack([(words == mark).mul(counts).sum() / targets for mark in marks])
        here, usual = here.clamp(min=least), torch.stack([unigram[mark].exp() for mark in marks])
        of_words, usually = (1 - torch.stack([here.sum(), usual.sum()])).clamp(min=least)
        log_p = unigram[words] + torch.log(of_words / usually)
        # A word's rate has a gamma prior of mean 1. That it occurs once is why it is asked for, and
        # tells nothing of its rate.
        seen, expected = (counts - 1).clamp(min=0), log_p.exp() * (targets - 1)
        log_p = log_p + torch.log((seen + _PRIOR) / (expected + _PRIOR))
        for mark, share in zip(marks, here):
            log_p = torch.where(words == mark, share.log(), log_p)
        return log_p

    @functools.cached_property
    def _marks(self) -> List[int]:
        """Ids of what every sentence has one of."""
        dictionary = self._task.target_dictionary
        return [dictionary.eos(), *[dictionary.bos()] * _has_starts(self._task)]


def _is_of_sentences(task: FairseqTask) -> bool:
    """As of every task but language modeling, which cuts running text unless it is told not to."""
    args = getattr(task, "args", None)
    return not hasattr(args, "sample_break_mode") or break_mode(args) != "none"


def _has_starts(task: FairseqTask) -> bool:
    return getattr(getattr(task, "args", None), "add_bos_token", False)


def seeded_generator(device: torch.device) -> torch.Generator:
    """Seeded from torch's own state and the rank.

    fairseq seeds torch from the update number, so that a resumed run repeats exactly, but alike
    on all ranks, which would then draw the same noise.
    """
    seed = int(torch.randint(2**62, ()))
    return torch.Generator(device=device).manual_seed(seed + ranks.rank())
