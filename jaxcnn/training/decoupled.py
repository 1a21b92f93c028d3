"""Optimizers whose weight decay is not a term of the loss: AdamW, LAMB and Muon.

The weight decay is subtracted from the weights directly, ``learning rate · weight decay · weight``
in each step (Loshchilov & Hutter 2019, *Decoupled Weight Decay Regularization*). Biases and the
scales of normalization layers never decay.
"""

from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers

from jaxcnn.training.objective import is_decayed

# Liu et al. 2025, *Muon is Scalable for LLM Training*, §2.2: with this root mean square, updates
# are as large as Adam's, whose learning rates and weight decays then hold for Muon too.
MUON_UPDATE_RMS = 0.2


def adamw(
    learning_rate: optax.ScalarOrSchedule, weight_decay: float = 0.0, layers: tuple[str, ...] = ()
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay.

    Args:
      learning_rate: a constant, or a function of the number of steps taken.
      weight_decay: its factor.
      layers: names of the layers that decay; all if empty.

    References:
      Loshchilov & Hutter 2019, *Decoupled Weight Decay Regularization*, algorithm 2.
    """
    return optax.adamw(learning_rate, weight_decay=weight_decay, mask=_decayed(layers))


def lamb(
    learning_rate: optax.ScalarOrSchedule, weight_decay: float = 0.0, layers: tuple[str, ...] = ()
) -> optax.GradientTransformation:
    """Adam whose update of a layer is as long as the layer's weights, for large batches.

    Biases and scales get Adam's update, as in the authors' program. `optax.lamb` scales theirs too:
    a bias, which begins at zero, then hardly moves.

    Args:
      learning_rate, weight_decay, layers: see `adamw`.

    References:
      You et al. 2020, *Large Batch Optimization for Deep Learning*, algorithm 2.
    """
    return optax.chain(
        optax.scale_by_adam(eps=1e-6),
        optax.add_decayed_weights(weight_decay, _decayed(layers)),
        optax.masked(optax.scale_by_trust_ratio(), _decayed()),
        optax.scale_by_learning_rate(learning_rate),
    )


def muon(
    learning_rate: optax.ScalarOrSchedule, weight_decay: float = 0.0, layers: tuple[str, ...] = ()
) -> optax.GradientTransformation:
    """Momentum made orthogonal for kernels, Adam with Nesterov momentum for biases and scales.

    The kernel of a convolution counts as the matrix from all inputs of an output pixel to the
    output channels.

    Args:
      learning_rate, weight_decay, layers: see `adamw`; of the size that suits AdamW.

    References:
      Jordan et al. 2024, *Muon: An optimizer for hidden layers in neural networks*; Liu et al.
      2025, *Muon is Scalable for LLM Training*, §2.2, for weight decay and the size of updates.
    """
    return optax.contrib.muon(
        learning_rate,
        weight_decay=weight_decay,
        weight_decay_mask=_decayed(layers),
        muon_weight_dimension_numbers=kernel_matrices,
        consistent_rms=MUON_UPDATE_RMS,
    )


def _decayed(layers: tuple[str, ...] = ()) -> Any:
    """A function of the parameters: the tree that is True where a parameter decays."""
    return lambda params: jax.tree.map_with_path(
        lambda path, leaf: is_decayed(path, leaf, layers), params
    )


def kernel_matrices(params: Any) -> Any:
    """Which axes of a kernel are its rows and which are its columns; None for other parameters."""

    def axes(leaf):
        if leaf.ndim < 2:
            return None
        return MuonDimensionNumbers(tuple(range(leaf.ndim - 1)), leaf.ndim - 1)

    return jax.tree.map(axes, params)
