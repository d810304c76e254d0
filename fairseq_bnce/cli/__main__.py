"""``python -m fairseq_bnce.cli``."""

import sys

from fairseq_bnce.cli import main

if __name__ == "__main__":
    sys.exit(main())
