"""Runs a program of JAX as on an accelerator that is not attached.

Inside `absent_device` each function that `jax.jit` compiles is compiled by the accelerator's own
compiler. A call returns ones of the shapes that the accelerator would return, at once, or is out
of memory if the plan is too large. Small programs, such as those that initialize weights, are in
addition run on the CPU for their true results.
"""

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import SingleDeviceSharding

from experiments.measure.memory import memory_plan
from experiments.preflight.target_devices import available_memory, target_devices
from experiments.preflight.targets import Target
from experiments.rehearsal.absent_program import CompiledProgram, Executable, size_of

_jit = jax.jit


@contextlib.contextmanager
def absent_device(
    target: Target, report: Callable[[CompiledProgram], None]
) -> Iterator[dict[str, CompiledProgram]]:
    """Replaces `jax.jit` inside the block.

    Functions that were jitted before the block are not affected.

    Args:
      target: one accelerator, whose compiler is installed.
      report: gets each program after it was compiled.

    Yields:
      The programs by the hash of what the compiler got, in order; equal ones are compiled once.

    >>> from experiments.preflight.targets import target
    >>> with absent_device(target("cpu"), print) as programs:
    ...     result = jax.jit(lambda a: a @ a)(jnp.ones((512, 512)))
    CompiledProgram(name='<lambda>', arguments=(1, 1048576), state='compiled', ...)
    >>> len(programs), float(result[0, 0])  # 268 MFLOP: not run
    (1, 1.0)
    """
    compiler = _Compiler(target, report)

    def jit(function: Callable | None = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(jit, **options)
        jitted = _jit(function, **options)
        return _Function(jitted, options.get("compiler_options"), compiler)

    with mock.patch.object(jax, "jit", jit):
        yield compiler.programs


class _Compiler:
    """Compiles for one device, each program once."""

    def __init__(self, target: Target, report: Callable[[CompiledProgram], None]):
        devices = target_devices(target)
        self.sharding = SingleDeviceSharding(devices[0])
        self.available = available_memory(target, devices)
        self.report = report
        self.programs: dict[str, CompiledProgram] = {}
        self._executables: dict[str, jax.stages.Compiled | Exception] = {}
        self._large: list[Executable] = []  # the last large program that was called

    def __call__(self, traced: jax.stages.Traced, options: Any) -> "Executable":
        """The program for the device.

        Raises:
          Exception: what the compiler raises.
        """
        arguments = jax.tree.leaves(traced.args_info)
        shapes = [
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=self.sharding)
            for leaf in arguments
        ]
        donated = [place for place, leaf in enumerate(arguments) if leaf.donated]
        function = jaxpr_as_fun(_with_host_constants(traced.jaxpr))
        program = CompiledProgram(
            traced.fun_name, (len(shapes), sum(map(size_of, shapes))), "compiled"
        )
        start = time.perf_counter()
        digest = ""
        try:
            lowered = _jit(function, donate_argnums=donated).lower(*shapes)
            digest = hashlib.sha256(lowered.as_text().encode()).hexdigest()
            if digest not in self.programs:
                executable = lowered.compile(compiler_options=options)
        except Exception as error:
            program.state, program.message = "failed", _first_line(error)
            self._keep(digest or f"{program.name} {shapes}", program, start, error)
            raise
        if digest not in self.programs:
            plan = memory_plan(executable)
            program.memory = plan.total if plan else None
            if self.available and program.memory and program.memory > self.available:
                program.state = "out_of_memory"
            self._keep(digest, program, start, executable)
        outcome = self._executables[digest]
        if isinstance(outcome, Exception):
            raise outcome
        return Executable(outcome, traced, self.programs[digest], self._large)

    def _keep(
        self,
        digest: str,
        program: CompiledProgram,
        start: float,
        executable: jax.stages.Compiled | Exception,
    ) -> None:
        program.seconds = time.perf_counter() - start
        self.programs[digest], self._executables[digest] = program, executable
        self.report(program)


class _Function:
    """A jitted function, as `jax.jit` returns it; inside another one's trace it is just that."""

    def __init__(self, jitted: Any, options: Any, compiler: _Compiler):
        functools.update_wrapper(self, jitted)
        self._jitted, self._options, self._compiler = jitted, options, compiler
        self._executables: dict[int, tuple[ClosedJaxpr, Executable]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _is_tracing(args, kwargs):
            return self._jitted(*args, **kwargs)
        traced = self._jitted.trace(*args, **kwargs)
        executable = self._executable(traced, self._options)
        if executable.is_small:
            return self._jitted(*args, **kwargs)
        return executable(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        traced = self._jitted.trace(*args, **kwargs)
        return _Lowered(self._jitted, traced, (args, kwargs), self)

    def _executable(self, traced: jax.stages.Traced, options: Any) -> "Executable":
        # JAX caches the trace; the entry keeps it alive, so that its id is not used again.
        key = id(traced.jaxpr)
        if key not in self._executables:
            self._executables[key] = traced.jaxpr, self._compiler(traced, options)
        return self._executables[key][1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jitted, name)


class _Lowered:
    """As `jax.stages.Lowered`, but compiled for the absent device."""

    def __init__(self, jitted: Any, traced: jax.stages.Traced, arguments: Any, function: _Function):
        self._jitted, self._traced, self._arguments = jitted, traced, arguments
        self._function = function

    def compile(self, compiler_options: Any = None) -> Any:
        options = compiler_options or self._function._options
        executable = self._function._executable(self._traced, options)
        if not executable.is_small:
            return executable
        args, kwargs = self._arguments
        return self._jitted.lower(*args, **kwargs).compile()

    def __getattr__(self, name: str) -> Any:
        args, kwargs = self._arguments
        return getattr(self._jitted.lower(*args, **kwargs), name)


def _is_tracing(args: Any, kwargs: Any) -> bool:
    with jax.transfer_guard("allow"):
        leaves = jax.tree.leaves((jnp.zeros(()), args, kwargs))
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _with_host_constants(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, its constants not bound to a device."""
    return ClosedJaxpr(jaxpr.jaxpr, [_on_host(constant) for constant in jaxpr.consts])


def _on_host(constant: Any) -> Any:
    is_key = jnp.issubdtype(constant.dtype, jax.dtypes.prng_key)
    return constant if is_key else np.asarray(constant)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
