"""How well a model normalises itself: log Z_c over the contexts of a text, against all else.

mu_z and sigma_z are mean and standard deviation of log Z_c - log Z in nats; log Z, a constant or
a reduced partition function of the context, is subtracted from unnormalised scores. Perplexities
are exact, and of the unnormalised scores m - log Z; with mu_z subtracted as well, that of the text
itself is the exact one. Entropies are those of the normalised prediction. Calibration error is the
expected one over ten bins: how far the probability of the likeliest word is from how often it
comes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import torch

from fairseq_bnce import checkpoints
from fairseq_bnce.checkpoints.dictionaries import KeptDictionary
from fairseq_bnce.cli.common import (
    add_files,
    add_model_options,
    load_scorer,
    model_files,
    note,
    note_bad_lines,
    progress_bar,
    refuse_overwriting,
    without_nan,
)
from fairseq_bnce.cli.words import ModelWords, add_text_options, check_text_options
from fairseq_bnce.errors import InputError
from fairseq_bnce.scoring import pictures
from fairseq_bnce.scoring.diagnosis import (
    Context,
    DiagnosingScorer,
    Diagnosis,
    Measures,
    fit_offset,
    summary,
)
from fairseq_bnce.scoring.reduction import MOST_CONTEXTS, MOST_ROWS, Contexts
from fairseq_bnce.text.numerals import at_least
from fairseq_bnce.text.reading import TextLines, sampled
from fairseq_bnce.text.writing import Output, write_errors

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
    """The options of ``fairseq-bnce diagnose``."""
    add_model_options(parser, ways=False)
    add_text_options(parser)
    add = parser.add_argument
    add_files(parser)
    add("--document", action="store_true", help="the lines are one running text")
    add("--worst", type=at_least(0), default=10, metavar="N", help="contexts shown (default: 10)")
    add("--json", action="store_true", help="the numbers and contexts as one JSON object")
    add("--out", metavar="FOLDER", help="diagnosis.json and pictures (PNG) go there")
    add(
        "--calibrate",
        nargs="?",
        const=True,
        metavar="FILE",
        help="write a checkpoint whose mu_z and sigma_z are those measured here: to FILE, or "
        "beside the checkpoint, with .calibrated before its ending; 'reduced-partition' (or "
        "'offset') is --reduced-partition, too",
    )
    add(
        "--reduced-partition",
        "--offset",
        type=_rows,
        nargs="?",
        const=0,
        metavar="ROWS",
        help="fit a reduced partition function of ROWS rows (default: a fiftieth of the "
        "vocabulary, 1,000 at most) for --calibrate to write: with it any model's unnormalised "
        f"scores are close to exact ones. The text is then {MOST_CONTEXTS:,} contexts of lines "
        "drawn from all of it (with --document the first ones)",
    )
    add(
        "--overwrite",
        action="store_true",
        help="--calibrate may write over a file that is there, also over the checkpoint itself",
    )


def run(options: argparse.Namespace) -> int:
    """Diagnose the text."""
    if options.calibrate in ("reduced-partition", "offset"):
        options.calibrate, options.reduced_partition = True, options.reduced_partition or 0
    check_text_options(options)
    calibrated = _calibrated_path(options)
    folder = Path(options.out) if options.out else None
    _check_outputs(options, folder)
    loaded = _version(options.path)
    scorer = load_scorer(DiagnosingScorer, options, exact=True)
    rows = options.reduced_partition
    kept = scorer.contexts = None if rows is None else Contexts()
    words = ModelWords(options, scorer)
    found = _diagnosed(scorer, words, options)
    measures, contexts = found.measures, found.farthest()
    numbers: Dict[str, Any] = {"log_z": scorer.log_z, **summary(measures)}
    state = {name: numbers[name] for name in ("mu_z", "sigma_z")}
    if kept is not None:
        numbers["offset"], state = _reduced_partition(scorer, kept, rows)
    _print(_as_json(numbers, contexts) if options.json else _as_text(numbers, contexts))
    if folder is not None:
        with Output(str(folder / "diagnosis.json")) as out:
            out.write(_as_json(numbers, contexts))
        _draw(measures, folder)
    words.end()
    if calibrated is not None:
        dictionary = KeptDictionary(None, scorer.dictionary)
        calibrate(options.path, calibrated, {**state, **dictionary.state()}, loaded)
        dictionary.keep(str(calibrated.parent))
        note(f"{calibrated}: written, mu_z {state['mu_z']:.4f}, sigma_z {state['sigma_z']:.4f}")
    elif kept is not None:
        note(
            "the reduced partition function is written nowhere: --calibrate [FILE] puts it into a "
            "checkpoint"
        )
    return 0


def _check_outputs(options: argparse.Namespace, folder: Optional[Path]) -> None:
    """Check before the work that --out can be written and replaces no input."""
    if folder is None:
        return
    read = [("FILE", name) for name in options.files] + model_files(options.path, options.data)
    refuse_overwriting({"--out": str(folder / "diagnosis.json")}, read)
    importlib.import_module("matplotlib")
    with write_errors(f"--out {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def _rows(text: str) -> int:
    """Return the rows of a reduced partition function: a type for argparse."""
    if not 1 <= int(text) <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"required 1 to {MOST_ROWS:,}, got {text}")
    return int(text)


def _reduced_partition(
    scorer: DiagnosingScorer, contexts: Contexts, rows: int
) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Fit a reduced partition function; return its figures, and a checkpoint's state of it."""
    try:
        reduced, measured = fit_offset(scorer, contexts, rows)
    except ValueError as error:
        raise InputError(f"--reduced-partition: {error}") from None
    state = {name: measured[name] for name in ("mu_z", "sigma_z")}
    return measured, {**state, **reduced.state()}


