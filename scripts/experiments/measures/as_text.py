#!/usr/bin/env python3
"""Write a binarised split as text, a sentence a line: as_text.py FOLDER SPLIT FILE."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List

from fairseq.data import Dictionary, data_utils


def main(arguments: List[str]) -> None:
    """Write the words of every item, without its </s>; the file appears when it is whole."""
    folder, split, out = arguments
    part = Path(f"{out}.part")
    dictionary = Dictionary.load(str(Path(folder, "dict.txt")))
    items = data_utils.load_indexed_dataset(str(Path(folder, split)), dictionary)
    with part.open("w", encoding="utf-8") as stream:
        for number in range(len(items)):
            words = (dictionary[word] for word in items[number][:-1].tolist())
            stream.write(" ".join(words) + "\n")
    part.replace(out)


if __name__ == "__main__":
    main(sys.argv[1:])
