"""What the notebooks of ``colab/`` share. They run on Colab and off it.

At its top nothing here imports more than the standard library, for it is what installs the rest; and the notebook's own process
need not start JAX: a command has a process of its own, since a TPU serves one at a time.
"""

from experiments.colab.cells import Stopped, command, show
from experiments.colab.files import download, elsewhere, results_folder
from experiments.colab.machine import install, require
from experiments.colab.pictures import one_of_each, pictures

__all__ = [
    "Stopped",
    "command",
    "download",
    "elsewhere",
    "install",
    "one_of_each",
    "pictures",
    "require",
    "results_folder",
    "show",
]
