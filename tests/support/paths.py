"""Where the project and its data are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / ".." / "shared" / "data"
