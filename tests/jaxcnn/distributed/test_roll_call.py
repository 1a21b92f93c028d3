"""The roll call before a distributed run: all processes start, or all get the same reason."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxcnn.distributed import Process
from jaxcnn.distributed.roll_call import roll_call
from jaxcnn.errors import InputError
from tests.support.processes import free_port


def call(processes, facts, timeout=5.0):
    """The answer that each process got: its hosts, or the message of the error."""

    def one(process, own):
        try:
            return roll_call(process, own, timeout)
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(len(processes)) as threads:
        return list(threads.map(one, processes, facts))


def members(count, indices, port=None):
    address = f"localhost:{port or free_port()}"
    return [Process(address, count, index, host=f"node{index}") for index in indices]


def test_every_process_learns_the_hosts_of_all():
    answers = call(members(3, [2, 0, 1]), [{"a": 1, "stages": (1.0, 0.1)}] * 3)
    assert answers == [("node0", "node1", "node2")] * 3


def test_the_port_is_free_afterwards():
    port = free_port()
    for _ in range(2):
        assert call(members(2, [0, 1], port), [{}] * 2) == [("node0", "node1")] * 2


def test_different_facts_are_named_to_all():
    facts = [{"--batch-size": 32, "jax": "0.10.2"}, {"--batch-size": 64, "jax": "0.10.3"}]
    answers = call(members(2, [0, 1]), facts)
    assert answers[0] == answers[1]
    assert "--batch-size is 32 in process 0 and 64 in process 1" in answers[0]
    assert 'jax is "0.10.2" in process 0 and "0.10.3" in process 1' in answers[0]


def test_many_differences_are_counted():
    facts = [{f"option{i}": value for i in range(8)} for value in (0, 1)]
    assert call(members(2, [0, 1]), facts)[0].count("is 0 in process 0") == 5
    assert "and 3 more" in call(members(2, [0, 1]), facts)[1]


def test_an_index_that_two_processes_have_is_refused():
    port = free_port()
    answers = call(members(3, [0, 1], port) + members(3, [1], port), [{}] * 3)
    assert all("two processes have --process-id=1" in answer for answer in answers)


def test_processes_that_disagree_about_their_number_are_refused():
    port = free_port()
    answers = call([*members(2, [0], port), *members(4, [3], port)], [{}] * 2)
    assert answers[0] == answers[1]
    assert "process 3 on node3 has --num-processes=4 and process 0 on node0 2" in answers[0]


def test_missing_processes_are_named_to_those_that_are_there():
    answers = call(members(4, [0, 2]), [{}] * 2, timeout=1.0)
    assert answers[0] == answers[1]
    assert "of 4 processes (--num-processes), number 1, 3 did not report" in answers[0]


def test_a_coordinator_that_does_not_answer_is_named():
    (process,) = members(2, [1])
    start = time.monotonic()
    with pytest.raises(InputError, match=rf"{process.coordinator}, did not answer within 0.5 s"):
        roll_call(process, {}, 0.5)
    assert time.monotonic() - start < 10


def test_a_server_that_is_no_coordinator_counts_as_silent():
    with socket.create_server(("localhost", 0)) as server:
        process = Process(f"localhost:{server.getsockname()[1]}", 2, 1)
        with pytest.raises(InputError, match="did not answer"):
            roll_call(process, {}, 0.5)


def test_connections_of_strangers_are_ignored():
    first, second = members(2, [0, 1])
    port = int(first.coordinator.rpartition(":")[2])
    with ThreadPoolExecutor(2) as threads:
        answer = threads.submit(roll_call, first, {}, 10.0)
        for text in (b"GET / HTTP/1.1\r\n", json.dumps([1]).encode() + b"\n", b""):
            stranger = connect(port)
            stranger.sendall(text)
            stranger.close()
        assert roll_call(second, {}, 10.0) == ("node0", "node1")
        assert answer.result() == ("node0", "node1")


def connect(port):
    for _ in range(100):
        try:
            return socket.create_connection(("localhost", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("process 0 does not listen")


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("", 0)) as server:
        process = Process(f"localhost:{server.getsockname()[1]}", 2, 0)
        with pytest.raises(InputError, match="cannot listen on port"):
            roll_call(process, {}, 1.0)
