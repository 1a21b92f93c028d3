"""The roll call: before JAX's runtime starts, every process reports to process 0.

JAX's own runtime aborts a process whose coordinator does not answer, and it starts processes of
different versions together. Here each of them gets one answer instead: the hosts of all processes,
or the reason why the run cannot start. Process 0 listens at the coordinator's address, which is
free again when the roll call is over. Messages are lines of JSON.
"""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from jaxcnn.distributed.process import Process
from jaxcnn.errors import InputError

Facts = dict[str, Any]  # JSON values by name
Report = dict[str, Any]

_MAX_LINE = 2**20  # bytes
_READ_SECONDS = 5.0  # for a line that a connected process sends at once
_RETRY_SECONDS = 0.2
_MAX_DIFFERENCES = 5  # that a message names


def roll_call(process: Process, facts: Facts, timeout: float) -> tuple[str, ...]:
    """Waits until every process has reported, and compares their facts.

    Args:
      process: this one.
      facts: what must be the same in every process, such as options and versions.
      timeout: seconds.

    Returns:
      The name of each process's host.

    Raises:
      InputError: in every process that takes part: process 0 does not answer, others are missing,
        two have the same index, or facts differ.

    >>> roll_call(Process("localhost:9876", 1, 0, host="here"), {}, timeout=1.0)
    ('here',)
    """
    report = {"index": process.index, "count": process.count, "host": process.host, "facts": facts}
    if process.count == 1:
        return (process.host,)
    report = json.loads(json.dumps(report))  # as process 0 reads it: lists for tuples
    call = _answer_all if process.index == 0 else _report
    answer = call(process, report, time.monotonic() + timeout, timeout)
    if "error" in answer:
        raise InputError(answer["error"])
    return tuple(answer["hosts"])


def _answer_all(process: Process, own: Report, deadline: float, timeout: float) -> dict[str, Any]:
    """Process 0's side: collects the reports and sends the same answer to all."""
    reports: list[Report] = [own]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_listening(process))
        connections = []
        while len(reports) < process.count and (seconds_left := deadline - time.monotonic()) > 0:
            server.settimeout(seconds_left)
            try:
                connection = stack.enter_context(server.accept()[0])
            except TimeoutError:
                break
            line = _read(connection, _READ_SECONDS)
            if isinstance(line, dict) and own.keys() <= line.keys():  # else none of ours
                connections.append(connection)
                reports.append(line)
        problem = _problem(reports, process, timeout)
        hosts = {report["index"]: report["host"] for report in reports}
        answer = {"error": problem} if problem else {"hosts": [hosts[i] for i in sorted(hosts)]}
        for connection in connections:
            _send(connection, answer)
        for connection in connections:  # the side that closes first keeps its port busy
            _read(connection, 1.0)
    return answer


def _report(process: Process, own: Report, deadline: float, timeout: float) -> dict[str, Any]:
    """The other processes' side: reports to process 0 and waits for its answer."""
    host, _, port = process.coordinator.rpartition(":")
    silent = InputError(
        f"{process.name}: the coordinator, process 0 at {process.coordinator}, did not answer "
        f"within {timeout:g} s (--connect-timeout): start process 0 too, and check the address, "
        "the port and the firewall"
    )
    while (seconds_left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(
                (host.strip("[]"), int(port)), seconds_left
            ) as connection:
                _send(connection, own)
                answer = _read(connection, seconds_left + _READ_SECONDS)
        except OSError:
            answer = None
        if answer is not None:
            return answer
        time.sleep(_RETRY_SECONDS)
    raise silent


@contextlib.contextmanager
def _listening(process: Process) -> Iterator[socket.socket]:
    port = int(process.coordinator.rpartition(":")[2])
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    both = family == socket.AF_INET6
    try:
        server = socket.create_server(
            ("", port), family=family, backlog=process.count, dualstack_ipv6=both
        )
    except OSError as error:
        raise InputError(
            f"--coordinator={process.coordinator}: process 0 cannot listen on port {port} "
            f"({error.strerror}); choose another port"
        ) from error
    with server:
        yield server


def _problem(reports: list[Report], process: Process, timeout: float) -> str:
    """Why the run cannot start; empty if it can."""
    places: dict[int, str] = {}
    for report in reports:
        index, host = report["index"], report["host"]
        if report["count"] != process.count:
            return (
                f"process {index} on {host} has --num-processes={report['count']} and process 0 on "
                f"{process.host} {process.count}: give all of them the same number"
            )
        if index in places:
            return (
                f"two processes have --process-id={index}, on {places[index]} and on {host}: give "
                f"each its own, from 0 to {process.count - 1}"
            )
        places[index] = host
    missing = [str(index) for index in range(process.count) if index not in places]
    if missing:
        return (
            f"of {process.count} processes (--num-processes), number {', '.join(missing)} did not "
            f"report to process 0 at {process.coordinator} within {timeout:g} s "
            "(--connect-timeout): start them too, or check how they reach it"
        )
    return _differences(reports)


def _differences(reports: list[Report]) -> str:
    """The facts in which a process differs from process 0; empty if there are none."""
    first = reports[0]
    for report in sorted(reports[1:], key=lambda each: each["index"]):
        names = sorted(first["facts"].keys() | report["facts"].keys())
        texts = [
            f"{name} is {_shown(first, name)} in process 0 and {_shown(report, name)} in "
            f"process {report['index']}"
            for name in names
            if first["facts"].get(name) != report["facts"].get(name)
        ]
        if texts:
            more = len(texts) - _MAX_DIFFERENCES
            shown = texts[:_MAX_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
            return (
                f"the processes on {first['host']} and {report['host']} differ: "
                f"{'; '.join(shown)}: start all of them with the same command and versions"
            )
    return ""


def _shown(report: Report, name: str) -> str:
    return json.dumps(report["facts"].get(name), ensure_ascii=False)


def _send(connection: socket.socket, message: Any) -> None:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        connection.sendall(json.dumps(message).encode() + b"\n")


def _read(connection: socket.socket, timeout: float) -> Any:
    """One line of JSON; None if there is none in time."""
    connection.settimeout(timeout)
    with contextlib.suppress(OSError, ValueError), connection.makefile("rb") as lines:
        line = lines.readline(_MAX_LINE)
        return json.loads(line) if line.endswith(b"\n") else None
    return None
