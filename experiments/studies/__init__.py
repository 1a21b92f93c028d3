"""The studies: one file each, a question and how it is answered."""

from experiments.findings.batch_limit import ANSWERS
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
from experiments.studies.study import Study

STUDIES: dict[str, Study] = {
    "train": Study("how fast and how well does this accelerator train this CNN?", train.cases, train.measure),
    "kernels": Study(
        "how fast are the operations that a CNN is made of, and what bounds them?",
        kernels.cases,
        kernels.measure,
        kernels.COLUMNS,
    ),
    "detection": Study("can the detector learn a handful of pictures by heart?", detection.cases, detection.measure),
    "batch_sweep": Study(
        "how large a batch fits, how fast is it, and did the compiler's plan say so?",
        batch_sweep.cases,
        batch_sweep.measure,
        batch_sweep.COLUMNS,
        isolated=True,
        following=batch_sweep.following,
        answers=ANSWERS,
    ),
    "width_sweep": Study(
        "from which size of network on does the accelerator win?", width_sweep.cases, width_sweep.measure, width_sweep.COLUMNS
    ),
    "scaling": Study(
        "how much faster are several devices than one?",
        scaling.cases,
        scaling.measure,
        scaling.COLUMNS,
    ),
    "strategies": Study(
        "do all strategies come to the same, and what does each cost?", strategies.cases, strategies.measure, strategies.COLUMNS
    ),
    "at_once": Study(
        "are many networks trained at once sooner done than one by one, and the same?",
        at_once.cases,
        at_once.measure,
        at_once.COLUMNS,
    ),
    "precision": Study(
        "what do lower precisions gain, and what do they cost?",
        precision.cases,
        precision.measure,
        precision.COLUMNS,
    ),
    "parity": Study("is it the same training on every platform?", parity.cases, parity.measure, parity.COLUMNS),
    "dispatch": Study("does our training loop cost more than a bare compiled step?", train.cases, dispatch.measure),
    "inference": Study(
        "how long does a trained network take to answer, in how many bits, and at what accuracy?",
        inference.cases,
        inference.measure,
        inference.COLUMNS,
    ),
    "search": Study(
        "which classic model or small network reads handwritten digits best, and how long does each take to train?",
        search.cases,
        search.measure,
        search.COLUMNS,
    ),
    "descent": Study(
        "which way do full-batch, mini-batch and single-sample descent take, and what does a step of each cost?",
        descent.cases,
        descent.measure,
        descent.COLUMNS,
    ),
    "isa": Study("what is the processor's instruction set worth?", isa.cases, isa.measure, isa.COLUMNS),
    "first_cnn": Study(
        "five epochs of a first CNN: how long on the processor, how long on the accelerator?",
        first_cnn.cases,
        first_cnn.measure,
        first_cnn.COLUMNS,
    ),
    "preflight": Study(
        "does it compile, fit and pay on accelerators that are not here?",
        preflight.cases,
        preflight.measure,
        preflight.COLUMNS,
        answers=preflight.ANSWERS,
    ),
    "peers": Study(
        "how fast is our train step on a CPU beside PyTorch's, Keras's and plain Flax's?",
        peers.cases,
        peers.measure,
        peers.COLUMNS,
    ),
}
