"""The studies: one file each, a question and how it is answered."""

from experiments.studies import detection, dispatch, kernels, train
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
    "dispatch": Study("does our training loop cost more than a bare compiled step?", train.cases, dispatch.measure),
}
