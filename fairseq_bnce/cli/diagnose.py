"""Measure how well a model normalises itself on a text.

mu_z and sigma_z are the mean and the standard deviation of log Z_c - log Z
over the contexts of the text, in nats. log Z is a constant or, with a reduced
partition function, depends on the context. Unnormalised scores are m - log Z.

Perplexities are exact and unnormalised. Subtract mu_z as well, and the
unnormalised perplexity of this text is the exact one. The entropy is that of
the normalised prediction. The calibration error is the expected one over ten
bins: how far the probability of the likeliest word is from how often this
word comes.

--calibrate writes a checkpoint with the measured mu_z and sigma_z: to FILE, or
beside the checkpoint, with .calibrated before the suffix of its name. With
--reduced-partition, it writes a reduced partition function as well, which
brings the unnormalised scores of any model close to exact ones. The function
has ROWS rows (default: a twentieth of the vocabulary, at most 1,000). It is
fitted to at most 200,000 contexts of the text, from random lines (with
--document, to the first ones).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence

from fairseq_bnce.cli import common
from fairseq_bnce.errors import InputError, at_least
from fairseq_bnce.text.reading import TextLines, file_errors, sampled
from fairseq_bnce.text.writing import Output, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairseq_bnce.scoring import Scorer
    from fairseq_bnce.scoring.diagnosis import Context, Diagnosis, Measures

logger = logging.getLogger(__name__)
_BINS = 80  # bins of a picture's histogram
_SHOWN = (
    ("contexts", "contexts", ",d"),
    ("mu_z (nats)", "mu_z", ".4f"),
    ("sigma_z (nats)", "sigma_z", ".4f"),
    ("lowest log Z_c - log Z", "lowest", ".3f"),
    ("highest log Z_c - log Z", "highest", ".3f"),
    ("perplexity, exact", "ppl", ".5g"),
    ("perplexity, unnormalised", "u_ppl", ".5g"),
    ("entropy (nats)", "entropy", ".3f"),
    ("correlation of entropy and log Z_c", "entropy_correlation", ".3f"),
    ("likeliest word came", "accuracy", ".2%"),
    ("calibration error, exact", "calibration_error", ".4f"),
    ("calibration error, shifted", "u_calibration_error", ".4f"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``fairseq-bnce diagnose``."""
    common.add_model_flags(parser, has_exact=False)
    common.add_text_flags(parser.add_argument_group("words"))
    common.add_files(parser)
    add = common.flag_adder(parser)
    add("--document", "score each line after all lines before, as far as the model sees")
    text = "number of contexts farthest from mu_z to print (default: 10)"
    add("--worst", text, metavar="N", type=at_least(0), default=10)
    add("--json", "print the numbers and contexts as one JSON object")
    text = "write diagnosis.json and pictures (PNG) to this folder"
    add("--out", text, metavar="FOLDER", type=Path)
    text = "write a calibrated checkpoint; 'reduced-partition' (or 'offset') instead of FILE also "
    add("--calibrate", text + "sets that flag", metavar="FILE", nargs="?", const=True)
    text = "fit a reduced partition function, which --calibrate writes"
    rows: Dict[str, Any] = {"metavar": "ROWS", "type": at_least(1), "nargs": "?"}
    parser.add_argument("--reduced-partition", "--offset", help=text, const=0, **rows)
    add("--overwrite", "let --calibrate replace an existing checkpoint, such as that of --path")


def run(options: argparse.Namespace) -> None:
    """Diagnose the text."""
    from fairseq_bnce.checkpoints.dictionaries import KeptDictionary
    from fairseq_bnce.scoring import Scorer, diagnosis, reduction
    from fairseq_bnce.state import ScoringState

    if options.calibrate in ("reduced-partition", "offset"):
        options.calibrate, options.reduced_partition = True, options.reduced_partition or 0
    calibrated = _calibrated_path(options)
    if options.out:
        _prepare_folder(options.out, options)
    with file_errors(f"--path {options.path}"):
        written = os.path.getmtime(options.path)
    scorer = common.load_scorer(Scorer, options, exact=True)
    rows = options.reduced_partition
    kept = None if rows is None else reduction.Contexts()
    found = diagnosis.Diagnosis(options.worst, kept=kept)
    _fill(found, scorer, options)
    numbers: Dict[str, Any] = {"log_z": scorer.log_z, **diagnosis.summary(found.measures)}
    if not scorer.is_self_normalised:
        del numbers["u_ppl"]  # no log Z makes probabilities of its scores
    state, measured = ScoringState(), numbers
    if kept is not None:
        try:
            reduced, measured = diagnosis.fit_offset(scorer, kept, rows)
        except ValueError as error:
            raise InputError(f"--reduced-partition: {error}") from None
        numbers["offset"], state.reduced_partition = measured, reduced._asdict()
    state.mu_z, state.sigma_z = measured["mu_z"], measured["sigma_z"]
    contexts = found.farthest()
    with Output() as out:
        out.write((_as_json if options.json else _as_text)(numbers, contexts))
    if options.out:
        _write_folder(options.out, found, _as_json(numbers, contexts))
    if calibrated is not None:
        dictionary = KeptDictionary(None, scorer.dictionary)
        _calibrate(options.path, calibrated, {**state.entries, **dictionary.state.entries}, written)
        dictionary.keep(str(calibrated.parent))
        logger.warning(f"{calibrated}: written, mu_z {state.mu_z:.4f}, sigma_z {state.sigma_z:.4f}")


