"""Every language model that fairseq registers, trained with noise and scored."""

import itertools
import math

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_INV_REGISTRY, MODEL_REGISTRY, FairseqLanguageModel
from fairseq.trainer import Trainer
from tools import PLUGIN, slow

from fairseq_bnce import Scorer

pytestmark = pytest.mark.usefixtures("empty_folder")

# docs/training.md has the reasons.
LEFT_OUT = {"dummy_model", "hf_gpt2", "model_parallel_transformer_lm", "speech_dlm"}
LEFT_OUT |= {"transformer_ulm"}
CUTOFFS = "12,30"
SIZES = {
    **{f"decoder_{part}_dim": 16 for part in ("embed", "input", "output", "conv", "hidden")},
    **{"decoder_out_embed_dim": 16, "decoder_ffn_embed_dim": 16, "decoder_attention_heads": 2},
    **{"adaptive_input_factor": 2, "adaptive_softmax_factor": 2, "decoder_hidden_size": 16},
}


def architectures():
    for name, model in sorted(MODEL_REGISTRY.items()):
        is_fairseqs = model.__module__.startswith("fairseq.")  # ours are in other tests
        if issubclass(model, FairseqLanguageModel) and is_fairseqs and name not in LEFT_OUT:
            yield from ARCH_MODEL_INV_REGISTRY[name]


ALL = list(architectures())
# Sizes of one and the same model, which the test cuts.
SAME = [name for name in ALL if "_gpt" in name and name != "transformer_lm_gpt2_tiny"]
USUAL = [name for name in ALL if name not in SAME]


def configuration(corpus, architecture, *flags):
    """That of fairseq-train, with the architecture's own defaults but for sizes."""
    arguments = [str(corpus), "--user-dir", PLUGIN, "--task", "language_modeling", "--cpu"]
    arguments += ["--arch", architecture, "--criterion", "bnce", "--tokens-per-sample", "16"]
    arguments += ["--batch-size", "4", "--num-workers", "0", "--lr", "0.01", *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    small(args)
    cfg = convert_namespace_to_omegaconf(args)
    small(cfg.model)
    return cfg


def small(model):
    """Cut what is large, in place."""
    for name, size in SIZES.items():
        if isinstance(getattr(model, name, None), int):
            setattr(model, name, size)
    for name in ("adaptive_input_cutoff", "adaptive_softmax_cutoff"):
        if getattr(model, name, None) is not None:
            setattr(model, name, CUTOFFS)
    layers = getattr(model, "decoder_layers", None)
    if isinstance(layers, int):
        model.decoder_layers = 2
    elif layers is not None:  # of a convolutional one
        model.decoder_layers = "[(16, 3)] * 2"
    kernels = getattr(model, "decoder_kernel_size_list", None)
    if kernels is not None:
        model.decoder_kernel_size_list = [3, 3]


# Row-sparse gradients in every other, and in each of the slow variants.
TRAINED = [*zip(USUAL, itertools.cycle(["", "--row-sparse"]))]
TRAINED += slow(*((name, "--row-sparse") for name in SAME))


@pytest.mark.parametrize("architecture, flags", TRAINED)
def test_trains_and_scores(architecture, flags, corpus):
    optimizer = "lazy_adam" if flags else "adam"
    cfg = configuration(corpus, architecture, "--optimizer", optimizer, *flags.split())
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    assert sum(p.numel() for p in model.parameters()) < 200_000
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    batches = trainer.get_train_iterator(1).next_epoch_itr(shuffle=False)
    for number, sample in enumerate(itertools.islice(batches, 2)):
        trainer.set_num_updates(number)
        trainer.train_step([sample])
    moved = [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]
    assert len(moved) > 0.6 * len(before)
    trainer.consolidate_optimizer()
    trainer.save_checkpoint("checkpoint_last.pt", {"train_iterator": {"epoch": 1}})
    for exact in (True, False):
        scorer = Scorer.from_checkpoint("checkpoint_last.pt", str(corpus), exact=exact)
        assert math.isfinite(scorer.score(["w1 w20 w59"])[0])
