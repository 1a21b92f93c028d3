"""The studies: one file each, a question and how it is answered."""

from experiments.analysis import batch_limit
from experiments.harness.study import Study
from experiments.studies import (
    at_once,
    batch_sweep,
    descent,
    detection,
    dispatch,
    first_cnn,
    inference,
    isa,
    kernels,
    parity,
    peers,
    precision,
    preflight,
    scaling,
    search,
    strategies,
    train,
    width_sweep,
)

STUDIES: dict[str, Study] = {
    "train": Study(
        about="how fast and how well does this accelerator train this CNN?",
        cases=train.cases,
        measure=train.measure,
    ),
    "kernels": Study(
        about="how fast are the operations that a CNN is made of, and what bounds them?",
        cases=kernels.cases,
        measure=kernels.measure,
        columns=kernels.COLUMNS,
        has_figures_of_merit=kernels.has_figures_of_merit,
    ),
    "detection": Study(
        about="can the detector learn a handful of images by heart?",
        cases=detection.cases,
        measure=detection.measure,
    ),
    "batch_sweep": Study(
        about="how large a batch fits, how fast is it, and did the compiler's plan predict it?",
        cases=batch_sweep.cases,
        measure=batch_sweep.measure,
        columns=batch_sweep.COLUMNS,
        isolated=True,
        next_cases=batch_sweep.next_cases,
        answers=batch_limit.ANSWERS,
    ),
    "width_sweep": Study(
        about="from which size of network on does the accelerator win?",
        cases=width_sweep.cases,
        measure=width_sweep.measure,
        columns=width_sweep.COLUMNS,
    ),
    "scaling": Study(
        about="how much faster are several devices than one?",
        cases=scaling.cases,
        measure=scaling.measure,
        columns=scaling.COLUMNS,
    ),
    "strategies": Study(
        about="do all strategies give the same results, and what does each cost?",
        cases=strategies.cases,
        measure=strategies.measure,
        columns=strategies.COLUMNS,
    ),
    "at_once": Study(
        about="how much sooner are many networks trained at once than one by one?",
        cases=at_once.cases,
        measure=at_once.measure,
        columns=at_once.COLUMNS,
    ),
    "precision": Study(
        about="what do lower precisions gain, and what do they cost?",
        cases=precision.cases,
        measure=precision.measure,
        columns=precision.COLUMNS,
    ),
    "parity": Study(
        about="does training give the same network on every platform?",
        cases=parity.cases,
        measure=parity.measure,
        columns=parity.COLUMNS,
    ),
    "dispatch": Study(
        about="does our training loop cost more than a bare compiled step?",
        cases=train.cases,
        measure=dispatch.measure,
    ),
    "inference": Study(
        about="how long does inference take, in how many bits, and at what accuracy?",
        cases=inference.cases,
        measure=inference.measure,
        columns=inference.COLUMNS,
        answers=inference.ANSWERS,
    ),
    "search": Study(
        about="which classic model or small network classifies digits best, and how long does each "
        "take to train?",
        cases=search.cases,
        measure=search.measure,
        columns=search.COLUMNS,
    ),
    "descent": Study(
        about="which path do full-batch, mini-batch and single-sample descent take, and what does "
        "a step of each cost?",
        cases=descent.cases,
        measure=descent.measure,
        columns=descent.COLUMNS,
    ),
    "isa": Study(
        about="what is the processor's instruction set worth?",
        cases=isa.cases,
        measure=isa.measure,
        columns=isa.COLUMNS,
    ),
    "first_cnn": Study(
        about="five epochs of a first CNN: how long on the CPU, how long on the accelerator?",
        cases=first_cnn.cases,
        measure=first_cnn.measure,
        columns=first_cnn.COLUMNS,
        has_figures_of_merit=first_cnn.runs_here,
    ),
    "preflight": Study(
        about="does it compile, fit and pay on accelerators that are not attached?",
        cases=preflight.cases,
        measure=preflight.measure,
        columns=preflight.COLUMNS,
        answers=preflight.ANSWERS,
    ),
    "peers": Study(
        about="how fast is our train step on a CPU beside PyTorch's, Keras's and plain Flax's?",
        cases=peers.cases,
        measure=peers.measure,
        columns=peers.COLUMNS,
    ),
}
