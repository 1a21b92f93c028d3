"""Which process this is, by options and by the environment of a cluster."""

import pytest

from jaxcnn.distributed import Process, this_process
from jaxcnn.errors import InputError

SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_STEP_NODELIST": "node[3-4]",
    "SLURM_NTASKS": "16",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}


@pytest.fixture
def no_cluster(monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "TPU_WORKER_HOSTNAMES", *SLURM, *OPEN_MPI):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")


def test_the_options_say_it():
    process = this_process("node1:9876", 4, 3)
    assert (process.coordinator, process.count, process.index) == ("node1:9876", 4, 3)
    assert process.local_devices is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("node1", 2, 0), "--coordinator=node1: must be HOST:PORT"),
        (("node1:0", 2, 0), "--coordinator=node1:0: must be HOST:PORT"),
        (("node1:9876", 2, 2), "--process-id=2: must be from 0 to 1 with --num-processes=2"),
        (("node1:9876", 2, -1), "--process-id=-1: must be from 0 to 1"),
        (("node1:9876", 0, 0), "--num-processes=0: must be 1 or more"),
        (("node1:9876", None, None), "--num-processes, --process-id: missing"),
        ((None, 2, 1), "--coordinator: missing"),
    ],
)
def test_options_that_cannot_be_used(options, message):
    with pytest.raises(InputError, match=message):
        this_process(*options)


def test_slurm_is_recognized(no_cluster, monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    process = this_process(None, None, None)
    assert (process.count, process.index, process.local_devices) == (16, 9, (1,))
    assert process.coordinator.startswith("node3:")


def test_open_mpi_is_recognized(no_cluster, monkeypatch):
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    process = this_process(None, None, None)
    assert (process.count, process.index) == (4, 3)
    assert process.coordinator.startswith("10.96.0.1:")


def test_without_a_cluster_the_options_are_asked_for(no_cluster):
    with pytest.raises(InputError, match="not a cluster that JAX recognizes"):
        this_process(None, None, None)


def test_the_name_has_number_and_host():
    assert Process("a:1", 4, 2, host="node7").name == "process 2 of 4 on node7"
