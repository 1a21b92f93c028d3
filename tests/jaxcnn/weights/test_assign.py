"""Assigning named arrays to a network: names and shapes, new heads, and what is refused."""

import numpy as np
import pytest
from flax import nnx

from jaxcnn import models, weights
from jaxcnn.errors import InputError
from tests.support.small_weights import array_values, random_weights, small_net


def test_names_are_paths_and_random_keys_have_none():
    expected = {
        "blocks.layers.0.bias": (2,),
        "blocks.layers.0.kernel": (3, 3, 1, 2),
        "blocks.layers.1.bias": (2,),
        "blocks.layers.1.mean": (2,),
        "blocks.layers.1.scale": (2,),
        "blocks.layers.1.var": (2,),
        "out.bias": (3,),
        "out.kernel": (2, 3),
    }
    assert weights.array_shapes(small_net()) == expected
    assert weights.array_shapes(nnx.eval_shape(small_net)) == expected


def test_assigned_arrays_replace_the_initial_ones_and_random_keys_stay():
    model = small_net()
    new = random_weights(model)
    key = model.blocks.layers[2].rngs.key[...]
    assert weights.assign(model, new) == []
    assert {name: array.tobytes() for name, array in array_values(model).items()} == {
        name: array.tobytes() for name, array in new.items()
    }
    assert model.blocks.layers[2].rngs.key[...] == key


def test_assigned_arrays_are_cast_to_the_dtype_of_the_network():
    model = small_net()
    half = {name: array.astype(np.float16) for name, array in random_weights(model).items()}
    weights.assign(model, half)
    assert all(array.dtype == np.float32 for array in array_values(model).values())


@pytest.mark.parametrize("classes", [2, 3])
def test_a_new_head_keeps_its_initial_values_only_if_the_shapes_differ(classes):
    model = small_net(classes)
    initial, new = array_values(model), random_weights(small_net(3))
    kept = weights.assign(model, new, new_head=True)
    assert kept == ([] if classes == 3 else ["out.bias", "out.kernel"])
    for name, array in array_values(model).items():
        assert np.array_equal(array, initial[name] if name in kept else new[name]), name


def test_a_head_of_which_one_array_does_not_fit_keeps_all_its_initial_values():
    model, new = small_net(), random_weights(small_net())
    new["out.kernel"] = np.zeros((5, 3), np.float32)
    assert weights.assign(model, new, new_head=True) == ["out.bias", "out.kernel"]


def test_auxiliary_heads_may_be_missing_on_either_side():
    plain, auxiliary = (
        nnx.eval_shape(lambda name=name: models.build(name))
        for name in ("googlenet", "googlenet_aux")
    )
    head_names = set(weights.array_shapes(auxiliary)) - set(weights.array_shapes(plain))
    assert {name.split(".")[0] for name in head_names} == {"head1", "head2"}
    with_heads = {
        name: np.broadcast_to(np.float32(0), shape)
        for name, shape in weights.array_shapes(auxiliary).items()
    }
    without_heads = {name: array for name, array in with_heads.items() if name not in head_names}
    assert weights.assign(plain, with_heads, new_head=True) == []
    assert set(weights.assign(auxiliary, without_heads, new_head=True)) == head_names


@pytest.mark.parametrize("new_head", [False, True])
def test_weights_that_do_not_fit_are_refused_and_nothing_is_assigned(new_head):
    model = small_net()
    before, new = array_values(model), random_weights(model)
    del new["blocks.layers.0.bias"]
    new["blocks.layers.9.bias"] = np.zeros(1)
    new["blocks.layers.0.kernel"] = np.zeros((5, 5, 1, 2))
    with pytest.raises(InputError) as error:
        weights.assign(model, new, new_head=new_head)
    assert str(error.value) == (
        "the weights do not fit the network: 1 missing: blocks.layers.0.bias; 1 unknown: "
        "blocks.layers.9.bias; 1 of another shape: blocks.layers.0.kernel is 5×5×1×2 instead of "
        "3×3×1×2. They must be of the same --model, for images of the same size; only with "
        "--init-from may the last layer, if it is called 'out', be for other classes, and it then "
        "starts from random values"
    )
    assert all(np.array_equal(array, before[name]) for name, array in array_values(model).items())


def test_without_a_new_head_the_head_must_fit():
    with pytest.raises(
        InputError,
        match=r"2 of another shape: out.bias is 3 instead of 2, out.kernel is 2×3 instead of 2×2",
    ):
        weights.assign(small_net(2), random_weights(small_net(3)))


def test_an_error_lists_only_the_first_few_names():
    with pytest.raises(
        InputError,
        match=r"8 missing: blocks.layers.0.bias, blocks.layers.0.kernel, blocks.layers.1.bias, …\.",
    ):
        weights.assign(small_net(), {})
