"""Trees of which each device holds one part, as arrays that one program can shard.

A device of a single program cannot hold an array that the others do not have. So the leaves of a
part are written one after the other into flat buffers, one for each dtype, and the buffers of all
parts are rows of one array, divided by rows.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxcnn.training.state import PyTree, Shapes

Buffers = dict[str, Array]  # by dtype


@dataclass(frozen=True)
class Packing:
    """Where the leaves of a tree are in the buffers of its parts.

    Attributes:
      whole: shapes of the whole tree.
      parts: shapes of each part, which has the paths of the whole tree. A leaf may be in several
        parts, with equal values, such as an optimizer's number of steps.

    >>> whole = {"a": jnp.arange(3.0), "b": jnp.ones(1)}
    >>> shapes = jax.eval_shape(lambda: whole)
    >>> packing = Packing(shapes, ({"a": shapes["a"]}, {"b": shapes["b"]}))
    >>> packing.pack(whole)["float32"].tolist()
    [[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]
    """

    whole: Shapes
    parts: tuple[Shapes, ...]
    _places: tuple[tuple[int, ...], ...] = dataclasses.field(init=False, repr=False)
    _widths: dict[str, int] = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        index = {path: number for number, path in enumerate(_paths(self.whole))}
        places = tuple(tuple(index[path] for path in _paths(part)) for part in self.parts)
        widths: dict[str, int] = {}
        for part in self.parts:
            for dtype, size in _sizes(jax.tree.leaves(part)).items():
                widths[dtype] = max(size, widths.get(dtype, 0))
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_widths", widths)

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes of the buffers that `pack` returns, by dtype."""
        dtypes = {str(leaf.dtype): leaf.dtype for leaf in jax.tree.leaves(self.whole)}
        count = len(self.parts)
        return {
            name: jax.ShapeDtypeStruct((count, width), dtypes[name])
            for name, width in self._widths.items()
        }

    def pack(self, tree: PyTree) -> Buffers:
        """The buffers ``[parts, n]`` of a whole tree, in host memory, padded with zeros."""
        rows = [
            self._join(jax.tree.leaves(self.select(part, tree)), np)
            for part in range(len(self.parts))
        ]
        return jax.tree.map(lambda *row: _module(row[0], np).stack(row), *rows)

    def unpack(self, buffers: Buffers) -> PyTree:
        """The whole tree from buffers ``[parts, n]`` in host memory."""
        leaves: list[Any] = [None] * len(jax.tree.leaves(self.whole))
        for part, places in enumerate(self._places):
            row = {name: values[part] for name, values in buffers.items()}
            leaves_of_part = jax.tree.leaves(self.unpack_part(part, row))
            for place, leaf in zip(places, leaves_of_part, strict=True):
                leaves[place] = leaf
        return jax.tree.unflatten(jax.tree.structure(self.whole), leaves)

    def pack_part(self, tree: PyTree) -> Buffers:
        """The buffers ``[n]`` of one part."""
        return self._join(jax.tree.leaves(tree), jnp)

    def unpack_part(self, part: int, buffers: Buffers) -> PyTree:
        """One part from its buffers ``[n]``."""
        shapes, structure = jax.tree.flatten(self.parts[part])
        starts = dict.fromkeys(self._widths, 0)
        leaves = []
        for shape in shapes:
            name = str(shape.dtype)
            start, size = starts[name], math.prod(shape.shape)
            leaves.append(buffers[name][start : start + size].reshape(shape.shape))
            starts[name] += size
        return jax.tree.unflatten(structure, leaves)

    def complete(self, part: int, tree: PyTree) -> PyTree:
        """The whole tree with the leaves of one part, and zeros in place of all others."""
        leaves: list[Any] = [None] * len(jax.tree.leaves(self.whole))
        for place, leaf in zip(self._places[part], jax.tree.leaves(tree), strict=True):
            leaves[place] = leaf
        shapes, structure = jax.tree.flatten(self.whole)
        zeros = (jax.lax.full(shape.shape, 0, shape.dtype) for shape in shapes)
        pairs = zip(leaves, zeros, strict=True)
        return jax.tree.unflatten(structure, [zero if x is None else x for x, zero in pairs])

    def changed_elsewhere(self, part: int, before: PyTree, after: PyTree) -> list[str]:
        """The paths of leaves that a function of one part has replaced in another part."""
        others = set(range(len(jax.tree.leaves(self.whole)))) - set(self._places[part])
        pairs = zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
        return [
            jax.tree_util.keystr(path, simple=True, separator=".")
            for place, ((path, leaf), next_leaf) in enumerate(pairs)
            if place in others and leaf is not next_leaf
        ]

    def select(self, part: int, tree: PyTree) -> PyTree:
        """One part of a whole tree."""
        leaves = jax.tree.leaves(tree)
        structure = jax.tree.structure(self.parts[part])
        return jax.tree.unflatten(structure, [leaves[place] for place in self._places[part]])

    def _join(self, leaves: Sequence[Array], arrays: Any) -> Buffers:
        """The buffers ``[n]`` of a part, computed by `numpy` or `jax.numpy`."""
        result = {}
        for name, shape in self.shapes().items():
            flat = [leaf.ravel() for leaf in leaves if str(leaf.dtype) == name]
            missing = shape.shape[1] - sum(map(len, flat))
            module = _module(shape, arrays)
            zeros = jax.lax.full if module is jnp else np.full
            result[name] = module.concatenate([*flat, zeros((missing,), 0, dtype=shape.dtype)])
        return result


def select_paths(tree: dict[Any, Any], paths: Sequence[tuple[Any, ...]]) -> dict[Any, Any]:
    """The part of nested dicts that lies at some paths.

    >>> select_paths({"a": {"x": 1, "y": 2}, "b": {"x": 3}}, [("a", "y")])
    {'a': {'y': 2}}
    """
    result: dict[Any, Any] = {}
    for path in paths:
        source, target = tree, result
        for key in path[:-1]:
            source, target = source[key], target.setdefault(key, {})
        target[path[-1]] = source[path[-1]]
    return result


def _paths(tree: Shapes) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(tree)]


def _sizes(leaves: Sequence[Any]) -> dict[str, int]:
    """The number of elements of each dtype."""
    sizes: dict[str, int] = {}
    for leaf in leaves:
        sizes[str(leaf.dtype)] = sizes.get(str(leaf.dtype), 0) + math.prod(leaf.shape)
    return sizes


def _module(array: Any, arrays: Any) -> Any:
    """`jax.numpy` for random keys, which NumPy does not have; else the module given."""
    return jnp if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else arrays
