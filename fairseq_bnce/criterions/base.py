"""The base of all criteria: everything but the objective.

A training step drops the padding, draws noise and finds the batch's distinct words (objectives.py),
runs the model up to its output layer (output_layer/batch.py), and calls the core of a loss over
these words (losses/). A validation step computes the targets' scores and the exact partition
function (metrics.py logs them).
"""

import logging
import math
from argparse import Namespace
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_bnce.checkpoints import dictionaries
from fairseq_bnce.checkpoints.origin import CheckpointChoice
from fairseq_bnce.criterions import flags, log_z, metrics
from fairseq_bnce.criterions.noise_source import NoiseSource, seeded_generator
from fairseq_bnce.errors import require
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.optim import row_sparse
from fairseq_bnce.output_layer import bands, initial_scores, squashing
from fairseq_bnce.output_layer.batch import TokenBatch, target_scores
from fairseq_bnce.output_layer.layer import OutputLayer

logger = logging.getLogger(__name__)

_FAR = 2.0  # nats between log Z and where log Z_c starts, from which on a warning is due


class SelfNormalizingCriterion(FairseqCriterion):
    """A subclass says what :meth:`objective` is.

    Args:
        task: a language modeling or translation task.
        options: of :func:`flags.options`.

    Attributes:
        noise: where noise comes from, and the unigram distribution.
        constant: where the constant log Z starts.
        learned_log_z: (1,) how far a learned log Z went from there, or None. The start may be
            known on the first batch only, when --fp16 has copied the parameters, and halves tell
            small numbers well apart.
        alphas, self_norm_alpha: the penalty's weight by epoch and in this one, of those that have
            one.
        normalises_itself: whether the loss draws log Z_c to log Z, so that scores need no softmax.
        is_prepared: whether :meth:`prepare` has been called, as the language_modeling task does.
        start_is_set: whether an untrained model's scores are as ``--init-output-bias`` says.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    normalises_itself = True
    needs_draws = False  # whether the loss is none without a draw

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task)
        self.noise = NoiseSource(task, options)
        if self.needs_draws:
            self.noise.require_draws()
        choice = CheckpointChoice(*(getattr(options, name) for name in CheckpointChoice._fields))
        self.constant = log_z.Constant(options.log_z, choice, options.learn_log_z)
        self.learned_log_z: Optional[nn.Parameter] = None
        if options.learn_log_z:
            # Of one dimension: fairseq's legacy_ddp can't reduce one of none.
            self.learned_log_z = nn.Parameter(torch.zeros(1))
        self.alphas = flags.alphas_by_epoch(
            options.self_norm_alpha, options.self_norm_alpha_by_epoch
        )
        self.self_norm_alpha = self.alphas[0]
        self.initial_bias = str(options.init_output_bias)
        self.valid_partition_rate = options.valid_partition_rate
        self._is_validated = not options.disable_validation
        self.row_sparse, self.score_squashing = options.row_sparse, options.score_squashing
        self.is_legacy_ddp = options.ddp_backend in ("legacy_ddp", "no_c10d")
        self.sentence_avg = options.sentence_avg
        self.is_prepared = self.start_is_set = self._has_begun = False
        self._layer_state: Dict[str, Any] = {}  # how the model's output layer is read

    @classmethod
    def build_criterion(cls, cfg: FairseqDataclass, task: FairseqTask) -> "FairseqCriterion":
        """Check the configuration and hand its values to the constructor.

        Raises:
            FlagsError: naming every flag that is wrong.
        """
        # Other tasks do not say, but fairseq-validate has a --path, and fairseq-train none.
        trains = getattr(task, "trains", not flags.at(flags.whole(cfg), "common_eval.path"))
        kind = getattr(cls, "__dataclass")
        return cls(task, flags.options(cfg, kind, type(task) if trains else None))

    @property
    def log_z(self) -> float:
        """The constant log Z, nats; 0 until it is known, or if the loss draws scores to none."""
        learned = 0.0 if self.learned_log_z is None else self.learned_log_z.item()
        return self._known_start + learned

    @property
    def differentiable_log_z(self) -> Union[float, Tensor]:
        """log Z as a loss takes it: a 0-d float32 tensor if it is learned."""
        if self.learned_log_z is None:
            return self._known_start
        return self._known_start + self.learned_log_z[0].float()

    @property
    def _known_start(self) -> float:
        known = self.constant.start
        return known if self.normalises_itself and known is not None else 0.0

    def begin_epoch(self, epoch: int) -> None:
        """Do as flags say of this epoch, counted from 1; the language_modeling task calls it."""
        self.noise.begin_epoch(epoch)
        self.self_norm_alpha = flags.of_epoch(self.alphas, epoch)

    def scoring_state(self) -> Dict[str, Any]:
        """What a checkpoint has to know in order to score: log Z only if scores come near it."""
        state = dict(self._layer_state)
        if self.score_squashing:
            state["score_squashing"] = True
        if self.normalises_itself and self.constant.start is not None:
            state["log_z"] = float(self.log_z)
        return state

    def get_extra_state(self) -> Dict[str, Any]:
        """Saved beside what is learned.

        A checkpoint's task state comes after it, and the tasks of others know no more of log Z
        than they were told.
        """
        self.task.state.merge_state_dict(self.scoring_state())
        return {"initial_log_z": self.constant.start}

    def set_extra_state(self, state: Dict[str, Any]) -> None:
        """Called where a checkpoint with a learned log Z is loaded, which goes on from there."""
        self.constant.resume(state["initial_log_z"])
        self._keep_normaliser()

    def load_state_dict(
        self, state_dict: Optional[Dict[str, Any]], *args: Any, **kwargs: Any
    ) -> Any:
        """As torch's; None, from a checkpoint of a training that learned no log Z, changes nothing.

        Checkpoints without a start hold log Z itself in the place of what it gained.
        """
        if state_dict is None:
            return None
        state = {"_extra_state": {"initial_log_z": 0.0}, **state_dict}
        state["learned_log_z"] = state["learned_log_z"].reshape(1)
        return super().load_state_dict(state, *args, **kwargs)

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Loss (nats, summed over tokens), sample size and logging outputs of a batch.

        In training mode the loss is the objective; in evaluation mode the exact NLL. With
        ``reduce=False`` it is (N,), one value for each token that is not padding.
        """
        make_words = self.make_words if model.training else None
        batch = TokenBatch.from_sample(model, sample, self.padding_idx, make_words)
        batch.layer.check_trained_here("--criterion")
        logged: Dict[str, Any] = {}
        if not self.constant.is_decided:
            self._decide_log_z(by_bias=None)
        if model.training:
            self._begin(batch)
            loss = self.objective(batch, "sum" if reduce else "none")
        else:
            loss, logged = self.evaluate(batch, _first_id(sample))
            loss = loss.sum() if reduce else loss
        sentences = sample["target"].size(0)
        sample_size = sentences if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
            **logged,
        }
        return loss, sample_size, logging_output

    def make_words(self, batch: TokenBatch) -> Any:
        """What :meth:`objective` needs of the targets and the noise, before there are features."""
        return None

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        """The training loss, nats: summed, or of each token (N,) if ``reduction`` is "none"."""
        raise NotImplementedError

    def words_of(self, batch: TokenBatch) -> Any:
        """See :meth:`make_words`; made now for a batch that was made without them."""
        return self.make_words(batch) if batch.words is None else batch.words

    def evaluate(self, batch: TokenBatch, seed: int) -> Tuple[Tensor, Dict[str, float]]:
        """Exact NLL of each token, (N,) nats, and the sums to log.

        With ``--valid-partition-rate`` below 1, log Z_c is that of the sampled contexts' mean.
        """
        log_odds = self.target_scores(batch) - self.log_z
        generator = torch.Generator().manual_seed(seed)
        chosen = random_share(batch, self.valid_partition_rate, generator)
        deviations = batch.features.new_zeros(0, dtype=torch.float32)
        if len(chosen):
            deviations = self.log_partition(batch, chosen) - self.log_z
        of_contexts = deviations
        if len(chosen) < len(batch):
            of_contexts = deviations.mean() if len(chosen) else deviations.new_zeros(())
        return of_contexts - log_odds, metrics.evaluation_sums(log_odds, deviations)

    def target_scores(self, batch: TokenBatch) -> Tensor:
        """m(w_i, i), (N,) nats."""
        return target_scores(batch.layer, batch.features, batch.target, self.score_squashing)

    def log_partition(self, batch: TokenBatch, tokens: Optional[Tensor] = None) -> Tensor:
        """log Z_c of the contexts with these indices, or of all, nats."""
        features = batch.features if tokens is None else batch.features.index_select(0, tokens)
        return batch.layer.log_partition(features, squash=self.score_squashing)

    def with_penalty(
        self, loss: Tensor, batch: TokenBatch, reduction: str, *, alpha: float, rate: float
    ) -> Tensor:
        """Plus (alpha / rate) (log Z_c - log Z)^2 on a random share ``rate`` of the contexts."""
        # Drawn where it is used: a GPU's host would wait for a copy.
        chosen = random_share(batch, rate, seeded_generator(batch.target.device))
        if not alpha or not len(chosen):
            return loss
        deviation = self.log_partition(batch, chosen) - self.differentiable_log_z
        # alpha / rate, for the share that a whole number of contexts makes.
        penalty = alpha * len(batch) / len(chosen) * deviation.square()
        return loss + penalty.sum() if reduction == "sum" else loss.index_add(0, chosen, penalty)

    def prepare(self, model: nn.Module, untrained: bool) -> None:
        """Make ready a model that this criterion is to train.

        To be called before a trainer is built: it wraps the model for DDP, which has to know of
        row-sparse parameters, and under --fp16 copies the parameters, the bias too.

        Args:
            model: the model, not wrapped.
            untrained: whether its output bias may be set.
        """
        if untrained:  # fairseq-validate's are not
            bands.read_as_bands(model, may_start=True)
        layer = OutputLayer(model)
        self._layer_state = bands.state_of(model)
        self._check_size(layer)
        self._apply_squashing(model)
        if self.row_sparse:
            row_sparse.mark(model, *layer.parameters(), legacy_ddp=self.is_legacy_ddp)
        q = self._initial_distribution(layer) if untrained else None
        squash = self.score_squashing
        self._decide_log_z(
            by_bias=None if q is None else initial_scores.carried_log_z(q.log_q, squash)
        )
        if untrained:
            self._check_dictionary()
        if q is not None:
            initial_scores.quieten(layer)
            initial_scores.set_to(layer, q.log_q + (self.constant.start or 0.0), squash)
            self.start_is_set = True
        self.is_prepared = True

    def _decide_log_z(self, by_bias: Optional[float]) -> None:
        """Before the first batch: what log Z is, or that it is to be measured there."""
        carried = self.task.state.state_dict.get("log_z")
        self.constant.decide(carried, by_bias, self.normalises_itself)
        self._keep_normaliser()

    def _keep_normaliser(self) -> None:
        """That of the checkpoint, until the next validation; fairseq's trainer hands none on."""
        if self._is_validated:
            self.task.state.merge_state_dict(dict(self.constant.normaliser))

    def _begin(self, batch: TokenBatch) -> None:
        """On the first training batch that has a token: check, measure log Z, say what it is."""
        if self._has_begun:
            return
        self._warn_of_start(batch.layer)
        batch.layer.start(batch.features, self._known_start)
        if self.constant.start is None:
            device = batch.target.device
            tokens = log_z.contexts_to_measure(len(batch), len(batch.layer), device)
            with torch.no_grad():
                self.constant.measure(self.log_partition(batch, tokens))
        if self.constant.start is None:
            return  # no rank has a token: the next batch is the first
        self._has_begun = True
        self.task.state.merge_state_dict(self.scoring_state())
        logger.info(f"log Z: {self._describe_log_z()}")
        logger.info(f"loss: {self._describe_loss()}")

    def _check_size(self, layer: OutputLayer) -> None:
        """Not all architectures know of an output dictionary."""
        words = len(self.task.target_dictionary)
        required = f"an architecture that predicts its {words:,} words (transformer_lm, rnn_lm)"
        got = f"{type(layer.decoder).__name__}, which predicts {len(layer):,}"
        require("--output-dictionary-size", required, got, len(layer) == words)

    def _check_dictionary(self) -> None:
        """A checkpoint that the training starts from must have the same dictionary."""
        found = self.constant.restored
        if found is not None and found.words is not None:
            dictionaries.check_same(self.task.source_dictionary, found.words, found.path)

    def _apply_squashing(self, model: nn.Module) -> None:
        """Squash the model's scores for good; refuse a squashed model without the flag."""
        if self.score_squashing:
            squashing.squash(model)
        elif squashing.is_squashed(model):
            required = "--criterion self_norm_softmax with it, as the model was trained"
            require("--score-squashing", required, type(self).__name__, False)

    def _initial_distribution(self, layer: OutputLayer) -> Optional[NoiseDistribution]:
        """The distribution that ``--init-output-bias`` starts scores at, if the decoder can."""
        if self.initial_bias == "none":
            return None
        if not initial_scores.can_be_set(layer):
            logger.warning(
                f"--init-output-bias {self.initial_bias}: {type(layer.decoder).__name__} has "
                "neither an output bias nor a last layer normalisation to carry it (as under "
                "--no-decoder-final-norm): scores start as the model has them"
            )
            return None
        if self.initial_bias == "uniform":
            return NoiseDistribution.uniform(len(layer))
        return self.noise.unigram.to("cpu")

    def _warn_of_start(self, layer: OutputLayer) -> None:
        """Warn where scores start far from log Z, or not as ``--init-output-bias`` says."""
        log_v, decoder = math.log(len(layer)), type(layer.decoder).__name__
        given = self.constant.given if self.normalises_itself else None
        can_start_there = layer.bias is not None or self.start_is_set or self.constant.goes_on
        if given is not None and abs(given - log_v) > _FAR and not can_start_there:
            logger.warning(
                f"{decoder} has no output bias: its log Z_c starts near log V = {log_v:.1f}, far "
                f"from --log-z {given:g}, and may take most of the training to get there; "
                "--log-z auto starts right"
            )
        elif layer.bias is not None and not self.is_prepared and self.initial_bias != "none":
            logger.warning(
                f"--init-output-bias {self.initial_bias} needs the language_modeling task; under "
                f"{type(self.task).__name__} the bias starts as the model has it"
            )

    def _describe_log_z(self) -> str:
        """Where log Z starts, and why."""
        if not self.normalises_itself:
            return f"{self.constant.origin}; scoring needs its shift"
        return f"{self.log_z:g} nats ({self.constant.origin})"

    def _describe_loss(self) -> str:
        """What the numbers called loss are."""
        share = {0: "unnormalised", 1: "exact"}.get(self.valid_partition_rate, "estimated")
        ppl = "ppl" if self.valid_partition_rate else "u_ppl"
        per = "a sentence" if self.sentence_avg else "a token"
        return (
            f"in training lines the objective of {type(self).__name__}, in validation lines the "
            f"{share} negative log-likelihood, whose perplexity is {ppl}; both in bits {per}, and "
            "not to be compared with each other"
        )

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log what the ranks have summed up (metrics.py)."""
        metrics.reduce(logging_outputs)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def random_share(batch: TokenBatch, rate: float, generator: torch.Generator) -> Tensor:
    """Sorted indices of a random share of the tokens, at least one unless there is none."""
    count = min(len(batch), max(1, round(rate * len(batch)))) if rate else 0
    if count == len(batch):
        return torch.arange(count, device=batch.target.device)
    chosen = torch.randperm(len(batch), generator=generator, device=generator.device)[:count]
    return chosen.sort().values.to(batch.target.device)


def _first_id(sample: Dict[str, Any]) -> int:
    """The seed of a batch: each validation of the same data samples the same contexts."""
    ids = torch.as_tensor(sample.get("id", 0)).flatten()  # a number in fairseq's dummy tasks
    return int(ids[0]) if len(ids) else 0
