"""One criterion with one seed: trained, measured, scored and profiled, each stage once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import logs, machine, processes
from .recipes import ADAPTIVE, NORMALISED, Recipe, Variant, criterion_flags, inherited

SPLITS = ("valid", "test")
_TRAIN = str(Path(__file__).with_name("train.py"))
_MEASURE = str(Path(__file__).with_name("measure.py"))


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
    profile_batches: int = 50
    questions: Optional[Tuple[Path, Path]] = None
    is_scored: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of a run: its stages, or the error that it died of.

    Attributes:
        folder: relative to the comparison's.
    """

    variant: Variant
    seed: int
    folder: str
    stages: Optional[Dict[str, Any]] = None
    error: Optional[str] = None


class Run:
    """A run and its folder, whose name ends in a hash of what could change its result.

    So a changed recipe is another run, and the same one goes on where it was.
    """

    def __init__(self, settings: Settings, variant: Variant, seed: int):
        self.settings, self.variant, self.seed = settings, variant, seed
        flags = [*settings.recipe.training, *self._own_flags(), *settings.training, *variant.flags]
        self.flags = ["--criterion", variant.criterion, *flags, "--seed", str(seed)]
        self.versions = machine.versions()
        self.identity = {
            "flags": self.flags,
            "data": settings.fingerprint,
            "threads": settings.threads,
            "versions": self.versions,
        }
        key = hashlib.sha256(json.dumps(self.identity).encode()).hexdigest()[:10]
        self.folder = settings.out / "runs" / f"{variant.label}-seed{seed}-{key}"
        self.checkpoint = self.folder / "checkpoints" / "checkpoint_best.pt"
        self._log = self.folder / "train.log"
        self._stored = _read(self.folder / "result.json")

    @property
    def name(self) -> str:
        return f"{self.variant.label} seed {self.seed}"

    def complete(self, say: Callable[[str], None]) -> Dict[str, Any]:
        """Go through the stages that are not done yet.

        Args:
            say: called with what is about to be done.

        Returns:
            the value of each stage by its name.

        Raises:
            processes.CommandFailed: a command did not succeed.
            logs.UnreadableLog: a command succeeded, but its output is not understood.
        """
        plugin, batches = self._plugin(), self.settings.profile_batches
        trained = self._stage("train", self.identity, self._train, say)
        stages = {"train": {**trained, **self._training()}}
        if not self.settings.is_scored:
            return stages
        # Measuring again is cheap, so a changed plugin does; training again is the caller's to say.
        flags = [plugin, *self._ways(), *self._scoring_flags()]
        stages.update(self._stage("score", flags, self._score, say))
        if batches and self.variant.criterion != ADAPTIVE:  # no features of a plain projection
            stages["profile"] = self._stage("profile", [plugin, batches], self._profile, say)
        if self.settings.questions:
            stages["complete"] = self._stage("complete", plugin, self._complete, say)
        return stages

    def finished(self) -> Optional[Dict[str, Any]]:
        """The stages as an earlier call left them, None unless it came to the end; does no work.

        Raises:
            logs.UnreadableLog: the log is gone or not understood.
        """
        if not {"train", "score"} <= set(self._stored):
            return None
        values = {name: stored["value"] for name, stored in self._stored.items()}
        train = {**values.pop("train"), **self._training()}
        return {"train": train, **values.pop("score"), **values, "versions": self.versions}

    def _own_flags(self) -> List[str]:
        criterion = self.variant.criterion
        vocab = machine.vocabulary_size(self.settings.data) if criterion == ADAPTIVE else 0
        return criterion_flags(criterion, vocab)

    def _stage(self, name: str, key: Any, do: Callable[[], Any], say: Callable[[str], None]) -> Any:
        stored = self._stored.get(name)
        if stored is None or stored["key"] != key:
            say(f"{self.name}: {name}")
            stored = self._stored[name] = {"key": key, "value": do()}
            _write(self.folder / "result.json", self._stored)
        return stored["value"]

    def _train(self) -> Dict[str, Any]:
        processes.run(self._train_command(), self._log, self.settings.threads)
        hardware, date = machine.hardware(), time.strftime("%Y-%m-%d")
        return {"plugin": self._plugin(), "hardware": hardware, "date": date}

    def _training(self) -> Dict[str, Any]:
        """What the log tells; read anew every time, so that a better reader serves old logs."""
        training, ends = logs.read_training(_text(self._log)), processes.attempts(self._log)
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
        command = [sys.executable, _TRAIN, str(settings.data)]
        command += ["--user-dir", str(settings.plugin), "--task", "language_modeling", *self.flags]
        return [*command, "--save-dir", str(self.checkpoint.parent), "--log-format", "json"]

    def _profile(self) -> Dict[str, Any]:
        settings = self.settings
        places = ["--data", str(settings.data), "--user-dir", str(settings.plugin)]
        batches = ["--batches", str(settings.profile_batches)]
        return self._measure("profile", *places, "--checkpoint", str(self.checkpoint), *batches)

    def _complete(self) -> Dict[str, Any]:
        questions, answers = map(str, self.settings.questions)
        places = ["--data", str(self.settings.data), "--checkpoint", str(self.checkpoint)]
        return self._measure("complete", *places, "--questions", questions, "--answers", answers)

    def _measure(self, name: str, *arguments: str) -> Dict[str, Any]:
        found = self.folder / f"{name}.json"
        command = [sys.executable, _MEASURE, name, "--out", str(found), *arguments]
        processes.run(command, self.folder / f"{name}.log", self.settings.threads)
        return json.loads(found.read_text(encoding="utf-8"))

    def _score(self) -> Dict[str, Any]:
        """The normaliser's spread, and fairseq-eval-lm of each split: three ways, or exact."""
        found = self._measure("score", *self._ways(), *self._eval_arguments())
        score = {
            split: {way: logs.read_scoring(lines) for way, lines in ways.items()}
            for split, ways in found["printed"].items()
        }
        return {"normaliser": found["normaliser"], "score": score}

    def _ways(self) -> List[str]:
        return ["--exact-only"] if self.variant.criterion in NORMALISED else []

    def _plugin(self) -> str:
        return machine.plugin_fingerprint(self.settings.plugin)

    def _eval_arguments(self) -> List[str]:
        settings = self.settings
        places = [str(settings.data), "--user-dir", str(settings.plugin)]
        places += ["--path", str(self.checkpoint)]
        return [*places, "--no-progress-bar", *self._scoring_flags()]

    def _scoring_flags(self) -> List[str]:
        settings = self.settings
        same = inherited(self.flags)
        return ["--cpu", "--num-workers", "0", *same, *settings.recipe.scoring, *settings.scoring]


