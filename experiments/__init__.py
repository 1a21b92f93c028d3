"""The study: everything that measures. Imports from `jaxcnn`, never the other way."""

import sys

# Python is locating the module of ``python -m experiments.…``; a library that is imported leaves
# the signals of the program alone.
if sys.argv[:1] == ["-m"]:
    from experiments import interrupts

    interrupts.install()
