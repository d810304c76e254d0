"""fairseq's language_modeling task, with log Z in its checkpoints and two ways to score.

It takes the registry's place of ``language_modeling``, with the same flags and behaviour, and adds:

- the checkpoint carries log Z, and mu_z and sigma_z from the first validation subset;
- ``fairseq-eval-lm`` scores exactly without ever holding tokens x V logits, or, with
  ``--unnormalized``, only the targets;
- errors that name data which are missing, damaged or made with another dictionary.
"""

import copy
import logging
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary, FairseqDataset, TruncatedDictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.optim import FP16Optimizer
from fairseq.tasks import TASK_REGISTRY, register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from omegaconf import II, DictConfig
from torch import nn

from fairseq_bnce import ranks, threads
from fairseq_bnce.checkpoints import dictionaries, origin
from fairseq_bnce.checkpoints.dictionaries import KeptDictionary
from fairseq_bnce.criterions import flags, metrics
from fairseq_bnce.criterions.base import Sample, SelfNormalizingCriterion, Step
from fairseq_bnce.data import token_counts as data
from fairseq_bnce.errors import require
from fairseq_bnce.flag import flag
from fairseq_bnce.optim import registered as optimizers
from fairseq_bnce.output_layer import conversion
from fairseq_bnce.output_layer.layer import OutputLayer, squash
from fairseq_bnce.scoring import eval_lm
from fairseq_bnce.state import ScoringState
from fairseq_bnce.tasks import streams

logger = logging.getLogger(__name__)

_Limit = Optional[int]
Precision: ChoiceEnum = ChoiceEnum(["highest", "high", "medium"])


@dataclass
class SelfNormalizedLanguageModelingConfig(LanguageModelingConfig):
    unnormalized: bool = flag(
        False, "eval-lm: score targets by m - log Z - shift, for models that normalise themselves"
    )
    log_z_shift: str = flag(
        "checkpoint",
        "eval-lm --unnormalized: nats subtracted from every score besides log Z: mu_z of the "
        "checkpoint's validation ('checkpoint'), nothing ('none'), or a number",
    )
    stateful: bool = flag(
        False,
        "read the data as contiguous streams and carry the recurrent state of rnn_lm over: "
        "--batch-size streams, or as many as --max-tokens has room for; in eval-lm one by default",
    )
    state_reset_rate: float = flag(
        0.05,
        "with --stateful: the share of streams that start a training batch from an empty state, so "
        "that the model also knows texts that begin, and normalises their scores",
    )
    matmul_precision: Optional[Precision] = flag(
        None,
        "torch.set_float32_matmul_precision() in training and eval-lm (default: torch's). 'high' "
        "and 'medium' are TF32 on a GPU; 'medium' is bfloat16 on a CPU with instructions for it",
    )
    train_subset: Optional[str] = II("dataset.train_subset")
    save_dir: Optional[str] = II("checkpoint.save_dir")
    model_path: Optional[str] = II("common_eval.path")
    # Unused, but fairseq 0.12.2 loads no checkpoint with a field that is missing here.
    criterion_name: Optional[str] = II("criterion._name")
    ddp_backend: str = II("distributed_training.ddp_backend")


# fairseq's own, for which register_task() would refuse ours
del TASK_REGISTRY["language_modeling"]


