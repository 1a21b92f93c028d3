"""The equations of a traced program: reading them, and computing some of them in another way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

Atom = Var | Literal
Read = Callable[[Any], Any]  # of the value of an atom


def evaluate(
    program: ClosedJaxpr,
    inputs: Mapping[Var, Any],
    compute: Callable[[int, JaxprEqn, Read], Sequence[Any] | None],
) -> Read:
    """Computes the equations of a program in order.

    Args:
      program: traced.
      inputs: values of its input variables, at least of those that are read.
      compute: ``compute(number, equation, read)`` returns the outputs of an equation; None skips
        the equation, whose outputs must then not be read.

    Returns:
      ``read(atom)``, the value of a literal, an input or a variable that was computed.
    """
    values = dict(zip(program.jaxpr.constvars, program.consts, strict=True)) | dict(inputs)

    def read(atom: Atom) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for number, equation in enumerate(program.jaxpr.eqns):
        outputs = compute(number, equation, read)
        if outputs is not None:
            values.update(zip(equation.outvars, outputs, strict=True))
    return read


def compute_equation(jaxpr: Jaxpr, equation: JaxprEqn, read: Read) -> Sequence[Any]:
    """The outputs of one equation, as a program of its own."""
    inputs = list(dict.fromkeys(variables_of(equation.invars)))
    program = jaxpr.replace(
        constvars=[],
        invars=inputs,
        outvars=equation.outvars,
        eqns=[equation],
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    return jaxpr_as_fun(ClosedJaxpr(program, ()))(*map(read, inputs))


def without_derivatives(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, in which no function has derivatives of its own (`jax.custom_vjp`).

    Such a function is one equation, which hides those of its body.
    """
    jaxpr = program.jaxpr

    def compute(_: int, equation: JaxprEqn, read: Read) -> Sequence[Any]:
        if equation.primitive.name == "custom_vjp_call":
            return jaxpr_as_fun(equation.params["call_jaxpr"])(*map(read, equation.invars))
        return compute_equation(jaxpr, equation, read)

    def results(*inputs: Any) -> list[Any]:
        read = evaluate(program, dict(zip(jaxpr.invars, inputs, strict=True)), compute)
        return [read(atom) for atom in jaxpr.outvars]

    return jax.make_jaxpr(results)(*map(type_of, jaxpr.invars))


class Uses:
    """Which equations of a program use a variable, by their numbers; once for each operand."""

    def __init__(self, jaxpr: Jaxpr):
        self._results = set(variables_of(jaxpr.outvars))
        self._users: dict[Var, list[int]] = {}
        for number, equation in enumerate(jaxpr.eqns):
            for variable in variables_of(equation.invars):
                self._users.setdefault(variable, []).append(number)

    def __getitem__(self, variable: Var) -> tuple[int, ...]:
        """In order; empty if the variable is a result of the program."""
        return () if variable in self._results else tuple(self._users.get(variable, ()))

    def only(self, variable: Var) -> int | None:
        """The equation that alone uses the variable, in one operand; None if there is none."""
        users = self[variable]
        return users[0] if len(users) == 1 else None

    def are_within(self, variables: Sequence[Var], equations: range) -> bool:
        """Whether each of the variables is used, and by these equations alone."""
        return all(self[each] and {*self[each]} <= {*equations} for each in variables)


def inner_jaxprs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs that an equation calls: bodies of loops, branches, functions."""
    for value in equation.params.values():
        for entry in value if isinstance(value, list | tuple) else (value,):
            if isinstance(entry, ClosedJaxpr):
                yield entry.jaxpr
            elif isinstance(entry, Jaxpr):
                yield entry


def variables_of(atoms: Sequence[Atom]) -> list[Var]:
    """The atoms that are not literals."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def type_of(atom: Atom) -> jax.ShapeDtypeStruct:
    """The shape and the dtype of an atom's value."""
    aval: Any = atom.aval
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
