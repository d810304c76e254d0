"""One criterion with one seed: trained, scored and profiled; what compare.py and recipe.py run."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from . import logs, machine, processes
from .recipes import ADAPTIVE, NORMALISED, Recipe, Variant, criterion_flags, inherited
from .run import TRAIN, Outcome, Part, Run, Say, device_flags

Measured = Tuple[Dict[str, Any], processes.Ended]


@dataclass(frozen=True)
class Settings:
    """What all runs of a comparison share.

    Attributes:
        data: the binarised folder; ``fingerprint`` is its content's.
        out: the folder that everything is written to.
        plugin: for ``--user-dir``.
        recipe: the flags of all.
        training, scoring: further flags of fairseq-train and fairseq-eval-lm.
        threads: OMP_NUM_THREADS.
        device: cpu or cuda, and ``device_name``.
        profile_batches: training batches of the profile; 0 for no profile.
        questions: tables of sentence completion, questions and answers; None for none.
        is_scored: whether a trained model is measured, or its log alone read.
    """

    data: Path
    fingerprint: str
    out: Path
    plugin: Path
    recipe: Recipe
    training: Tuple[str, ...] = ()
    scoring: Tuple[str, ...] = ()
    threads: int = 1
    device: str = "cpu"
    device_name: str = ""
    profile_batches: int = 50
    questions: Optional[Tuple[Path, Path]] = None
    is_scored: bool = True


class Training(Run):
    """A run of stages, each of which needs those before."""

    ends_at_first_error = True

    def __init__(self, settings: Settings, variant: Variant, seed: int):
        common = [*settings.recipe.training, *device_flags(settings.device)]
        own = self._own_flags(settings, variant)
        flags = [*common, *own, *settings.training, *variant.flags]
        self.flags = ["--criterion", variant.criterion, *flags, "--seed", str(seed)]
        self.versions = machine.versions()
        identity = {
            "flags": self.flags,
            "data": settings.fingerprint,
            "threads": settings.threads,
            "versions": self.versions,
        }
        if settings.device != "cpu":
            identity["device"] = settings.device_name
        super().__init__(settings, variant, seed, f"{variant.label}-seed{seed}", identity)
        self.checkpoint = self.folder / "checkpoints" / "checkpoint_best.pt"
        self._log = self.folder / "train.log"

    @property
    def name(self) -> str:
        return f"{self.system.label} seed {self.case}"

    def parts(self) -> List[Part]:
        """A changed plugin measures again, which is cheap; not trains again, which is dear."""
        plugin = machine.plugin_fingerprint(self.settings.plugin)
        batches = self.settings.profile_batches
        found: List[Part] = [("train", self.identity, self._train)]
        if self.settings.is_scored:
            found.append(("score", [plugin, *self._ways(), *self._scoring_flags()], self._score))
            if batches and self.system.criterion != ADAPTIVE:  # no features of a plain projection
                found.append(("profile", [plugin, batches], self._profile))
            if self.settings.questions:
                asked = machine.fingerprint(self.settings.questions)
                found.append(("complete", [plugin, asked], self._complete))
        return found

    def complete(self, say: Say = print) -> Outcome:
        """The stages that are not done yet; an outcome without an error has the values of all."""
        outcome = super().complete(say)
        return replace(outcome, parts={} if outcome.errors else self._stages(outcome.parts))

    def finished(self) -> Optional[Outcome]:
        """What an earlier call left, None unless it came to the end; does no work.

        Not what was measured otherwise (scoring flags, questions) than this call would; but what it
        would not measure at all, and what another plugin measured. Nor where the log is gone.
        """
        keys = {name: key for name, key, _ in self.parts()}
        kept = {
            name: stored
            for name, stored in self._stored.items()
            if name not in keys or _is_same(name, stored.get("key"), keys[name])
        }
        if not {"train", "score"} <= set(kept):
            return None
        try:
            stages = {name: self.read(name, stored) for name, stored in kept.items()}
        except (OSError, logs.UnreadableLog):
            return None
        return Outcome(self.system, self.case, self._place, self._stages(stages))

    def read(self, name: str, stored: Dict[str, Any]) -> Dict[str, Any]:
        """The value; of a training, what its log tells, so that a better reader serves old logs."""
        if name != "train":
            return stored["value"]
        stored = {**stored, **stored["value"]}
        return {**{key: stored[key] for key in ("plugin", "hardware", "date")}, **self._training()}

    def _stages(self, values: Dict[str, Any]) -> Dict[str, Any]:
        rest = {name: value for name, value in values.items() if name != "score"}
        return {**rest, **values.get("score", {}), "versions": self.versions}

    @staticmethod
    def _own_flags(settings: Settings, variant: Variant) -> List[str]:
        criterion = variant.criterion
        vocab = machine.vocabulary_size(settings.data) if criterion == ADAPTIVE else 0
        return criterion_flags(criterion, vocab)

    def _train(self) -> Measured:
        return {}, processes.run(self._train_command(), self._log, self.settings.threads)

    def _training(self) -> Dict[str, Any]:
        """What the log tells; read anew every time, so that a better reader serves old logs."""
        training, ends = logs.read_training(logs.text(self._log)), processes.attempts(self._log)
        curve = training.curve()
        return {
            "words_per_second": training.words_per_second(),
            "seconds": curve[-1]["seconds"] if curve else None,
            "processor_seconds": curve[-1].get("processor_seconds") if curve else None,
            "words": training.words_at(curve[-1]["update"]) if curve else None,
            "updates": curve[-1]["update"] if curve else None,
            "parameters": training.parameters,
            "peak_bytes": max(end.peak_bytes for end in ends),
            "attempts": [asdict(end) for end in ends],
            "curve": curve,
        }

    def _train_command(self) -> List[str]:
        settings = self.settings
        command = [sys.executable, TRAIN, str(settings.data)]
        command += ["--user-dir", str(settings.plugin), "--task", "language_modeling", *self.flags]
        return [*command, "--save-dir", str(self.checkpoint.parent), "--log-format", "json"]

    def _profile(self) -> Measured:
        settings = self.settings
        places = ["--data", settings.data, "--user-dir", settings.plugin]
        batches = ["--batches", settings.profile_batches]
        return self.measure("profile", *places, "--checkpoint", self.checkpoint, *batches)

    def _complete(self) -> Measured:
        questions, answers = self.settings.questions
        places = ["--data", self.settings.data, "--checkpoint", self.checkpoint]
        places += ["--device", self.settings.device]
        return self.measure("complete", *places, "--questions", questions, "--answers", answers)

    def _score(self) -> Measured:
        """The normaliser's spread, and fairseq-eval-lm of each split: three ways, or exact."""
        settings = self.settings
        places = [settings.data, "--user-dir", settings.plugin, "--path", self.checkpoint]
        flags = ["--no-progress-bar", *self._scoring_flags()]
        found, ended = self.measure("score", *self._ways(), *places, *flags)
        score = {
            split: {way: logs.read_scoring(lines) for way, lines in ways.items()}
            for split, ways in found["printed"].items()
        }
        return {"normaliser": found["normaliser"], "score": score}, ended

    def _ways(self) -> List[str]:
        return ["--exact-only"] if self.system.criterion in NORMALISED else []

    def _scoring_flags(self) -> List[str]:
        settings = self.settings
        same = [*device_flags(settings.device), "--num-workers", "0", *inherited(self.flags)]
        return [*same, *settings.recipe.scoring, *settings.scoring]


def _is_same(name: str, key: Any, other: Any) -> bool:
    """Whether parts' keys are, but for the plugin, which begins those of what measures."""
    return key == other if name == "train" else key[1:] == other[1:]
