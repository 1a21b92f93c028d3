"""The studies: one file each, a question and how it is answered."""

from experiments.studies import detection, dispatch, train
from experiments.studies.study import Study

STUDIES: dict[str, Study] = {
    "train": Study("how fast and how well does this accelerator train this CNN?", train.measure, train.resolve),
    "detection": Study("can the detector learn a handful of pictures by heart?", detection.measure, detection.resolve),
    "dispatch": Study("does our training loop cost more than a bare compiled step?", dispatch.measure, train.resolve),
}
