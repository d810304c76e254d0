"""What the model sees: text with <unk> for rare words, and fairseq-preprocess's files of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import IO, AbstractSet, Any, Iterator, NamedTuple, Sequence

from fairseq_bnce.data.preparation.parallel import map_chunks
from fairseq_bnce.data.preparation.progress import progress_bar
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.tokens import EOS, SPECIALS, UNK

PREPROCESS = Path(__file__).resolve().with_name("preprocess.py")


class SplitStats(NamedTuple):
    """Counts of a split as the model sees it; tokens are words and one </s> a line."""

    lines: int
    types: int
    tokens: int
    unk: int


def replace_chunk(vocabulary: AbstractSet[str], lines: list[bytes]) -> tuple[str, Counter]:
    """Tokenised lines with <unk> for every word outside the vocabulary, and their word counts."""
    counts: Counter = Counter()
    written = []
    for line in lines:
        words = [word if word in vocabulary else UNK for word in line.decode("utf-8").split()]
        counts.update(words)
        written.append(" ".join(words) + "\n")
    counts[EOS] += len(lines)
    return "".join(written), counts


def replace_rare(
    source: Path, target: Path, vocabulary: AbstractSet[str], *, workers: int, label: str
) -> SplitStats:
    """Write ``source`` as the model is to see it; return its counts."""
    counts: Counter = Counter()
    results = map_chunks(
        replace_chunk, vocabulary, [str(source)], workers=workers, label=f"write {label}"
    )
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for text, found in results:
            out.write(text)
            counts.update(found)
    return SplitStats(counts[EOS], len(counts), sum(counts.values()), counts[UNK])


def binary_bytes(folder: Path) -> int:
    """What fairseq-preprocess has written so far, its workers' parts included."""
    return sum(path.stat().st_size for path in folder.glob("*.bin*") if path.exists())


@contextlib.contextmanager
def ended_with_us(process: subprocess.Popen[Any]) -> Iterator[None]:
    """End a process, and those that it started in its session, where what is done here fails."""
    try:
        yield
    except BaseException:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        raise


def run_watched(command: Sequence[str], folder: Path, log: IO[bytes], size: int) -> int:
    """Run a command in ``folder``; its progress is how much of ``size`` bytes ``bin`` has."""
    with subprocess.Popen(
        command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    ) as process, ended_with_us(process), progress_bar("binarise", size) as progress:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
            with contextlib.suppress(FileNotFoundError):  # a part that was just merged
                progress.update(min(size, binary_bytes(folder / "bin")) - progress.n)
    return process.returncode


def bytes_an_id(dictionary: Path) -> int:
    """Of what fairseq binarises: two while the vocabulary allows it."""
    with dictionary.open("rb") as lines:
        return 2 if sum(1 for _ in lines) + len(SPECIALS) < 65500 else 4


def binarise(
    folder: Path, splits: Sequence[str], dictionary: Path, *, workers: int, tokens: int = 0
) -> None:
    """Run fairseq-preprocess on ``folder/text`` into ``folder/bin``, with this Python's fairseq."""
    # Relative paths from inside the folder: fairseq cuts its --validpref at commas.
    command = [sys.executable, str(PREPROCESS), "--only-source"]
    command += ["--srcdict", str(dictionary.resolve()), "--destdir", "bin"]
    command += ["--workers", str(workers)]
    for split in splits:
        command += [f"--{split}pref", f"text/{split}.txt"]
    with tempfile.TemporaryFile() as log:
        status = run_watched(command, folder, log, tokens * bytes_an_id(dictionary))
        log.seek(0)
        last = "\n".join(log.read().decode("utf-8", "replace").splitlines()[-15:])
    if status == -signal.SIGKILL:
        raise InputError(
            "fairseq-preprocess, or a worker of its, was killed (out of memory? try fewer "
            "--workers)"
        )
    if status:
        raise InputError(f"fairseq-preprocess failed (exit status {status}):\n{last}")
