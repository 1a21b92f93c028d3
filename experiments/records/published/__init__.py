"""Published records: figures of the studied documents, and the project's own measurements."""

from pathlib import Path

PUBLISHED = Path(__file__).parent