def outcomes(runs: Sequence[Run]) -> Iterator[List[Outcome]]:
    """Complete one after the other; after each, yield what became of all so far.

    A run that dies is one of the outcomes, and the others are still run.
    """
    found: List[Outcome] = []
    for place, run in enumerate(runs, start=1):
        found.append(_outcome(run, f"{place}/{len(runs)}"))
        yield found


def _outcome(run: Run, position: str) -> Outcome:
    folder = str(run.folder.relative_to(run.settings.out))
    done: List[str] = []
    start = time.perf_counter()

    def say(stage: str) -> None:
        done.append(stage)
        print(f"[{position}] {stage}", flush=True)

    try:
        stages = run.complete(say)
    except (processes.CommandFailed, logs.UnreadableLog) as error:
        print(f"[{position}] {run.name}: failed: {error}, in {folder}", flush=True)
        return Outcome(run.variant, run.seed, folder, error=str(error))
    took = f"done in {time.perf_counter() - start:.0f} s" if done else "taken from disk"
    print(f"[{position}] {run.name}: {took}", flush=True)
    return Outcome(run.variant, run.seed, folder, stages={**stages, "versions": run.versions})


def _read(path: Path) -> Dict[str, Any]:
    """What an earlier comparison stored; nothing if that was cut off or is damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _text(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise logs.UnreadableLog(f"{log.name}: {error.strerror}") from error


def _write(path: Path, content: Any) -> None:
    """All at once, so that an interruption leaves the old file or the new one."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(str(unfinished), str(path))