def _fill(found: Diagnosis, scorer: Scorer, options: argparse.Namespace) -> None:
    words, text = common.model_words(options, scorer), TextLines(options.files)
    kept = found.kept
    lines: Iterable[str] = text if kept is None or options.document else sampled(text, kept.most)
    windows = words.counting(found.fill(scorer, map(words, lines), document=options.document))
    for _ in common.shown(windows, options, text=text):
        pass
    if not found.lines:
        raise InputError("text: required at least one line, got none")


# ---------------------------------------------------------------- the folder of --out


def _prepare_folder(folder: Path, options: argparse.Namespace) -> None:
    """Check before the work that the folder can be written and that no input is replaced."""
    inputs = [*options.files, *common.model_files(options.path, options.data)]
    common.check_outputs({"--out": str(folder / "diagnosis.json")}, inputs)
    import matplotlib  # noqa: F401

    with file_errors(f"--out {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def _write_folder(folder: Path, found: Diagnosis, text: str) -> None:
    """Write diagnosis.json and pictures; only these need matplotlib."""
    from matplotlib.figure import Figure  # without a display and pyplot's global state

    with Output(str(folder / "diagnosis.json")) as out:
        out.write(text)
    pictures = {"log-z.png": _histogram, "entropy.png": _entropy, "calibration.png": _calibration}
    for name, draw in pictures.items():
        figure = Figure(figsize=(5.5, 4))
        draw(figure.add_subplot(), found.measures)
        figure.tight_layout()
        with file_errors(str(folder)), replacing(folder / name) as unfinished:
            figure.savefig(unfinished, dpi=120)


def _histogram(axes: Axes, measures: Measures) -> None:
    mean, deviation = measures.deviations.mean(), measures.deviations.std()
    axes.hist(measures.deviations, bins=_BINS)
    axes.axvline(mean, color="black", linewidth=1)
    axes.set(xlabel="log Z_c − log Z (nats)", ylabel="contexts")
    axes.set_title(f"µ_z = {mean:.3f}, σ_z = {deviation:.3f}")


def _entropy(axes: Axes, measures: Measures) -> None:
    from matplotlib.colors import LogNorm

    axes.hist2d(measures.entropies, measures.deviations, bins=_BINS, norm=LogNorm())
    axes.set(xlabel="entropy of the prediction (nats)", ylabel="log Z_c − log Z (nats)")


def _calibration(axes: Axes, measures: Measures) -> None:
    from fairseq_bnce.scoring import diagnosis

    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    shift = measures.deviations.mean()
    for label, off in (("exact", None), ("unnormalised, shifted", shift)):
        _, confidence, accuracy = diagnosis.calibration(measures, off).T
        axes.plot(confidence, accuracy, marker="o", label=label)
    axes.set(xlabel="probability of the likeliest word", ylabel="how often it came")
    axes.legend()


# ---------------------------------------------------------------- the checkpoint of --calibrate


def _calibrated_path(options: argparse.Namespace) -> Optional[Path]:
    """Return the checkpoint to write, checked before the work; None without --calibrate."""
    if options.calibrate is None:
        return None
    own, suffix = os.path.splitext(options.path)
    path = Path(f"{own}.calibrated{suffix}" if options.calibrate is True else options.calibrate)
    # A text after --calibrate would be taken for the new checkpoint's name, and replaced.
    is_free = zipfile.is_zipfile(path) and options.overwrite if path.exists() else True
    if not (is_free and path.parent.is_dir()):
        required = "a new file in a folder, or a checkpoint with --overwrite"
        raise InputError(f"--calibrate {path}: required {required}")
    return path


def _calibrate(path: str, calibrated: Path, measured: Mapping[str, object], written: float) -> None:
    """Write the checkpoint ``path`` with ``measured`` in its task's state as ``calibrated``.

    Raises:
        InputError: if ``calibrated`` cannot be written, or a training has replaced ``path``, which
            was written at the time ``written``.
    """
    import torch

    from fairseq_bnce import checkpoints

    content = checkpoints.read(path)
    if os.path.getmtime(path) != written:
        raise InputError(f"--calibrate: required the diagnosed checkpoint, got a newer {path}")
    content["task_state"] = {**(content.get("task_state") or {}), **measured}
    try:
        with replacing(calibrated) as unfinished:
            torch.save(content, unfinished)
    except (OSError, RuntimeError) as error:  # torch's own writer raises the latter
        raise InputError(f"{calibrated}: required room to write, got: {error}") from None


# ---------------------------------------------------------------- what is printed


def _as_text(numbers: Dict[str, Any], contexts: Sequence[Context]) -> str:
    lines = _table(numbers)
    if contexts:
        lines += ["", "farthest from mu_z:", "log Z_c - log Z\tentropy\tcontext [next word]"]
    for context in contexts:
        words = f"{context.before} [{context.word}]".lstrip()
        lines.append(f"{context.deviation:.3f}\t{context.entropy:.3f}\t{words}")
    if "offset" in numbers:
        after = numbers["offset"]
        title = (
            f"after, with a reduced partition function of {after['rows']:,} rows, fitted to "
            f"{after['fitted_on']:,} contexts and measured on {after['measured_on']:,} others:"
        )
        lines = ["before:", *lines, "", title, *_table(after)]
    return "\n".join(lines)


def _table(numbers: Mapping[str, object]) -> List[str]:
    width = max(len(title) for title, *_ in _SHOWN)
    shown = [one for one in _SHOWN if one[1] in numbers]
    return [f"{title:{width}}  {numbers[name]:{form}}" for title, name, form in shown]


def _as_json(numbers: Mapping[str, object], contexts: Sequence[Context]) -> str:
    found = {**common.without_nan(numbers), "farthest": [one._asdict() for one in contexts]}
    return json.dumps(found, indent=1, ensure_ascii=False)
