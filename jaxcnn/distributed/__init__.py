"""Several processes, on one or more hosts, as one program."""

import jax

from jaxcnn.distributed.agreement import (
    all_or_none,
    exchange,
    is_distributed,
    is_main,
    maximum,
    of_main,
    process_name,
    require_equal,
    wait_for_all,
)
from jaxcnn.distributed.process import Process, this_process
from jaxcnn.distributed.progress import (
    announce_step,
    announce_waiting,
    announced_steps,
    announced_waiting,
)
from jaxcnn.distributed.roll_call import Facts, roll_call

__all__ = [
    "HEARTBEAT_SECONDS",
    "Process",
    "all_or_none",
    "announce_step",
    "announce_waiting",
    "announced_steps",
    "announced_waiting",
    "exchange",
    "initialize",
    "is_distributed",
    "is_main",
    "maximum",
    "of_main",
    "process_name",
    "require_equal",
    "this_process",
    "wait_for_all",
]

HEARTBEAT_SECONDS = 30  # without a sign of life, after which a process counts as dead
SHUTDOWN_SECONDS = 60  # that a process which has ended its work waits for the others


def initialize(process: Process, facts: Facts, timeout: float) -> tuple[str, ...]:
    """Starts JAX's distributed runtime in this process; before any other use of JAX.

    A process that dies ends all others: at once where its connections are seen to close, otherwise
    after `HEARTBEAT_SECONDS`.

    Args:
      process: this one, see `this_process`.
      facts: what must be the same in every process, as JSON by name.
      timeout: seconds within which all processes have to report.

    Returns:
      The name of each process's host.

    Raises:
      InputError: in every process; see `roll_call`.
    """
    hosts = roll_call(process, facts, timeout)
    # It would take SIGTERM away from the training loop, which saves and stops by itself.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        process.coordinator,
        process.count,
        process.index,
        process.local_devices,
        cluster_detection_method="deactivate",
        initialization_timeout=max(1, round(timeout)),
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        shutdown_timeout_seconds=SHUTDOWN_SECONDS,
    )
    return hosts
