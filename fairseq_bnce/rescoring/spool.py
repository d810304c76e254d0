"""Lists that wait in a file while weights are tuned on them."""

from __future__ import annotations

import pickle
import tempfile
from types import TracebackType
from typing import Iterator, Optional, Type

from fairseq_bnce.rescoring.lists import NBest
from fairseq_bnce.text.output import write_error


class Spool:
    """Lists in a temporary file, which is gone afterwards.

    Raises:
        InputError: where there is no room for it.
    """

    def __init__(self) -> None:
        self._count = 0
        try:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        except OSError as error:
            raise write_error("temporary file", error) from error

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._file.close()

    def add(self, nbest: NBest) -> None:
        """Keep a list."""
        try:
            pickle.dump(nbest, self._file)
            self._file.flush()
        except OSError as error:
            raise write_error(f"temporary file in {tempfile.gettempdir()}", error) from error
        self._count += 1

    def __iter__(self) -> Iterator[NBest]:
        """The lists, in the order they came in."""
        self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)  # this process's own
