"""The arrays of a saved state, compared with those that are to be restored."""

from typing import Any

import jax


def first_difference(saved: Any, target: Any) -> str:
    """Says how the arrays of a checkpoint differ from those of this run; empty if they do not.

    Parts without arrays are compared too: AdamW has one more than Adam.

    Args:
      saved: a tree of arrays or of Orbax's metadata, in which containers may be dicts and lists.
      target: a tree of arrays or shapes.

    >>> arrays = {"bias": jax.ShapeDtypeStruct((2,), "float32")}
    >>> first_difference(arrays, {"bias": jax.ShapeDtypeStruct((3,), "float32")})
    'bias has the shape [2] there, [3] here'
    >>> first_difference(arrays, {})
    'bias is only there'
    >>> first_difference(arrays, arrays | {"decay": ()})
    'decay, which is empty, is only here'
    """
    there, here = _shapes(saved), _shapes(target)
    for path in sorted(there.keys() | here.keys()):
        if path not in here:
            return f"{path} is only there"
        if path not in there:
            return f"{path} is only here"
        if there[path] != here[path]:
            return f"{path} has the shape {list(there[path])} there, {list(here[path])} here"
    empty_there, empty_here = _without_arrays(saved), _without_arrays(target)
    if paths := sorted(empty_there ^ empty_here):
        side = "there" if paths[0] in empty_there else "here"
        return f"{paths[0]}, which is empty, is only {side}"
    return ""


def _without_arrays(tree: Any) -> set[str]:
    """The paths of the largest parts that have no arrays, such as ``()``, ``{}`` and None."""
    leaves = jax.tree.leaves_with_path(tree, is_leaf=lambda part: not jax.tree.leaves(part))
    return {_name(path) for path, leaf in leaves if not jax.tree.leaves(leaf)}


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each array, by its path; of a key, that of the numbers that are saved."""
    shapes = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            key = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # without its sharding
            leaf = jax.eval_shape(jax.random.key_data, key)
        shapes[_name(path)] = tuple(leaf.shape)
    return shapes


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
