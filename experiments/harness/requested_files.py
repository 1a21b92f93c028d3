"""The files that ``--profile`` and ``--log-dir`` request, of a case that has a record already."""

from etils import epath
from rich.console import Console

from experiments.harness import profiling, tensorboard
from experiments.harness.study import Case, Study


def missing(study: Study, case: Case, scratch: epath.Path) -> list[str]:
    """What was requested and is not there, in words.

    Args:
      study: of the case; nothing is missing of a case that trains no network by the loop.
      case: a case with a record.
      scratch: its folder of checkpoints.

    Returns:
      A phrase for each option; none if all files are there, or none were requested.
    """
    if not study.is_training_run(case):
        return []
    config, reasons = case.config, []
    if config.profile and not profiling.exists(profiling.folder(scratch)):
        reasons.append("a profile (--profile)")
    if config.log_dir is not None:
        folder = tensorboard.folder(config.log_dir, scratch)
        if not tensorboard.exists(folder):
            reasons.append(f"scalars in {folder} (--log-dir)")
    return reasons


def print_places(study: Study, case: Case, scratch: epath.Path, console: Console) -> None:
    """Prints where the files are that were requested, once `missing` has returned none."""
    if not study.is_training_run(case):
        return
    if case.config.profile:
        profiling.print_place(profiling.folder(scratch), console)
    if case.config.log_dir is not None:
        tensorboard.print_place(case.config.log_dir, scratch, console)
