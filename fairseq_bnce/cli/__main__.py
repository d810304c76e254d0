"""The command ``fairseq-bnce``, and ``python -m fairseq_bnce.cli``."""

import logging
import os
import sys

from fairseq_bnce import cli


def main() -> int:
    """Run :func:`fairseq_bnce.cli.main`, with settings that must come before torch's import."""
    logging.disable(logging.INFO)  # fairseq logs while it is imported
    # On a busy machine, threads of torch that spin while they wait take the cores from others.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
