"""Which process of a distributed run this is: from options, or from the cluster's environment."""

import os
import re
import socket
from dataclasses import dataclass, field

from jaxcnn import chips
from jaxcnn.errors import InputError, first_line

_DETECTION_SECONDS = 60  # for the cluster to tell the coordinator's address


@dataclass(frozen=True)
class Process:
    """One process of a distributed run.

    Attributes:
      coordinator: ``HOST:PORT`` of process 0.
      count: the number of processes.
      index: of this one, from 0.
      local_devices: the numbers of the devices that it uses of those of its host; None for all.
      host: the name of its host.

    >>> Process("node1:9000", 2, 1, host="node2").name
    'process 1 of 2 on node2'
    """

    coordinator: str
    count: int
    index: int
    local_devices: tuple[int, ...] | None = None
    host: str = field(default_factory=socket.gethostname)

    def __post_init__(self):
        if not re.fullmatch(r".+:[1-9]\d{0,4}", self.coordinator):
            raise InputError(
                f"--coordinator={self.coordinator}: must be HOST:PORT of process 0, such as "
                "node1:9876"
            )
        if self.count < 1:
            raise InputError(f"--num-processes={self.count}: must be 1 or more")
        if not 0 <= self.index < self.count:
            raise InputError(
                f"--process-id={self.index}: must be from 0 to {self.count - 1} with "
                f"--num-processes={self.count}"
            )

    @property
    def name(self) -> str:
        """For messages."""
        return f"process {self.index} of {self.count} on {self.host}"


def this_process(coordinator: str | None, count: int | None, index: int | None) -> Process:
    """Says which process this is, by the three options or, without them, by the cluster.

    SLURM, Open MPI, Cloud TPU pods, GKE and Kubernetes are recognized, as `jax.distributed` does.

    Raises:
      InputError: only some of the options, values that are not allowed, or no known cluster.

    >>> this_process("localhost:9876", 2, 0).index
    0
    """
    options = {"--coordinator": coordinator, "--num-processes": count, "--process-id": index}
    missing = [name for name, value in options.items() if value is None]
    if not missing:
        return Process(coordinator, count, index)
    if len(missing) < len(options):
        raise InputError(
            f"{', '.join(missing)}: missing; --coordinator, --num-processes and --process-id go "
            "together (a known cluster needs none of them)"
        )
    return _detected_process()


def _detected_process() -> Process:
    from jax._src import clusters  # what `jax.distributed.initialize` itself asks

    if not chips.has_tpu():
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # libtpu would query the network
    try:
        address, count, index, own = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, _DETECTION_SECONDS
        )
    except Exception as error:
        raise InputError(
            f"--distributed: the cluster's environment cannot be read ({first_line(error)}); give "
            "--coordinator=HOST:PORT --num-processes=N --process-id=I"
        ) from error
    if None in (address, count, index):
        raise InputError(
            "--distributed: this is not a cluster that JAX recognizes (SLURM, Open MPI, Cloud TPU, "
            "GKE, Kubernetes); give each process --coordinator=HOST:PORT --num-processes=N "
            "--process-id=I, or use launch/local.sh or launch/ssh.sh"
        )
    return Process(address, count, index, None if own is None else tuple(own))
