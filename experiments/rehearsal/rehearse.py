"""Compiles the programs of a visit to an accelerator, item by item of the agenda.

Each part of the agenda runs as in a visit, with its real data, inside `absent_device`. What the
studies measure then means nothing and is discarded; the record has the outcome of each program.
"""

import contextlib
import io
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import jax
from etils import epath
from rich.console import Console

from experiments import records
from experiments.cli import FAILED
from experiments.config.configurations import parse
from experiments.harness.deadline import NO_LIMIT
from experiments.microbenchmarks import peak, probe
from experiments.microbenchmarks.kernel import size_class
from experiments.peers import task_file
from experiments.peers.process import PEERS
from experiments.peers.worker import PeerMethods
from experiments.preflight import libraries
from experiments.preflight.targets import Target
from experiments.records import Record
from experiments.rehearsal.absent_device import absent_device
from experiments.rehearsal.absent_program import CompiledProgram
from experiments.sessions import session
from experiments.sessions.agenda import AGENDA, Item
from experiments.studies import peers, peers_cases, speedrun_cases
from jaxcnn import backend
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

STUDY = "rehearsal"


def rehearse(target: Target, preset: str, folder: epath.Path, console: Console) -> list[Record]:
    """Compiles the programs of every item of the agenda that the folder has no prediction of yet.

    What failed or was left out earlier is tried again, and so is all that another version of the
    compiler has compiled.

    Args:
      target: one accelerator, whose compiler is installed.
      preset: the extent of the studies, as of `experiments.run`.
      folder: for a record of each item.
      console: gets a line for each program.

    Returns:
      The records of all items, those of earlier rehearsals too.
    """
    earlier, _ = records.load(sorted(folder.glob(f"{STUDY}/*.json")))
    same = {"target": target.name, "preset": preset}
    compiler = libraries.compiler(target)
    known = {
        record.settings["part"]: record
        for record in earlier
        if same.items() <= record.settings.items()
        and record.status == "predicted"
        and record.provenance.get("compiler") == compiler
    }
    for item in AGENDA:
        if item.on_host or item.about in known:
            continue
        console.print(f"\n{item.about}: {' '.join(item.options)}", markup=False, highlight=False)
        known[item.about] = _rehearse_item(item, target, preset, console)
        records.write(known[item.about], folder)
        jax.clear_caches()  # they hold the item's programs
    return [known[item.about] for item in AGENDA if item.about in known]


def _rehearse_item(item: Item, target: Target, preset: str, console: Console) -> Record:
    problems = io.StringIO()

    def report(program: CompiledProgram) -> None:
        console.print(_line(program), markup=False, highlight=False)

    output = Console(file=problems, width=100)
    with (
        absent_device(target, report) as programs,
        _simulated(target.platform),
        tempfile.TemporaryDirectory(prefix="jaxcnn-rehearsal-") as folder,
    ):
        try:
            configs = parse([*item.options, f"--preset={preset}", f"--results={folder}"])
            outcome = session.run(configs, output, 1, NO_LIMIT)
        except InputError as error:
            return _record(item, target, preset, programs, f"left out: {error}")
    failures = [
        f"{record.case}: {record.message}"
        for record in outcome.records
        if record.status == "failed"
    ]
    if outcome.code == FAILED and not failures:
        failures = [problems.getvalue().strip().splitlines()[-1]]
    return _record(item, target, preset, programs, *failures)


def describe(record: Record) -> str:
    """The outcomes of the programs of a record of `rehearse`, in one line."""
    counts = {
        "compiled": record.metrics["programs_compiled"],
        "do not fit": record.metrics["programs_out_of_memory"],
        "failed": record.metrics["programs_failed"],
    }
    parts = [f"{count:,.0f} {state}" for state, count in counts.items() if count]
    return "; ".join(filter(None, [", ".join(parts), record.message]))


def _record(
    item: Item, target: Target, preset: str, programs: dict[str, CompiledProgram], *remarks: str
) -> Record:
    states = Counter(program.state for program in programs.values())
    failed = states["failed"] or any(not remark.startswith("left out") for remark in remarks)
    return Record(
        STUDY,
        f"{target.name}-{preset}-{AGENDA.index(item) + 1:02d}",
        "failed" if failed else "predicted" if programs else "unsupported",
        remarks[0] if remarks else "",
        settings={
            "part": item.about,
            "target": target.name,
            "preset": preset,
            "options": list(item.options),
        },
        metrics={
            "programs_compiled": states["compiled"],
            "programs_out_of_memory": states["out_of_memory"],
            "programs_failed": states["failed"],
            "compile_time": sum(program.seconds for program in programs.values()),
        },
        provenance={
            "accelerator": target.row,
            "platform": target.platform,
            "compiler": libraries.compiler(target),
            "programs": [asdict(program) for program in programs.values()],
            "remarks": list(remarks),
        },
    )


def _line(program: CompiledProgram) -> str:
    count, size = program.arguments
    memory = f"{program.memory / 1e6:,.1f} MB" if program.memory else "memory unknown"
    reason = program.message or memory
    return (
        f"  {program.state}: {program.name}, {count} arrays of {size / 1e6:,.1f} MB, "
        f"{reason}, {program.seconds:.1f} s"
    )


@contextlib.contextmanager
def _simulated(platform: str) -> Iterator[None]:
    """Inside the block studies get a CPU device as if it were of another platform."""
    cpu = backend.select("cpu")
    device = Backend(platform, cpu.devices[:1])

    def select(device_name: str = "auto", hosts: int = 1) -> Backend:
        del device_name, hosts
        return device

    with (
        mock.patch.object(backend, "select", select),
        mock.patch.object(peak, "size_class", lambda _: size_class(platform)),
        mock.patch.object(probe.Probe, "sample_again", lambda _: None),
        mock.patch.object(peers, "Worker", _Peer),
        mock.patch.object(peers_cases, "missing_packages", _packages),
        mock.patch.object(speedrun_cases, "missing_packages", _packages),
        _without_compilation_cache(),
    ):
        yield


def _packages(peer: str) -> list[str]:
    """In place of `missing_packages`: other libraries, which need the device, are left out."""
    return list(PEERS[peer].packages)


@contextlib.contextmanager
def _without_compilation_cache() -> Iterator[None]:
    """JAX cannot read cached programs of a device that is not attached."""
    previous = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]  # dynamic
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", previous)


class _Peer:
    """As `experiments.peers.process.Worker`, but in this process."""

    def __init__(self, peer: str, task: Path, **options: Any):
        del options  # of a process
        self.peer = peer
        self._methods = PeerMethods(peer, task_file.load(task))

    def call(self, method: str, *arguments: Any) -> Any:
        function: Callable = getattr(self._methods, method)
        return function(*arguments)

    def processor_time(self) -> float:
        """Seconds of processor time that this process has used."""
        return time.process_time()

    def close(self) -> None:
        """Ends nothing: there is no process."""
