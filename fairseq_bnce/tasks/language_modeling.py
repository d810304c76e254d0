"""fairseq's language_modeling task, with log Z in its checkpoints and two ways to score.

It takes the registry's place of ``language_modeling``: same flags and behaviour, and besides

- the checkpoint carries log Z and, as measured on the first validation subset, mu_z and sigma_z;
- ``fairseq-eval-lm`` scores exactly without ever holding tokens x V logits, or with
  ``--unnormalized`` the targets alone;
- data that are missing, damaged or made with another dictionary are named.
"""

import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ContextManager, Dict, List, Mapping, Optional, Tuple

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary, TruncatedDictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.optim import AMPOptimizer, FP16Optimizer
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from hydra.core.config_store import ConfigStore
from omegaconf import II
from torch import nn

from fairseq_bnce import ranks
from fairseq_bnce.checkpoints import dictionaries, origin, restoring
from fairseq_bnce.checkpoints.contents import LONGEST_CONTEXT
from fairseq_bnce.checkpoints.dictionaries import KeptDictionary
from fairseq_bnce.criterions import flags, metrics
from fairseq_bnce.criterions.base import SelfNormalizingCriterion
from fairseq_bnce.data import token_counts as data
from fairseq_bnce.errors import require
from fairseq_bnce.optim import registered as optimizers
from fairseq_bnce.output_layer import bands, squashing
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring import eval_lm, normalisation, reduction
from fairseq_bnce.tasks import streams

logger = logging.getLogger(__name__)

_NAME = "language_modeling"
Precision: Any = ChoiceEnum(["highest", "high", "medium"])


@dataclass
class SelfNormalizedLanguageModelingConfig(LanguageModelingConfig):
    unnormalized: bool = field(
        default=False,
        metadata={
            "help": "eval-lm: score targets as m - log Z - shift, without any work over the "
            "vocabulary; for models trained to normalise themselves"
        },
    )
    log_z_shift: str = field(
        default="checkpoint",
        metadata={
            "help": "eval-lm --unnormalized: nats taken off every score besides log Z: mu_z of "
            "the checkpoint's validation ('checkpoint'), nothing ('none'), or a number"
        },
    )
    stateful: bool = field(
        default=False,
        metadata={
            "help": "read the data as --batch-size contiguous streams (or as many as --max-tokens "
            "has room for blocks; in eval-lm one by default), over whose batches the recurrent "
            "state carries over (rnn_lm), in training, validation and eval-lm"
        },
    )
    matmul_precision: Optional[Precision] = field(
        default=None,
        metadata={
            "help": "in training and eval-lm: torch.set_float32_matmul_precision(). With 'high' "
            "and 'medium' a GPU multiplies in TF32; with 'medium' a CPU does it by oneDNN, in "
            "bfloat16 where it has such instructions for matrices. By default as torch has it"
        },
    )
    train_subset: Optional[str] = II("dataset.train_subset")
    model_path: Optional[str] = II("common_eval.path")
    criterion_name: Optional[str] = II("criterion._name")
    ddp_backend: str = II("distributed_training.ddp_backend")
    save_dir: Optional[str] = II("checkpoint.save_dir")