@register_task("language_modeling", dataclass=SelfNormalizedLanguageModelingConfig)
class SelfNormalizedLanguageModelingTask(LanguageModelingTask):
    """Language modeling with self-normalised models.

    Raises:
        ValueError: for a bad ``--log-z-shift``, or an ensemble under ``--unnormalized``.
        InputError: for data that can't be used.
    """

    def __init__(self, args: DictConfig, *rest: object, **kwargs: object):
        super().__init__(args, *rest, **kwargs)
        self._facts = ScoringState(self.state.state_dict)
        # The task states of the next model's checkpoint and of each model: fairseq merges them.
        self._loaded_state = ScoringState()
        self._models: Dict[nn.Module, ScoringState] = {}
        self._untrained: Optional[nn.Module] = None
        self._criterion: Optional[SelfNormalizingCriterion] = None
        self._is_checked = False
        self._carried_states: List[streams.CarriedState] = []  # one a model with --stateful
        self._kept_dictionary: Optional[KeptDictionary] = None

    @classmethod
    def setup_task(cls, args: DictConfig, **kwargs: object) -> "SelfNormalizedLanguageModelingTask":
        args = flags.completed(args, "task")
        path = args.model_path or ""
        if args.unnormalized and not os.path.isfile(path):
            count = len(path.split(os.pathsep))
            got = f"an ensemble of {count}; score the models one by one"
            require("--unnormalized", "one model", got, count <= 1)
        return super().setup_task(args, **kwargs)

    @classmethod
    def setup_dictionary(
        cls, args: DictConfig, dictionary: Optional[Dictionary] = None, **kwargs: object
    ) -> Tuple[Dictionary, Dictionary]:
        """Return the dictionaries of the words that are read and of those that are predicted."""
        if dictionary is None:
            return super().setup_dictionary(args, **kwargs)
        size = args.output_dictionary_size
        return dictionary, TruncatedDictionary(dictionary, size) if size >= 0 else dictionary

    @property
    def trains(self) -> bool:
        """Return whether a model is built to be trained, and was not loaded to be validated."""
        return not self._models or self._untrained is not None

    def build_model(self, args: DictConfig, from_checkpoint: bool = False) -> nn.Module:
        own, self._loaded_state = self._loaded_state, ScoringState()
        in_bands = bool(own.output_bands) if from_checkpoint else _goes_on_in_bands(args)
        if in_bands and isinstance(getattr(args, "criterion", None), str):
            # lstm_lm and fconv_lm build an adaptive softmax under adaptive_loss alone.
            args = copy.copy(args)
            args.criterion = "adaptive_loss"
        model = super().build_model(args, from_checkpoint)
        self._models[model] = own
        if own.output_bands:
            conversion.read_as_bands(model)
        if own.score_squashing:
            squash(model)
        if self.args.stateful:
            self._carried_states.append(streams.CarriedState(model, self.args.state_reset_rate))
        self._untrained = None if from_checkpoint else model
        return model

    def build_criterion(self, cfg: DictConfig, from_checkpoint: bool = False) -> nn.Module:
        """Build the criterion, which prepares the model, before there is a trainer.

        The model may be trained already: fairseq-validate builds a criterion, too.
        """
        folder = utils.split_paths(self.args.data)[0]
        self._kept_dictionary = KeptDictionary(folder, self.dictionary)
        criterion = super().build_criterion(cfg)
        if isinstance(criterion, SelfNormalizingCriterion):
            dictionaries.check(self.dictionary, ScoringState(), folder)
            self._criterion = criterion
            _let_threads_sleep()
            for model in self._models:
                criterion.prepare(model, untrained=model is self._untrained)
        return criterion

    def load_state_dict(self, state_dict: Dict[str, object]) -> None:
        """Take the task state of a checkpoint, before its model is built.

        Raises:
            CheckpointError: if the model was trained with another dictionary.
        """
        self._loaded_state = ScoringState(dict(state_dict))
        dictionaries.check(self.source_dictionary, self._loaded_state, self.args.data)
        super().load_state_dict(state_dict)

    def state_dict(self) -> Dict[str, object]:
        """Return the state for a checkpoint, and put dict.txt beside the checkpoint."""
        if self._criterion is not None:
            self._criterion.save_log_z()
        if self._kept_dictionary is not None:
            self.state.merge_state_dict(self._kept_dictionary.state.entries)
            if ranks.rank() == 0 and os.path.isdir(self.args.save_dir or ""):
                self._kept_dictionary.keep(self.args.save_dir)
        state = dict(super().state_dict())
        ScoringState(state).reduced_partition = None  # the model was trained further
        return state

    def train_step(
        self, sample: Sample, model: nn.Module, criterion: nn.Module, optimizer: Any, **kwargs: Any
    ) -> Step:
        """Run fairseq's step, with the recurrent state of the batch before under --stateful."""
        if not self._is_checked:
            self._is_checked = True
            if self._criterion is not None:
                if self._criterion.options.row_sparse:
                    optimizers.take_row_sparse(optimizer)
                # It holds copies of the parameters that the first batch would set.
                sets_rows = self._criterion.sets_rows = not isinstance(optimizer, FP16Optimizer)
                required = "--memory-efficient-fp16 or -bf16 to start from an adaptive softmax"
                fits = sets_rows or not OutputLayer(model).kind.is_started
                require("--fp16, --bf16", required, "none", fits)
        if not self._carried_states:
            return super().train_step(sample, model, criterion, optimizer, **kwargs)
        with self._carried_states[-1].training(is_dummy=kwargs.get("ignore_grad", False)):
            return super().train_step(sample, model, criterion, optimizer, **kwargs)

    def optimizer_step(self, optimizer: object, model: nn.Module, update_num: int) -> None:
        super().optimizer_step(optimizer, model, update_num)
        if self._carried_states:
            self._carried_states[-1].gather()

    def get_batch_iterator(
        self, dataset: Any, max_tokens: _Limit = None, max_sentences: _Limit = None, **kwargs: Any
    ) -> streams.EpochBatchIterator:
        """Return fairseq's iterator or, with --stateful, batches of contiguous streams.

        Raises:
            ValueError: with --stateful, for more streams than blocks, or blocks that are sentences.
        """
        if not self._carried_states:
            return super().get_batch_iterator(dataset, max_tokens, max_sentences, **kwargs)
        mode = str(self.args.sample_break_mode)
        require("--sample-break-mode", "none, one text, with --stateful", mode, mode == "none")
        # Attach here and not at load time: a loaded model may never read streams.
        for state in self._carried_states:
            state.attach()
        block = self.args.tokens_per_sample

        def fitting(sentences: _Limit) -> int:  # streams, as many as a batch has room for
            return min(filter(None, (sentences, max_tokens and max_tokens // block)), default=1)

        count = fitting(max_sentences)
        kept = self.dataset_to_epoch_iter.get(dataset)
        if kept is not None and kept.streams == count:
            return kept
        logger.info(f"--stateful: {count} streams a batch")
        trains = dataset is self.datasets.get(self.args.train_subset)
        if trains:  # stock fairseq validates after the first epoch, which would be lost
            valid = fitting(self.args.batch_size_valid or max_sentences)
            for other in set(self.datasets.values()) - {dataset}:
                streams.check_streams(len(other), valid, kwargs.get("num_shards", 1))
        carried = self._carried_states[-1]
        iterator = streams.StreamIterator(dataset, count, carried, trains, block, **kwargs)
        # Kept because every iterator has worker processes. Every epoch of sharded data has others.
        if not kwargs.get("disable_iterator_cache", False) and self.can_reuse_epoch_itr(dataset):
            self.dataset_to_epoch_iter[dataset] = iterator
        return iterator

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> Any:
        """Check the files of a split and load it.

        Raises:
            InputError: for missing or damaged files, or ids that the dictionary lacks.
        """
        folders = utils.split_paths(self.args.data)
        folder = folders[(epoch - 1) % len(folders)]
        # The counts of the training data are the noise distribution, and read again every epoch.
        cache = split == self.args.train_subset and self._criterion is not None
        data.check_split(folder, split, self.dictionary, combine=combine, cache=cache)
        return super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)

    def begin_epoch(self, epoch: int, model: nn.Module) -> None:
        """Prepare an epoch of fairseq-train."""
        super().begin_epoch(epoch, model)
        self._set_matmul_precision()
        if self._criterion is not None:
            self._criterion.begin_epoch(epoch)
        dataset = self.datasets.get(self.args.train_subset)
        if dataset is not None and len(dataset):
            # No configuration holds the length of sentences (--sample-break-mode eos).
            longest = self._facts.longest_context or 0
            self._facts.longest_context = max(longest, int(dataset.sizes.max()))

    def begin_valid_epoch(self, epoch: int, model: nn.Module) -> None:
        """Drop mu_z and sigma_z, which this validation measures again."""
        super().begin_valid_epoch(epoch, model)
        self._facts.mu_z = self._facts.sigma_z = None

    def post_validate(self, model: nn.Module, stats: Mapping[str, object], meters: Mapping) -> None:
        """Keep mu_z and sigma_z of the first validation subset; fairseq-train calls this."""
        if self._facts.mu_z is None and "mu_z" in meters:
            self._facts.mu_z, self._facts.sigma_z = metrics.normaliser(meters)

    def eval_lm_dataloader(self, dataset: FairseqDataset, **kwargs: Any) -> Iterator:
        """Make the loaded models score, exactly or not; only fairseq-eval-lm calls this.

        Not in :meth:`build_model`, whose models fairseq-validate and fairseq-generate use too.
        """
        self._set_matmul_precision()
        _let_threads_sleep()
        if self._carried_states:
            kwargs = streams.eval_lm_options(**kwargs)
        if self.args.unnormalized:
            eval_lm.score_unnormalized(self._models, self._facts, self.args.log_z_shift)
        else:
            eval_lm.score_exactly(self._models)
        dataset = eval_lm.in_blocks(self, dataset, self._models, **kwargs)
        return super().eval_lm_dataloader(dataset, **kwargs)

    def _set_matmul_precision(self) -> None:
        """Set the precision here and not in the constructor: a Scorer's user has one of his own."""
        if self.args.matmul_precision is not None:
            torch.set_float32_matmul_precision(str(self.args.matmul_precision))


def _let_threads_sleep() -> None:
    if threads.let_threads_sleep():
        advice = "OMP_WAIT_POLICY=ACTIVE: faster on an idle machine, much slower on a busy one"
        logger.info(f"{torch.get_num_threads()} threads that sleep while they wait ({advice})")


def _goes_on_in_bands(options: DictConfig) -> bool:
    """Return whether one of our criteria trains a checkpoint that has an adaptive softmax or bands.

    Args:
        options: of the model; in a Namespace, with all other options.
    """
    criterion = CRITERION_REGISTRY.get(getattr(options, "criterion", None), object)
    is_ours = issubclass(criterion, SelfNormalizingCriterion)
    return is_ours and origin.has_adaptive_softmax(options)
