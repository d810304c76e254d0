"""What the criteria share: one batch, from the model to what is logged.

A training step drops the padding, samples noise and finds the batch's distinct words, runs the
model up to its output layer, and calls a loss over these words. A validation step computes the
targets' scores and the exact partition function.
"""

import logging
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from fairseq_bnce.checkpoints import dictionaries
from fairseq_bnce.criterions import flags, metrics
from fairseq_bnce.criterions.flags import Options
from fairseq_bnce.criterions.log_z import CriterionWithLogZ, contexts_to_measure
from fairseq_bnce.criterions.noise_source import NoiseSource, seeded_generator
from fairseq_bnce.errors import FlagsError, require
from fairseq_bnce.losses.words import Words, at_least_float32
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.optim import row_sparse
from fairseq_bnce.output_layer import conversion, initial_scores
from fairseq_bnce.output_layer.layer import OutputLayer, is_squashed, squash

Sample = Dict[str, Any]  # a batch of fairseq's data
Step = Tuple[Tensor, int, Dict[str, Any]]  # loss, sample size, what is logged
logger = logging.getLogger(__name__)


@dataclass
class TokenBatch:
    """The target tokens of a batch, padding dropped.

    Attributes:
        target: (N,) int64.
        time_steps: (N,) int64, the position of each token in its sentence.
        layer: the output projection.
        words: what a criterion made of the targets before the model ran, or None.
        features: (N, D), the input of the output projection; None before the model ran.
    """

    target: Tensor
    time_steps: Tensor
    layer: OutputLayer
    words: Any = None
    features: Any = None

    @classmethod
    def from_sample(
        cls, model: nn.Module, sample: Sample, pad: int, make_words: Optional[Callable] = None
    ) -> "TokenBatch":
        """Run the model on ``sample`` up to its output projection.

        Args:
            make_words: makes ``words`` of the batch. It is called before the model runs: a GPU's
                host waits for the sizes of what is made, and waits least with nothing queued.

        Raises:
            UnsupportedModelError: see :class:`OutputLayer`.
            ValueError: if the targets are not one id for each feature.
        """
        layer, target = OutputLayer(model), sample["target"]
        places = target.flatten().ne(pad).nonzero()[:, 0]
        is_whole = len(places) == target.numel()  # no padding: nothing to copy
        words = target.flatten() if is_whole else target.flatten()[places]
        batch = cls(words, places % target.size(1), layer)
        if make_words is not None:
            batch.words = make_words(batch)
        features = layer.features(model, sample["net_input"])
        if target.shape != features.shape[:2]:
            wanted, got = tuple(features.shape[:2]), tuple(target.shape)
            raise ValueError(f"target: required shape {wanted}, got {got}")
        features = features.flatten(0, 1)
        batch.features = features if is_whole else features.index_select(0, places)
        return batch

    def __len__(self) -> int:
        return self.target.numel()


