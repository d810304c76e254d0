"""Criteria with sampled noise: ``shared_nce``, ``nce``, ``sampled_bce``, ``sampled_softmax``."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, NamedTuple, Union

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce.criterions.base import SelfNormalizingCriterion, TokenBatch
from fairseq_bnce.criterions.flags import NoiseConfig, NoiseContrastiveConfig, Options
from fairseq_bnce.criterions.noise_source import NoiseSource
from fairseq_bnce.flag import flag
from fairseq_bnce.losses import bce, nce, ranking
from fairseq_bnce.losses.words import Draws, Words, distinct, distinct_with_draws

Estimator: Any = ChoiceEnum(["complementary", "is", "cps"])
_DEFAULT_SAMPLES = 100


@dataclass
class SampledBCEConfig(NoiseContrastiveConfig):
    estimator: Estimator = flag(
        "complementary",
        "how the samples estimate the sum over all words: is, importance sampling, weighs each by "
        "1 / (K q); cps, compensated partial summation, all by V / K; complementary is importance "
        "sampling without the samples that are the target, whose own term is computed",
    )


class _SampledNoiseCriterion(SelfNormalizingCriterion):
    loss: Callable[..., Tensor]
    are_fresh = False  # whether every token has samples of its own

    def make_words(self, batch: TokenBatch) -> "SampledWords":
        return sampled_words(batch, self.noise, self.are_fresh)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        options = {"log_z": self.known_start, "reduction": reduction}
        return sampled_loss(batch, self.rows(batch), self.loss, **options)


@register_criterion("shared_nce", dataclass=NoiseContrastiveConfig)
class SharedNCECriterion(_SampledNoiseCriterion):
    """NCE with noise shared by the batch (Zoph et al. 2016)."""

    loss = staticmethod(nce.shared_nce)


@register_criterion("nce", dataclass=NoiseContrastiveConfig)
class FreshNCECriterion(_SampledNoiseCriterion):
    """NCE with fresh noise for every token (Mnih & Teh 2012): the slow baseline."""

    loss = staticmethod(nce.nce)
    are_fresh = True


@register_criterion("sampled_bce", dataclass=SampledBCEConfig)
class SampledBCECriterion(_SampledNoiseCriterion):
    """Binary cross-entropy of all words, sampled (Gao et al. 2021)."""

    def __init__(self, task: FairseqTask, options: Options):
        super().__init__(task, options)
        size = len(task.target_dictionary)
        self.loss = partial(bce.sampled_bce, estimator=options.estimator, vocab_size=size)


@register_criterion("sampled_softmax", dataclass=NoiseConfig)
class SampledSoftmaxCriterion(_SampledNoiseCriterion):
    """Sampled softmax (Bengio & Senecal 2003; Jozefowicz et al. 2016): not self-normalised."""

    loss = staticmethod(ranking.sampled_softmax)

    def __init__(self, task: FairseqTask, options: Options):
        super().__init__(task, options, normalises_itself=False)


class SampledWords(NamedTuple):
    """The words of a batch with sampled noise.

    Attributes:
        ids: (U,) the distinct words.
        target: (N,) as indices into ``ids``.
        samples: :class:`Draws`, or (N, K) fresh ones, as indices into ``ids``.
        log_q: (U,)
    """

    ids: Tensor
    target: Tensor
    samples: Union[Draws, Tensor]
    log_q: Tensor


def sampled_words(batch: TokenBatch, noise: NoiseSource, are_fresh: bool) -> SampledWords:
    """Sample noise for the batch or, if ``are_fresh``, for each token; find the distinct words."""
    count = _DEFAULT_SAMPLES if noise.samples is None else noise.samples
    shape = (len(batch), count) if are_fresh else (count,)
    sampled = noise.sample(batch.target.device, *shape)
    samples: Union[Draws, Tensor]
    if are_fresh:
        ids, (target, samples) = distinct(batch.target, sampled)
    else:
        ids, (target,), samples = distinct_with_draws(sampled, batch.target)
    return SampledWords(ids, target, samples, noise.log_q(ids))


def sampled_loss(
    batch: TokenBatch, rows: Words, loss: Callable[..., Tensor], **options: Any
) -> Tensor:
    """Compute a ``loss`` of the targets and the sampled noise.

    Args:
        batch: its words are :class:`SampledWords`.
        rows: of these words.
        loss: the core of a loss.
        options: log_z and reduction.
    """
    words = batch.words
    rows = rows._replace(log_q=words.log_q)
    return loss(batch.features, rows, words.target, words.samples, **options)
