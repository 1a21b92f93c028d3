"""The mean logits of six views, against views made by hand."""

import types

import numpy as np

from experiments.workloads.multicrop_evaluation import MultiCropEvaluation

IMAGE = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
DOWN_RIGHT = np.array([[5.0, 4, 5], [2, 1, 2], [5, 4, 5]])  # the border reflects what is inside
UP_LEFT = np.array([[5.0, 6, 5], [8, 9, 8], [5, 6, 5]])
WEIGHTS = np.random.default_rng(0).normal(size=(3, 3))


def test_the_image_and_its_mirror_image_weigh_one_half():
    network = types.SimpleNamespace(
        outputs=lambda state, images, sharding: (images[..., 0] * WEIGHTS).sum((1, 2))[:, None]
    )
    logits = MultiCropEvaluation(network).outputs(None, IMAGE[None, :, :, None])
    mirrored = {
        name: np.mean([(view * WEIGHTS).sum(), (view[:, ::-1] * WEIGHTS).sum()])
        for name, view in (("own", IMAGE), ("down", DOWN_RIGHT), ("up", UP_LEFT))
    }
    expected = mirrored["own"] / 2 + mirrored["down"] / 4 + mirrored["up"] / 4
    np.testing.assert_allclose(logits, [[expected]], rtol=1e-6)
