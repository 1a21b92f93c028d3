"""The options of a run, and the configurations that a command line and a file ask for."""

from experiments.config.options import RunOptions
from experiments.config.run_config import RunConfig

__all__ = ["RunConfig", "RunOptions"]
