"""Shortens what a case does beside its work: measured peaks, pauses, and repeated step times.

Tests look at what is computed and recorded, and those of measuring itself set sizes of their own.
Importing this module does it, in this process and in those that are forked from it.
"""

from experiments.microbenchmarks import peak, probe
from experiments.studies import strategies, train
from experiments.workloads import communication

peak.SIDES = peak.SIDES | {"cpu": (512,)}
peak.IMAGES = peak.IMAGES | {"cpu": (2,)}
probe.AGAIN = 1
peak.memory_bandwidth.SIZES = peak.memory_bandwidth.SIZES | {"cpu": 2**20}
train.IDLE_SECONDS = 0.1
strategies.BUDGETS = strategies.BUDGETS | {"quick": 0.1}
communication.BUDGET = 0.1