def calibrate(
    path: str, calibrated: Path, measured: Mapping[str, Any], version: Optional[Tuple[int, ...]]
) -> None:
    """Write a checkpoint with the measured state, beside its name first, and rename it.

    Args:
        path: the checkpoint that was diagnosed.
        calibrated: the checkpoint to write; may be the same.
        measured: added to the task's state: mu_z and sigma_z, nats, and possibly a reduced
            partition function.
        version: of the file ``path`` when it was diagnosed.

    Raises:
        InputError: if ``calibrated`` cannot be written, or a training has replaced ``path`` since.
    """
    content = checkpoints.read(path)
    if _version(path) != version:
        raise InputError(
            f"--calibrate: required the checkpoint that was diagnosed, got {path} as it was "
            "written since"
        )
    state = dict(content.get("task_state") or {})
    content["task_state"] = {**state, **measured}
    unfinished = calibrated.with_name(calibrated.name + ".tmp")
    try:
        torch.save(content, unfinished)
        os.replace(unfinished, calibrated)
    except (OSError, RuntimeError) as error:  # torch's own writer raises the latter
        raise InputError(f"{calibrated}: required room to write, got: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def _version(path: str) -> Optional[Tuple[int, ...]]:
    """Return numbers that change when a file is written; None if there is no file."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_ino, found.st_size, found.st_mtime_ns
    return None


def _print(text: str) -> None:
    out = Output(None)
    out.write(text)
    out.flush()


def _draw(measures: Measures, folder: Path) -> None:
    """Draw the pictures beside their names first, and rename them."""
    with write_errors(str(folder)), tempfile.TemporaryDirectory(dir=str(folder)) as unfinished:
        for picture in pictures.draw(measures, Path(unfinished)):
            os.replace(picture, folder / picture.name)


def _diagnosed(
    scorer: DiagnosingScorer, words: ModelWords, options: argparse.Namespace
) -> Diagnosis:
    text, kept = TextLines(options.files), scorer.contexts
    lines: Iterable[str] = text
    if kept is not None and not options.document:
        lines = sampled(text, kept.most)
    found = Diagnosis(options.worst)
    with _progress(text, kept) as bar:
        counted = (0, 0)
        for _ in found.fill(scorer, map(words, lines), document=options.document):
            counts = (found.count - found.lines, found.oov)
            words.count(counts[0] - counted[0], counts[1] - counted[1])
            counted = counts
            bar.update((text.read_bytes if kept is None else kept.count) - bar.n)
            if kept is not None and kept.is_full:
                break
    note_bad_lines(text)
    if not found.count:
        raise InputError("text: required at least one line, got none")
    return found


def _progress(text: TextLines, kept: Optional[Contexts]) -> Any:
    if kept is not None:
        return progress_bar(total=kept.most, unit=" contexts")
    return progress_bar(total=text.total_bytes, unit="B", unit_scale=True)


def _calibrated_path(options: argparse.Namespace) -> Optional[Path]:
    """Return the checkpoint to write, checked before the work; None without --calibrate."""
    if options.calibrate is None:
        return None
    own, suffix = os.path.splitext(options.path)
    path = Path(f"{own}.calibrated{suffix}" if options.calibrate is True else options.calibrate)
    if path.exists() and not _is_checkpoint(path):
        raise InputError(
            f"--calibrate {path}: required the name of a checkpoint to write, got another file; a "
            "text goes before --calibrate"
        )
    if path.exists() and not options.overwrite:
        raise InputError(f"--calibrate {path}: required a new file or --overwrite, got an old file")
    if not path.parent.is_dir():
        raise InputError(f"--calibrate {path}: required a folder that exists, got none")
    return path


def _is_checkpoint(path: Path) -> bool:
    """Judge by the first bytes: torch writes zip archives, and earlier wrote pickles."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2).startswith((b"PK", b"\x80"))


def _as_text(numbers: Dict[str, Any], contexts: Sequence[Context]) -> str:
    width = max(len(title) for title, *_ in _SHOWN)
    lines = [f"{title:{width}}  {numbers[name]:{form}}" for title, name, form in _SHOWN]
    if "offset" in numbers:
        lines.insert(0, "before, the checkpoint as it is:")
        lines += ["", *_reduced_lines(numbers["offset"], width)]
    if contexts:
        lines += ["", "farthest from mu_z:", "log Z_c - log Z\tentropy\tcontext [next word]"]
        lines += [_context_line(context) for context in contexts]
    return "\n".join(lines)


def _reduced_lines(reduced: Dict[str, Any], width: int) -> List[str]:
    title = (
        f"after, by a reduced partition function of {reduced['rows']:,} rows, fitted to "
        f"{reduced['fitted_on']:,} contexts and measured on the {reduced['measured_on']:,} others:"
    )
    names = ("mu_z", "sigma_z", "lowest", "highest")
    shown = [(title, name, form) for title, name, form in _SHOWN if name in names]
    return [title, *(f"{title:{width}}  {reduced[name]:{form}}" for title, name, form in shown)]


def _context_line(context: Context) -> str:
    words = f"{context.before} [{context.word}]".lstrip()
    return f"{context.deviation:.3f}\t{context.entropy:.3f}\t{words}"


def _as_json(numbers: Dict[str, Any], contexts: Sequence[Context]) -> str:
    worst: List[Dict[str, Any]] = [context._asdict() for context in contexts]
    return json.dumps({**without_nan(numbers), "farthest": worst}, indent=1, ensure_ascii=False)
