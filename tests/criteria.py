"""The criteria, as flags of fairseq-train, and batches for them that are made by hand."""

from tools import LSTM, build, first_batch

from fairseq_bnce.criterions.base import TokenBatch

PAD = 1
FLAGS = {
    "bnce": [],
    "bnce with draws": ["--noise-samples", "6", "--noise", "uniform"],
    "bnce by time step": ["--bnce-group", "time"],
    "bnce by groups": ["--bnce-group", "5"],
    "bnce ranking": ["--objective", "ranking", "--noise-samples", "3"],
    "bnce learned": ["--learn-log-z"],
    "shared_nce": ["--noise-samples", "9", "--noise-power", "0.75"],
    "sampled_bce": ["--noise-samples", "9", "--learn-log-z"],
    "sampled_bce is": ["--noise-samples", "9", "--estimator", "is", "--noise-power", "0.5"],
    "sampled_bce cps": ["--noise-samples", "9", "--estimator", "cps"],
    "nce": ["--noise-samples", "4", "--learn-log-z"],
    "sampled_softmax": ["--noise-samples", "9", "--noise", "log-uniform"],
    "self_norm_softmax": ["--score-squashing"],
    "self_norm_softmax sampled": ["--self-norm-rate", "0.4"],
    "nce_regularized": ["--nce-base", "nce", "--noise-samples", "4", "--self-norm-rate", "0.3"],
}


def make(corpus, name, *architecture):
    """(criterion, model in training mode, batch)"""
    criterion = name.split()[0]
    flags = [*(architecture or LSTM), "--criterion", criterion, *FLAGS.get(name, [])]
    cfg, task, model = build(corpus, *flags)
    return task.build_criterion(cfg.criterion), model.train(), first_batch(task)


def prepared(criterion, model, sample):
    """The tokens of a batch as a training step has them, with words and features."""
    return TokenBatch.from_sample(model, sample, PAD, criterion.make_words)


def set_log_z(criterion, value):
    criterion.start_at(value, "")


def with_targets(sample, keep):
    """The sample with all targets but the first ``keep`` made padding."""
    target = sample["target"].clone()
    words = target.ne(PAD).nonzero()[keep:]
    target[words[:, 0], words[:, 1]] = PAD
    return {**sample, "target": target, "ntokens": keep}