class SelfNormalizedLanguageModelingTask(LanguageModelingTask):
    """Language modeling with self-normalised models.

    Raises:
        ValueError: for a bad ``--log-z-shift``, an ensemble under ``--unnormalized``.
        InputError: for data that can't be used.
    """

    def __init__(self, args: Any, *rest: Any, **kwargs: Any):
        super().__init__(args, *rest, **kwargs)
        self._models: List[nn.Module] = []
        # Of the checkpoint whose model is built next, and of each model: fairseq merges them.
        self._loaded_state: Dict[str, Any] = {}
        self._own_states: Dict[nn.Module, Dict[str, Any]] = {}
        self._untrained: Optional[nn.Module] = None
        self._criterion: Optional[SelfNormalizingCriterion] = None
        self._measured = self._is_checked = self._validates_on_training = False
        self._carried_by_models: List[streams.CarriedState] = []  # under --stateful
        self._kept_dictionary: Optional[KeptDictionary] = None

    @classmethod
    def setup_task(cls, args: Any, **kwargs: Any) -> "SelfNormalizedLanguageModelingTask":
        args = flags.resolved(args)
        normalisation.check_shift(getattr(args, "log_z_shift", "checkpoint"))
        path = getattr(args, "model_path", None) or ""
        if getattr(args, "unnormalized", False) and not os.path.isfile(path):
            eval_lm.refuse_ensemble(path.split(os.pathsep))
        cls._check_backend(args)
        if "dictionary" not in kwargs:
            data.check_folders(args.data)
        return super().setup_task(args, **kwargs)

    @classmethod
    def _check_backend(cls, args: Any) -> None:
        """Refuse FSDP, and all else that is wrong, before FSDP wraps the model."""
        criterion = CRITERION_REGISTRY.get(getattr(args, "criterion_name", None), object)
        sharded = getattr(args, "ddp_backend", None) == "fully_sharded"
        if sharded and issubclass(criterion, SelfNormalizingCriterion):
            flags.options(flags.whole(args).criterion, getattr(criterion, "__dataclass"), cls)

    @classmethod
    def setup_dictionary(
        cls, args: Any, dictionary: Optional[Dictionary] = None, **kwargs: Any
    ) -> Tuple[Dictionary, Dictionary]:
        """(of the words that are read, of those that are predicted), from args.data by default."""
        if dictionary is None:
            return super().setup_dictionary(args, **kwargs)
        size = args.output_dictionary_size
        return dictionary, TruncatedDictionary(dictionary, size) if size >= 0 else dictionary

    @property
    def trains(self) -> bool:
        """Whether the model is built to be trained, and was not loaded to be validated."""
        return not self._models or self._untrained is not None

    @property
    def _carried(self) -> Optional[streams.CarriedState]:
        """Of the model that was built last, which alone is trained."""
        return self._carried_by_models[-1] if self._carried_by_models else None

    def build_model(self, args: Any, from_checkpoint: bool = False) -> nn.Module:
        own, self._loaded_state = self._loaded_state, {}
        in_bands = own.get(bands.STATE, False) if from_checkpoint else _goes_on_in_bands(args)
        with bands.building(args, in_bands):
            model = super().build_model(args, from_checkpoint)
        self._own_states[model] = own
        bands.restore(model, own)
        if own.get("score_squashing", False):
            squashing.squash(model)
        if self.args.stateful:
            self._carried_by_models.append(streams.CarriedState(model))
        self._models.append(model)
        self._untrained = None if from_checkpoint else model
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """Build the criterion, and have it prepare the model: here, before there is a trainer.

        The model may be trained already: fairseq-validate builds a criterion, too.
        """
        self._kept_dictionary = KeptDictionary(
            utils.split_paths(self.args.data)[0], self.dictionary
        )
        criterion = super().build_criterion(cfg)
        if isinstance(criterion, SelfNormalizingCriterion):
            self._criterion = criterion
            for model in self._models:
                criterion.prepare(model, untrained=model is self._untrained)
        return criterion

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Called with what each checkpoint carries, before its model is built.

        Raises:
            CheckpointError: if the model was trained with another dictionary.
        """
        dictionaries.check(self.source_dictionary, state_dict, self.args.data)
        super().load_state_dict(state_dict)
        self._loaded_state = dict(state_dict)

    def state_dict(self) -> Dict[str, Any]:
        """What checkpoints carry of the task: a learned log Z as it is now.

        Called when a checkpoint is saved, so that this is when dict.txt is put beside it.
        """
        if self._criterion is not None:
            self.state.merge_state_dict(self._criterion.scoring_state())
        if self._kept_dictionary is not None:
            self.state.merge_state_dict(self._kept_dictionary.state())
            if ranks.rank() == 0 and self.args.save_dir:
                self._kept_dictionary.keep(self.args.save_dir)
        return reduction.without(super().state_dict())

    def train_step(
        self,
        sample: Any,
        model: nn.Module,
        criterion: nn.Module,
        optimizer: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """As fairseq's, once it is known that the optimiser takes the gradients."""
        if not self._is_checked and getattr(criterion, "row_sparse", False):
            optimizers.take_row_sparse(optimizer)
        if not self._is_checked and isinstance(criterion, SelfNormalizingCriterion):
            _check_copies(optimizer, model)
        self._is_checked = True
        is_dummy = kwargs.get("ignore_grad", False)
        reads: ContextManager[None] = nullcontext()
        if self._carried is not None:
            may_repeat = isinstance(optimizer, AMPOptimizer)
            reads = self._carried.training(sample["id"], is_dummy, may_repeat)
        with reads:
            return super().train_step(sample, model, criterion, optimizer, *args, **kwargs)

    def optimizer_step(self, optimizer: Any, model: nn.Module, update_num: int) -> None:
        super().optimizer_step(optimizer, model, update_num)
        if self._carried is not None:
            self._carried.end_update()

    def get_batch_iterator(
        self,
        dataset: Any,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        **kwargs: Any,
    ) -> Any:
        """As fairseq's; with --stateful, batches of contiguous streams.

        As many streams as ``max_sentences`` and ``max_tokens`` let a batch have blocks.

        Raises:
            ValueError: for --stateful on more streams than the data have blocks, on blocks that
                are sentences, or that ``max_tokens`` has no room for.
        """
        if self._carried is None:
            made = super().get_batch_iterator(dataset, max_tokens, max_sentences, **kwargs)
            return streams.refusing_states(made)
        streams.check_contiguous(self.args)
        # Not before: who loads a model may have no streams for it.
        for carried in self._carried_by_models:
            carried.attach()
        block = self.args.tokens_per_sample
        count = streams.streams_within(max_sentences, max_tokens, block)
        made = self.dataset_to_epoch_iter.get(dataset)
        if made is not None and made.streams == count:
            return made
        taken = ("seed", "num_shards", "shard_id", "num_workers", "epoch", "skip_remainder_batch")
        options = {name: kwargs[name] for name in taken if name in kwargs}
        trains = dataset is self.datasets.get(self.args.train_subset)
        logger.info(f"--stateful: {count} streams a batch")
        made = streams.StreamIterator(dataset, count, self._carried, trains, block, **options)
        # Kept as fairseq keeps its own, but for one of data that are trained and validated on. Of
        # sharded data every epoch has others, and what was kept of them would never be used again.
        is_shared = trains and self._validates_on_training
        is_kept = not (is_shared or kwargs.get("disable_iterator_cache", False))
        if is_kept and self.can_reuse_epoch_itr(dataset):
            self.dataset_to_epoch_iter[dataset] = made
        return made

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> Any:
        """Load a split, after a check of its files.

        Raises:
            InputError: for missing or damaged files, or ids that the dictionary lacks.
            ValueError: for blocks without a word.
        """
        size = self.args.tokens_per_sample
        require("--tokens-per-sample", "at least 1, --context-window taken off", size, size >= 1)
        folders = utils.split_paths(self.args.data)
        folder = folders[(epoch - 1) % len(folders)]
        is_training = split == self.args.train_subset
        # fairseq-train combines the files of the training data, and of nothing else.
        self._validates_on_training |= is_training and not combine
        # The counts that the noise is made from are kept, and read again with every epoch.
        cache = is_training and self._criterion is not None
        data.check_split(folder, split, self.dictionary, combine=combine, cache=cache)
        return super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)

    def begin_epoch(self, epoch: int, model: nn.Module) -> None:
        """Called by fairseq-train alone."""
        super().begin_epoch(epoch, model)
        self._set_matmul_precision()
        if self._criterion is not None:
            self._criterion.begin_epoch(epoch)
        dataset = self.datasets.get(self.args.train_subset)
        if dataset is not None and len(dataset):
            # Sentences (--sample-break-mode eos) have no limit that a configuration tells.
            longest = self.state.state_dict.get(LONGEST_CONTEXT, 0)
            longest = max(longest, int(dataset.sizes.max()))
            self.state.merge_state_dict({LONGEST_CONTEXT: longest})

    def begin_valid_epoch(self, epoch: int, model: nn.Module) -> None:
        super().begin_valid_epoch(epoch, model)
        self._measured = False
        if self._carried is not None:
            # An update that overflows under --fp16 has no end, but it has read its batches.
            self._carried.tell_ranks()

    def post_validate(self, model: nn.Module, stats: Dict[str, Any], meters: Mapping) -> None:
        """Called by fairseq-train after each validation subset, the first one first."""
        if not self._measured:
            for name in ("mu_z", "sigma_z"):  # of the model before, if nothing is measured
                self.state.state_dict.pop(name, None)
            if "mu_z" in meters:
                mu_z, sigma_z = metrics.normaliser(meters)
                self.state.merge_state_dict({"mu_z": mu_z, "sigma_z": sigma_z})
        self._measured = True

    def eval_lm_dataloader(self, dataset: Any, **kwargs: Any) -> Any:
        """Called by fairseq-eval-lm alone, with the models loaded: the place to make them score.

        Not in :meth:`build_model`, whose models fairseq-validate and fairseq-generate use too.
        """
        self._set_matmul_precision()
        if self._carried is not None:
            kwargs = streams.eval_lm_options(**kwargs)
        if self.args.unnormalized:
            state = self.state.state_dict
            eval_lm.score_unnormalized(self._models, state, self.args.log_z_shift)
        else:
            if self.args.log_z_shift != "checkpoint":
                logger.warning("--log-z-shift: not used without --unnormalized")
            eval_lm.score_exactly(self._models, self._own_states)
        dataset = eval_lm.in_blocks(self, dataset, self._own_states, **kwargs)
        return super().eval_lm_dataloader(dataset, **kwargs)

    def _set_matmul_precision(self) -> None:
        """Not where the task is made: who loads a checkpoint wants his own precision."""
        if self.args.matmul_precision is not None:
            torch.set_float32_matmul_precision(str(self.args.matmul_precision))


