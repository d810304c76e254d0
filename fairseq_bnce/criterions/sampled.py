"""Criteria with sampled noise: ``shared_nce``, ``nce``, ``sampled_bce``, ``sampled_softmax``."""

from dataclasses import dataclass
from functools import partial
from typing import Callable, NamedTuple, Union

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce.criterions.base import SelfNormalizingCriterion, TokenBatch
from fairseq_bnce.criterions.flags import NoiseConfig, NoiseContrastiveConfig, Options
from fairseq_bnce.flag import flag
from fairseq_bnce.losses import bce, nce, ranking
from fairseq_bnce.losses.words import Draws, distinct, distinct_with_draws

Estimator: ChoiceEnum = ChoiceEnum(["complementary", "is", "cps"])
_DEFAULT_SAMPLES = 100


@dataclass
class SampledBCEConfig(NoiseContrastiveConfig):
    estimator: Estimator = flag(
        "complementary",
        "how the samples estimate the sum over all words: is, importance sampling, weighs each by "
        "1 / (K q); cps, compensated partial summation, all by V / K; complementary is importance "
        "sampling without the samples that are the target, whose own term is computed",
    )


class SampledNoiseCriterion(SelfNormalizingCriterion):
    """A criterion with noise samples and the core ``loss`` of targets and samples."""

    loss: Callable[..., Tensor]
    are_fresh = False  # whether every token has samples of its own

    def make_words(self, batch: TokenBatch) -> object:
        count = _DEFAULT_SAMPLES if self.noise.samples is None else self.noise.samples
        shape = (len(batch), count) if self.are_fresh else (count,)
        sampled = self.noise.sample(batch.target.device, *shape)
        samples: Union[Draws, Tensor]
        if self.are_fresh:
            ids, (target, samples) = distinct(batch.target, sampled)
        else:
            ids, (target,), samples = distinct_with_draws(sampled, batch.target)
        return SampledWords(ids, target, samples)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        words, options = batch.words, {"log_z": self.known_start, "reduction": reduction}
        rows = self.rows(batch)._replace(log_q=self.noise.log_q(words.ids))
        return self.loss(batch.features, rows, words.target, words.samples, **options)


@register_criterion("shared_nce", dataclass=NoiseContrastiveConfig)
class SharedNCECriterion(SampledNoiseCriterion):
    """NCE with noise shared by the batch (Zoph et al. 2016)."""

    loss = staticmethod(nce.shared_nce)


@register_criterion("nce", dataclass=NoiseContrastiveConfig)
class FreshNCECriterion(SampledNoiseCriterion):
    """NCE with fresh noise for every token (Mnih & Teh 2012): the slow baseline."""

    loss = staticmethod(nce.nce)
    are_fresh = True


@register_criterion("sampled_bce", dataclass=SampledBCEConfig)
class SampledBCECriterion(SampledNoiseCriterion):
    """Binary cross-entropy of all words, sampled (Gao et al. 2021)."""

    def __init__(self, task: FairseqTask, options: Options):
        super().__init__(task, options)
        size = len(task.target_dictionary)
        self.loss = partial(bce.sampled_bce, estimator=options.estimator, vocab_size=size)


@register_criterion("sampled_softmax", dataclass=NoiseConfig)
class SampledSoftmaxCriterion(SampledNoiseCriterion):
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
    """

    ids: Tensor
    target: Tensor
    samples: Union[Draws, Tensor]
