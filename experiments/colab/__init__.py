"""What the notebooks in ``colab/`` share. It works on Colab and anywhere else.

The modules import only the standard library at the top, because they install everything else. The
notebook's own process need not start JAX: each command runs in a process of its own, because a TPU
serves one process at a time.
"""

from experiments.colab.cells import Stopped, run_module, train_on_cpu
from experiments.colab.files import download, other_records, results_folder
from experiments.colab.images import image_folder, one_of_each
from experiments.colab.machine import install, require_device
from experiments.colab.pages import print_summary, show_page, show_report

__all__ = [
    "Stopped",
    "download",
    "image_folder",
    "install",
    "one_of_each",
    "other_records",
    "print_summary",
    "require_device",
    "results_folder",
    "run_module",
    "show_page",
    "show_report",
    "train_on_cpu",
]
