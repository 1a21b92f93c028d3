"""The child process of an isolated case: ``python -m experiments.studies RESPONSE < REQUEST``."""

import sys
from pathlib import Path

from experiments.harness.isolation import serve
from experiments.studies import STUDIES

if __name__ == "__main__":
    serve(STUDIES, Path(sys.argv[1]))
