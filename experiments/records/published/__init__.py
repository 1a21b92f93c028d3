"""Records published with the project: figures of the studied documents, and its own measurements."""

from pathlib import Path

PUBLISHED = Path(__file__).parent