class SelfNormalizingCriterion(CriterionWithLogZ):
    """The base of all criteria; a subclass defines :meth:`objective`.

    Args:
        task: a language modeling or translation task.
        options: from :func:`flags.read`.
        normalises_itself: whether the loss draws log Z_c to log Z, so that scores need no softmax.

    Attributes:
        noise: the source of noise, and the unigram distribution.
        self_norm_alpha: the weight of the penalty in this epoch.
        sets_rows: whether the first batch may set the output layer's rows, which the trainer has
            no copies of.
    """

    sets_rows = False

    def __init__(self, task: FairseqTask, options: Options, normalises_itself: bool = True):
        super().__init__(task, options, normalises_itself)
        self.noise = NoiseSource(task, options)
        self.self_norm_alpha = flags.value_at(options.self_norm_alpha, epoch=1)
        self._has_begun = False

    @classmethod
    def build_criterion(cls, cfg: DictConfig, task: FairseqTask) -> "SelfNormalizingCriterion":
        """Check the flags and build the criterion.

        Raises:
            FlagsError: with a line for each flag that is wrong.
        """
        cfg = flags.completed(cfg, "criterion")
        # fairseq-validate has a --path, and fairseq-train has none.
        trains = getattr(task, "trains", not OmegaConf.select(cfg._get_root(), "common_eval.path"))
        try:
            options = flags.read(cfg, getattr(cls, "__dataclass"), type(task) if trains else None)
        except FlagsError as error:
            if hasattr(sys.modules["__main__"], "cli_main"):  # fairseq's commands define it
                sys.exit(str(error))  # without a traceback
            raise
        return cls(task, options)

    def forward(self, model: nn.Module, sample: Sample, reduce: bool = True) -> Step:
        """Compute the loss (nats, summed over tokens), the sample size and what is logged.

        In training mode, the loss is the objective; in evaluation mode, the exact NLL. With
        ``reduce=False``, the loss is (N,), one value for each token that is not padding.
        """
        make_words = self.make_words if model.training else None
        batch = TokenBatch.from_sample(model, sample, self.padding_idx, make_words)
        logged: Dict[str, float] = {}
        if model.training:
            if not self._has_begun:
                self._begin(batch)
            loss = self.objective(batch, "sum" if reduce else "none")
        else:
            loss, logged = self.evaluate(batch, _first_id(sample))
            loss = loss.sum() if reduce else loss
        sentences = sample["target"].size(0)
        sample_size = sentences if self.options.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
            **logged,
        }
        return loss, sample_size, logging_output

    def make_words(self, batch: TokenBatch) -> object:
        """Sample the noise of a batch, and find its distinct words: ``batch.words``."""
        return None

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        """Compute the training loss in nats: the sum, or (N,) if ``reduction`` is "none"."""
        raise NotImplementedError

    def rows(self, batch: TokenBatch) -> Words:
        """Return the output layer's rows of ``batch.words``, for a loss with :attr:`known_start`.

        What is learned of log Z is subtracted from the bias, in float32 or better, and so gets its
        gradient.
        """
        rows = batch.layer.rows(batch.words.ids)
        if self.learned_log_z is None:
            return rows
        bias = rows.weight.new_zeros(len(rows.weight)) if rows.bias is None else rows.bias
        bias = bias.to(at_least_float32(bias)) - self.learned_log_z[0].float()
        return rows._replace(bias=bias)

    def with_penalty(self, loss: Tensor, batch: TokenBatch, reduction: str) -> Tensor:
        """Add (alpha / rate) (log Z_c - log Z)^2 on a random share ``rate`` of the contexts."""
        # Sampled on the device: a copy would make the host wait.
        generator = seeded_generator(batch.target.device)
        chosen = random_share(batch, self.options.self_norm_rate, generator)
        if not self.self_norm_alpha or not len(chosen):
            return loss
        deviation = self.log_partition(batch, chosen) - self.known_start
        if self.learned_log_z is not None:
            deviation = deviation - self.learned_log_z[0].float()
        weight = self.self_norm_alpha * len(batch) / len(chosen)  # alpha / rate, rounding included
        penalty = weight * deviation.square()
        return loss + penalty.sum() if reduction == "sum" else loss.index_add(0, chosen, penalty)

    def evaluate(self, batch: TokenBatch, seed: int) -> Tuple[Tensor, Dict[str, float]]:
        """Compute the exact NLL of each token, (N,) nats, and the sums to log.

        With ``--valid-partition-rate`` below 1, the mean over sampled contexts replaces log Z_c.
        """
        log_odds = batch.layer.target_scores(batch.features, batch.target) - self.log_z
        generator = torch.Generator().manual_seed(seed)
        chosen = random_share(batch, self.options.valid_partition_rate, generator)
        deviations = log_odds.new_zeros(0)
        if len(chosen):
            deviations = self.log_partition(batch, chosen) - self.log_z
        logged = metrics.evaluation_sums(log_odds, deviations)
        if len(chosen) < len(batch):
            deviations = deviations.mean() if len(chosen) else deviations.sum()
        return deviations - log_odds, logged

    def log_partition(self, batch: TokenBatch, tokens: Tensor) -> Tensor:
        """Compute log Z_c, in nats, of the contexts with these indices."""
        return batch.layer.log_partition(batch.features.index_select(0, tokens))

    reduce_metrics = staticmethod(metrics.reduce)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True

    def begin_epoch(self, epoch: int) -> None:
        """Take the values of an epoch, counted from 1; the language_modeling task calls this."""
        self.noise.begin_epoch(epoch)
        self.self_norm_alpha = flags.value_at(self.options.self_norm_alpha, epoch)

    def prepare(self, model: nn.Module, untrained: bool) -> None:
        """Prepare a model for this criterion.

        Call this before a trainer is built: the trainer wraps the model for DDP, which has to know
        row-sparse parameters, and copies the parameters for --fp16, the bias too.

        Args:
            model: the model, not wrapped.
            untrained: whether its output bias may be set.
        """
        if untrained:
            conversion.read_as_bands(model, may_start=True)
        if self.options.score_squashing:
            squash(model)
            self.state.score_squashing = True
        elif is_squashed(model):
            required = "--criterion self_norm_softmax with it, as the model was trained"
            require("--score-squashing", required, type(self).__name__, False)
        layer, words = OutputLayer(model), len(self.task.target_dictionary)
        self.state.output_bands = isinstance(layer.kind, conversion.Bands) or None
        required = f"an architecture that predicts its {words:,} words (transformer_lm, rnn_lm)"
        got = f"{type(layer.decoder).__name__}, which predicts {len(layer):,}"
        require("--output-dictionary-size", required, got, len(layer) == words)
        row_sparse.name_rows(model, *layer.parameters())
        if self.options.row_sparse:
            legacy = self.options.ddp_backend in ("legacy_ddp", "no_c10d")
            row_sparse.mark(model, *layer.parameters(), legacy_ddp=legacy)
        if untrained:
            if self.continued is not None and self.continued.state.dictionary_sha256:
                where = f"for the training that continues {self.continued.path}"
                dictionaries.check(self.task.source_dictionary, self.continued.state, where)
            self._set_initial_scores(layer)

    def _set_initial_scores(self, layer: OutputLayer) -> None:
        """Let scores start as ``--init-output-bias`` says, if the decoder can."""
        kind = self.options.init_output_bias
        if kind == "none":
            return
        if not initial_scores.can_be_set(layer):
            lacking = "has neither an output bias nor a last layer normalisation"
            name = type(layer.decoder).__name__
            logger.warning(f"--init-output-bias {kind}: not used, {name} {lacking}")
            return
        uniform = NoiseDistribution.uniform(len(layer))
        log_q = uniform.log_q if kind == "uniform" else self.noise.unigram.to("cpu").log_q
        if self.start is None and (self.continued is None or not self.normalises_itself):
            fitting = initial_scores.fitting_log_z(log_q, layer.kind.is_squashed)
            self.start_at(fitting, f"{self.origin}: set with the output bias")
        initial_scores.shrink_scores(layer)
        initial_scores.set_to(layer, log_q + (self.start or 0.0))

    def _begin(self, batch: TokenBatch) -> None:
        """Measure log Z on the first training batch with a token, and log where it starts."""
        batch.layer.check_trained_here("--criterion")
        if batch.layer.kind.is_started:
            batch.layer.kind.start(batch.features, self.known_start)
        if self.is_unknown:
            device = batch.target.device
            tokens = contexts_to_measure(len(batch), len(batch.layer), device)
            if self.continued and self.sets_rows and not self.options.score_squashing:
                batch.layer.level(batch.features[tokens])
            with torch.no_grad():
                self.measure_log_z(self.log_partition(batch, tokens))
        if not self.is_unknown:  # else no rank has a token: the next batch is the first
            self._has_begun = True
            self.save_log_z()
            reason = "none, because this loss does not normalise scores: scoring subtracts mu_z"
            if self.normalises_itself:
                reason = f"{self.log_z:g} nats ({self.origin})"
            logger.info(f"log Z: {reason}")
            validation = "in validation the negative log-likelihood"
            shown = f"the objective of {type(self).__name__}, {validation}"
            logger.info(f"loss: in training {shown}, both in bits: do not compare them")


def random_share(batch: TokenBatch, rate: float, generator: torch.Generator) -> Tensor:
    """Return sorted indices of a random share of the tokens, at least one if there are any."""
    count = min(len(batch), max(1, round(rate * len(batch)))) if rate else 0
    if count == len(batch):
        return torch.arange(count, device=batch.target.device)
    chosen = torch.randperm(len(batch), generator=generator, device=generator.device)[:count]
    return chosen.sort().values.to(batch.target.device)


def _first_id(sample: Sample) -> int:
    """Return a seed from the batch, so that each validation samples the same contexts."""
    # A number in fairseq's dummy tasks; a dummy batch may have none.
    return int(torch.as_tensor(sample.get("id", 0)).flatten()[:1].sum())
