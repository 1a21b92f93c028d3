"""The files that ``--profile`` and ``--log-dir`` request, of a case that has a record already."""

from etils import epath

from experiments.harness import profiling, scalar_logs
from experiments.harness.study import Case, Context, Study


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
        name = scratch.parent.name, scratch.name.removesuffix(".checkpoints")
        if not scalar_logs.exist(config, *name):
            reasons.append(f"scalars in {scalar_logs.place(config, *name)} (--log-dir)")
    return reasons


def print_places(study: Study, case: Case, context: Context) -> None:
    """Prints where the files are that were requested, once `missing` has returned none."""
    if not study.is_training_run(case):
        return
    if case.config.profile:
        profiling.print_place(profiling.folder(context.scratch), context.console)
    if case.config.log_dir is not None:
        scalar_logs.print_place(case.config, context)
