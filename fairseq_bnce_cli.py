"""Where the command ``fairseq-bnce`` starts: outside of the package, whose import takes seconds.

Ctrl-C should end it quietly in these too, and fairseq should not chat meanwhile.
"""

import logging
import os
import signal
import sys
from typing import Any


def main() -> int:
    """See :func:`fairseq_bnce.cli.main`."""
    logging.disable(logging.INFO)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # and not ignored, as in the background
        # Not KeyboardInterrupt, of which torch's import makes a RuntimeError.
        signal.signal(signal.SIGINT, _exit_at_once)
    from fairseq_bnce import cli

    signal.signal(signal.SIGINT, before)
    return cli.main()


def _exit_at_once(*_: Any) -> None:
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
