"""The arrays of a saved state, compared with those that are to be restored."""

from typing import Any

import jax


def first_difference(saved: Any, target: Any) -> str:
    """Says how the arrays of a checkpoint differ from those of this run; empty if they do not.

    Args:
      saved: a tree of arrays or of Orbax's metadata, in which containers may be dicts and lists.
      target: a tree of arrays or shapes.

    >>> arrays = {"bias": jax.ShapeDtypeStruct((2,), "float32")}
    >>> first_difference(arrays, {"bias": jax.ShapeDtypeStruct((3,), "float32")})
    'bias has the shape [2] there, [3] here'
    >>> first_difference(arrays, {})
    'bias is only there'
    """
    there, here = _shapes(saved), _shapes(target)
    for path in sorted(there.keys() | here.keys()):
        if path not in here:
            return f"{path} is only there"
        if path not in there:
            return f"{path} is only here"
        if there[path] != here[path]:
            return f"{path} has the shape {list(there[path])} there, {list(here[path])} here"
    return ""


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each array, by its path; of a key, that of the numbers that are saved."""
    shapes = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            key = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # without its sharding
            leaf = jax.eval_shape(jax.random.key_data, key)
        shapes[jax.tree_util.keystr(path, simple=True, separator="/")] = tuple(leaf.shape)
    return shapes
