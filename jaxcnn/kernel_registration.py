"""Registers the compiled kernels once both jaxcnn and JAX have been imported.

An executable that was compiled ahead of time (`jax.experimental.serialize_executable`) only names
the kernels that it calls. Loading it traces nothing, so nothing else would register them. JAX is
not imported for this, because that takes a second: if jaxcnn is imported first, the kernels are
registered at the end of JAX's own import. Registration does not start JAX's backends.
"""

import contextlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec

from jaxcnn.errors import InputError


def register_with_jax() -> None:
    """Registers the kernels now if JAX has been imported, otherwise when it is."""
    if sys.modules.get("jax"):  # None where its import is forbidden
        _register()
    else:
        sys.meta_path.insert(0, _JaxFinder())


class _JaxFinder(importlib.abc.MetaPathFinder):
    """Finds JAX as usual, and registers the kernels after its module has been executed.

    `importlib.util.find_spec` may look for JAX any number of times before it is imported.
    """

    _is_searching = False

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name != "jax" or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_searching = False
        if spec is None or spec.loader is None:  # not installed
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _register() -> None:
    from jaxcnn.ops.native import instruction_set

    with contextlib.suppress(InputError):  # an invalid request is an error at the first use
        instruction_set()
