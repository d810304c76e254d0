"""The command ``fairseq-bnce``, and ``python -m fairseq_bnce.cli``."""

import logging
import os
import sys

from fairseq_bnce import cli


def main() -> int:
    """See :func:`fairseq_bnce.cli.main`; here is what is settled before torch is imported."""
    if sys.stderr is None:  # closed, by 2>&-: what is said there would go to standard output
        # As a real one, which writes whatever it is told.
        nobody = open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        sys.stderr = nobody
    logging.disable(logging.INFO)  # fairseq would chat while it is imported
    # Before torch starts its threads: on a busy machine those that wait for others by turning round
    # and round take the cores from them.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
