"""Plans, written like the tables of the papers: the layer that each token builds."""

import pytest

from jaxcnn.models.layers import AvgPool, MaxPool
from jaxcnn.models.plan import chain


def convolutions(plan: str, inputs: int = 3) -> tuple[list[tuple], int]:
    """The arguments of each convolution of a plan, and the number of output channels."""
    arguments: list[tuple] = []
    _, channels = chain(plan, inputs, lambda *args: arguments.append(args))
    return arguments, channels


def test_convolutions():
    arguments, channels = convolutions("64 64/1 224/1x7 96/11:4v 8/3:2")
    assert arguments == [
        (3, 64, (3, 3), 1, None),
        (64, 64, (1, 1), 1, None),
        (64, 224, (1, 7), 1, None),
        (224, 96, (11, 11), 4, "VALID"),
        (96, 8, (3, 3), 2, None),
    ]
    assert channels == 8


def test_pools_keep_the_number_of_channels():
    layers, channels = chain("P P3 P3:2 P3:2s P3:2c A3:1s", 5, None)
    assert channels == 5
    assert list(layers.layers) == [
        MaxPool(2, 2, "VALID"),
        MaxPool(3, 3, "VALID"),
        MaxPool(3, 2, "VALID"),
        MaxPool(3, 2, "SAME"),
        MaxPool(3, 2, "CEIL"),
        AvgPool(3, 1, "SAME"),
    ]


def test_an_extra_token_receives_the_number_of_channels():
    received: list[int] = []
    chain("4 N 7 N", 1, lambda *args: args, N=received.append)
    assert received == [4, 7]


@pytest.mark.parametrize("token", ["64/", "64x3", "Q", "P3:", "v64", "64v/3", "P3x3", "-4"])
def test_an_unknown_token_is_named(token):
    with pytest.raises(ValueError, match=f"token '{token}' of the plan '8 {token}' is neither"):
        convolutions(f"8 {token}")
