"""A criterion with a seed, trained, scored and profiled: the runs of compare.py and recipe.py."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import logs, machine, processes
from .recipes import ADAPTIVE, NORMALISED, Variant, criterion_flags, inherited
from .run import TRAIN, Outcome, Part, Run, device_flags

Measured = Tuple[Dict[str, Any], processes.Ended]


class Training(Run):
    """A run of stages; each stage needs those before.

    Args:
        settings: those of run.prepare, and ``data`` (the binarised folder) with its
            ``fingerprint``, ``recipe``, ``training`` and ``scoring`` (further flags of
            fairseq-train and fairseq-eval-lm), ``profile_batches`` (0 for no profile),
            ``questions`` (tables of sentence completion, or None) and ``only_train``.
    """

    ends_at_first_error = True

    def __init__(self, settings: Any, variant: Variant, seed: int):
        recipe, criterion = settings.recipe, variant.criterion
        vocab = machine.vocabulary_size(settings.data) if criterion == ADAPTIVE else 0
        flags = [*recipe.training, *device_flags(settings.device)]
        flags += [*criterion_flags(criterion, vocab), *settings.training, *variant.flags]
        self.flags = ["--criterion", criterion, *flags, "--seed", str(seed)]
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
        self.name = f"{variant.label} seed {seed}"
        self.checkpoint = self.folder / "checkpoints" / "checkpoint_best.pt"
        self._log = self.folder / "train.log"

    def parts(self) -> List[Part]:
        """After a change of the plugin, models are measured again, but not trained again."""
        settings, plugin = self.settings, machine.plugin_fingerprint(self.settings.plugin)
        found: List[Part] = [("train", self.identity, self._train)]
        if settings.only_train:
            return found
        found.append(("score", [plugin, *self._ways(), *self._scoring_flags()], self._score))
        batches = settings.profile_batches
        if batches and self.system.criterion != ADAPTIVE:  # which has no plain projection
            found.append(("profile", [plugin, batches], self._profile))
        if settings.questions:
            asked = machine.fingerprint(settings.questions)
            found.append(("complete", [plugin, asked], self._complete))
        return found

    def complete(self, say: Callable[[str], None] = print) -> Outcome:
        """Do the stages that are not done yet; an outcome without an error has all values."""
        outcome = super().complete(say)
        return replace(outcome, parts={} if outcome.errors else self._stages(outcome.parts))

    def finished(self) -> Optional[Outcome]:
        """Return the outcome of an earlier call, or None unless that trained and scored.

        Stages with other scoring flags or questions are left out. Stages of another plugin, and
        stages that this call would not do, count.
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
        return Outcome(self.system, self.case, self.place, self._stages(stages))

    def read(self, name: str, stored: Dict[str, Any]) -> Dict[str, Any]:
        """Return the value; for a training, read its log again, which serves old runs, too."""
        if name != "train":
            return stored["value"]
        stored = {**stored, **stored["value"]}
        return {**{key: stored[key] for key in ("plugin", "hardware", "date")}, **self._training()}

    def _stages(self, values: Dict[str, Any]) -> Dict[str, Any]:
        rest = {name: value for name, value in values.items() if name != "score"}
        return {**rest, **values.get("score", {}), "versions": self.versions}

    def _train(self) -> Measured:
        settings = self.settings
        command = [sys.executable, TRAIN, str(settings.data)]
        command += ["--user-dir", str(settings.plugin), "--task", "language_modeling", *self.flags]
        command += ["--save-dir", str(self.checkpoint.parent), "--log-format", "json"]
        return {}, processes.run(command, self._log, settings.threads)

    def _training(self) -> Dict[str, Any]:
        """Read the log."""
        training, ends = logs.read_training(logs.text(self._log)), processes.attempts(self._log)
        curve = training.curve()
        last = curve[-1] if curve else {}
        return {
            "words_per_second": training.words_per_second(),
            "seconds": last.get("seconds"),
            "processor_seconds": last.get("processor_seconds"),
            "words": training.words_at(last["update"]) if last else None,
            "updates": last.get("update"),
            "parameters": training.parameters,
            "peak_bytes": max(end.peak_bytes for end in ends),
            "attempts": [asdict(end) for end in ends],
            "curve": curve,
        }

    def _profile(self) -> Measured:
        places = ["--user-dir", self.settings.plugin, *self._places()]
        return self.measure("profile", *places, "--batches", self.settings.profile_batches)

    def _complete(self) -> Measured:
        questions, answers = self.settings.questions
        flags = ["--device", self.settings.device, "--questions", questions, "--answers", answers]
        return self.measure("complete", *self._places(), *flags)

    def _places(self) -> List[Any]:
        return ["--data", self.settings.data, "--checkpoint", self.checkpoint]

    def _score(self) -> Measured:
        """Measure the normaliser, and score each split with fairseq-eval-lm."""
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
    """Compare keys; those of measures begin with the plugin, which may differ."""
    return key == other if name == "train" else key[1:] == other[1:]
