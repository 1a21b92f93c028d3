"""PyTorch's networks with random weights, and their logits compared with ours."""

import numpy as np
from flax import nnx
from jax import numpy as jnp

TOLERANCE = 1e-4  # of the largest logit


def randomize(network):
    """Draws weights that keep activations near 1 through all layers, and statistics of batch norms.

    Args:
      network: a `torch.nn.Module`.

    Returns:
      The network, in evaluation mode.
    """
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(0)
    for name, parameter in network.named_parameters():
        if name.endswith(("layer_scale", "gamma")):
            nn.init.uniform_(parameter, 0.1, 0.5, generator=generator)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1, generator=generator)
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.normal_(module.bias, std=0.2, generator=generator)
            nn.init.uniform_(module.weight, 0.3, 1, generator=generator)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.2, generator=generator)
            nn.init.uniform_(module.running_var, 0.5, 2, generator=generator)
    return network.eval()


def logits_of_torch(network, images: np.ndarray) -> np.ndarray:
    """The logits of a `torch.nn.Module` for images ``f32[N, H, W, C]``."""
    import torch

    with torch.inference_mode():
        return network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()


def assert_logits_agree(
    name: str, model: nnx.Module, images: np.ndarray, expected: np.ndarray
) -> None:
    """Asserts that a network computes these logits, within `TOLERANCE` of the largest one.

    The largest difference is printed as a share of it.
    """
    model.eval()
    logits = np.asarray(nnx.jit(lambda model, images: model(images))(model, jnp.asarray(images)))
    largest = abs(expected).max()
    print(name, float(abs(logits - expected).max() / largest))
    assert expected.std() > 0.1 * largest
    np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE * largest)
