"""A criterion with a seed, trained and measured: the runs of compare.py and recipe.py."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from rendering.cells import SOFTMAX

from . import machine, processes
from .recipes import ADAPTIVE, Variant, criterion_flags, inherited
from .run import Measured, Outcome, Part, Run, device_flags, prepare

# fairseq's own criteria train no constant: their models are only scored exactly.
NORMALISED = (SOFTMAX, ADAPTIVE)


def split(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Split a command line at a lone ``--``: our own flags, and those of fairseq-train."""
    arguments = [*arguments, *["--"] * ("--" not in arguments)]
    here = arguments.index("--")
    return arguments[:here], arguments[here + 1 :]


def add_questions(parser: argparse.ArgumentParser) -> None:
    """Add ``--questions`` and ``--answers``."""
    add = parser.add_argument
    add("--questions", type=Path, metavar="CSV", help="of sentence completion: measure accuracy")
    add("--answers", type=Path, metavar="CSV", help="the right answers")


def settings(options: argparse.Namespace, **others: Any) -> argparse.Namespace:
    """Return the settings of all trainings: see Training."""
    asked = [path.resolve(strict=True) for path in (options.questions, options.answers) if path]
    own = {"data": options.data.resolve(), "fingerprint": machine.data_fingerprint(options.data)}
    return prepare(options, asked=asked, **own, **others)


class Training(Run):
    """Training, scores, the parts of an update, sentence completion.

    Args:
        settings: those of run.prepare, and ``data`` (the binarised folder) with its
            ``fingerprint``, ``recipe``, ``training`` (further flags of fairseq-train),
            ``profile_batches`` (0 for no profile), ``asked`` (questions and answers of sentence
            completion, or none) and ``only_train``.
    """

    def __init__(self, settings: Any, variant: Variant, seed: int):
        recipe, criterion = settings.recipe, variant.criterion
        vocab = machine.vocabulary_size(settings.data) if criterion == ADAPTIVE else 0
        flags = [*recipe.training, *device_flags(settings.device)]
        flags += [*criterion_flags(criterion, vocab), *settings.training, *variant.flags]
        self.flags = ["--task", "language_modeling", "--criterion", criterion, *flags]
        self.flags += ["--seed", str(seed)]
        own = [settings.fingerprint, settings.threads, settings.device_name, machine.versions()]
        name = f"{variant.label}-seed{seed}"
        super().__init__(settings, variant, seed, name, [self.flags, *own])
        self.checkpoint = self.folder / "checkpoints" / "checkpoint_best.pt"
        self._places = [settings.data, "--user-dir", machine.PLUGIN]

    def parts(self) -> List[Part]:
        """Return the parts that the settings ask for."""
        settings = self.settings
        found: List[Part] = [("train", self._train)]
        if not settings.only_train:
            found.append(("score", self._score))
            found += [("profile", self._profile)] if settings.profile_batches else []
            if len(settings.asked) == 2 and self.system.criterion != ADAPTIVE:
                found.append(("complete", self._complete))
        return found

    def outcome(self, parts: Dict[str, Any], error: Optional[str] = None) -> Outcome:
        """Return an outcome whose parts are values, none after an error."""
        values = {} if error else {name: part["value"] for name, part in parts.items()}
        if values:
            about = {name: parts["train"][name] for name in ("plugin", "hardware", "date")}
            values["train"] = {**about, **values["train"]}
            values = {**values, **values.get("score", {}), "versions": parts["train"]["versions"]}
        return super().outcome(values, error)

    def _train(self) -> Measured:
        saved = self.checkpoint.parent
        shutil.rmtree(str(saved), ignore_errors=True)  # of an interrupted training
        flags = [*self.flags, "--log-format", "json", "--save-dir", saved]
        training, ended = self.training(*self._places, *flags)
        last = training.curve[-1] if training.curve else {}
        return {
            "words_per_second": training.words_per_second(),
            **{name: last.get(name) for name in ("seconds", "processor_seconds", "words")},
            "updates": last.get("update"),
            "parameters": training.parameters,
            "peak_bytes": ended.peak_bytes,
            "curve": training.curve,
        }, ended

    def _score(self) -> Measured:
        """Measure the normaliser, and score each split with fairseq-eval-lm."""
        settings = self.settings
        flags = ["--path", self.checkpoint, "--no-progress-bar", "--num-workers", "0"]
        flags += [*device_flags(settings.device), *inherited(self.flags), *settings.recipe.scoring]
        is_normalised, arguments = self.system.criterion in NORMALISED, [*self._places, *flags]
        return self.measure("models.score", arguments=arguments, exact_only=is_normalised)

    def _profile(self) -> Measured:
        """Time the parts of an update; the criterion's are features and output layer."""
        flags, updates = [*self._places, *self.flags, "--no-save"], self.settings.profile_batches
        found, ended = self.measure("updates.update", flags=flags, updates=updates)
        ms = found["milliseconds"]
        return {**ms, "criterion": ms["features"] + ms["layer"]}, ended

    def _complete(self) -> Measured:
        found, (questions, answers) = self.folder / "complete.json", self.settings.asked
        command = [sys.executable, "-m", "fairseq_bnce.cli", "complete", "--json"]
        command += ["--path", self.checkpoint, "--data", self.settings.data]
        command += ["--device", self.settings.device, "--answers", answers, questions]
        log = self.folder / "complete.log"
        ended = processes.run(command, log, self.settings.threads, printed=found)
        shares = json.loads(found.read_text(encoding="utf-8"))
        names = {"accuracy": "exact", "u_accuracy": "unnormalized", "choices_that_differ": "differ"}
        return {name: 100 * shares[key]["share"] for name, key in names.items()}, ended
