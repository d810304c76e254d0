"""Which words the model knows: counted, cut, and written as fairseq's dict.txt."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import AbstractSet, Mapping, Sequence

from fairseq_bnce.data.preparation.parallel import map_chunks
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.reading import strip_bom
from fairseq_bnce.text.tokens import SPECIALS


def count_chunk(_: None, lines: list[bytes]) -> Counter:
    """The words of tokenised lines, counted."""
    return Counter(b"\n".join(lines).decode("utf-8").split())


def count_words(path: Path, *, workers: int) -> Counter:
    """The words of a tokenised file, counted, without fairseq's own symbols."""
    counts: Counter = Counter()
    for found in map_chunks(count_chunk, None, [str(path)], workers=workers, label="count words"):
        counts.update(found)
    for special in SPECIALS:
        counts.pop(special, None)
    return counts


def cut_vocabulary(
    counts: Mapping[str, int], *, size: int | None = None, min_count: int = 1
) -> list[tuple[str, int]]:
    """The words to keep, commonest first, ties in alphabetical order.

    ``size`` counts </s> and <unk> too, as the sizes in papers do.
    """
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    kept.sort(key=lambda item: (-item[1], item[0]))
    if size is not None:
        kept = kept[: size - 2]
    if not kept:
        raise InputError(
            f"vocabulary: at least one word is required, but none of the {len(counts):,} types of "
            f"train occurs --min-count {min_count} times"
        )
    return kept


def write_dictionary(path: Path, vocabulary: Sequence[tuple[str, int]], multiple: int) -> None:
    """Write fairseq's dict.txt, filled up to a multiple as fairseq-preprocess does it.

    fairseq itself puts its four symbols in front; naming one of them here would be a
    duplicate to it, or, with its overwrite flag, a second id for the same word.
    """
    known = {word for word, _ in vocabulary}
    made_up = (f"madeupword{i:04d}" for i in range(sys.maxsize))
    fill = -(len(SPECIALS) + len(vocabulary)) % multiple
    padding = [next(word for word in made_up if word not in known) for _ in range(fill)]
    with path.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{word} {count}\n" for word, count in vocabulary)
        out.writelines(f"{word} 0\n" for word in padding)


def dictionary_word(line: str, where: str) -> str:
    """The word of one line of a dict.txt."""
    fields = line.rstrip().rsplit(" ", 1)
    if len(fields) == 2 and fields[0].split(" ")[0] in SPECIALS:
        raise InputError(
            f"{where}: words other than fairseq's own symbols are required, but this line defines "
            f"{fields[0].split(' ')[0]} again: its text would get another id than fairseq's own"
        )
    if len(fields) != 2 or not fields[1].isdecimal():
        raise InputError(f"{where}: '<word> <count>' is required, but came {line.rstrip()!r}")
    return fields[0]


def read_dictionary(path: Path) -> AbstractSet[str]:
    """The words of an existing dict.txt, checked."""
    words = set()
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                where = f"--dict {path}, line {number}"
                word = dictionary_word(line, where)
                if number == 1 and word != strip_bom(word):  # as fairseq reads it, it is in no text
                    raise InputError(
                        f"{where}: a file without a byte order mark is required, but it has one "
                        f"before {strip_bom(word)!r}"
                    )
                if word in words:
                    raise InputError(f"{where}: {word!r} is there twice")
                words.add(word)
    except UnicodeDecodeError as error:
        raise InputError(f"--dict {path}: UTF-8 is required, but it has {error}") from error
    if not words:
        raise InputError(f"--dict {path}: at least one word is required, but it is empty")
    return words