def _goes_on_in_bands(options: Any) -> bool:
    """Whether one of our criteria trains on what has an adaptive softmax, maybe read as bands.

    Args:
        options: of the model; in a Namespace, with all others.
    """
    criterion = CRITERION_REGISTRY.get(getattr(options, "criterion", None), object)
    if not issubclass(criterion, SelfNormalizingCriterion):
        return False
    choice: Any = [getattr(options, name, None) for name in origin.CheckpointChoice._fields]
    return origin.has_adaptive_softmax(origin.CheckpointChoice(*choice))


def _check_copies(optimizer: Any, model: nn.Module) -> None:
    """Of parameters that the first batch sets, the optimiser may have none already."""
    is_copied = isinstance(optimizer, FP16Optimizer) and OutputLayer(model).is_started
    required = "--memory-efficient-fp16 or --memory-efficient-bf16"
    require(
        "--fp16, --bf16", f"{required} to start from an adaptive softmax", "none", not is_copied
    )


def _take_registered_place() -> None:
    """Register under the name that fairseq's own task has; register_task() would ignore this."""
    task, config = SelfNormalizedLanguageModelingTask, SelfNormalizedLanguageModelingConfig
    setattr(task, "__dataclass", config)
    TASK_REGISTRY[_NAME] = task
    TASK_DATACLASS_REGISTRY[_NAME] = config
    node = config()
    node._name = _NAME
    ConfigStore.instance().store(name=_NAME, group="task", node=node, provider="fairseq")


_take_registered_place()
restoring.install_safe_loading(SelfNormalizedLanguageModelingTask)
