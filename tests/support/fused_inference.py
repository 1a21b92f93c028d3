"""A model's inference, plain and with its layers fused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxcnn
from jaxcnn import ops
from jaxcnn.ops import native
from tests.support.native import lowered_text

CALLS = native.CALL_PREFIX + "activated_"
ACTIVATIONS = {
    "relu": nnx.relu,
    "maximum": lambda x: jnp.maximum(x, 0),
    "relu6": nnx.relu6,
    "leaky relu": nnx.leaky_relu,
    "leaky relu with a slope": functools.partial(nnx.leaky_relu, negative_slope=0.2),
    "sigmoid": nnx.sigmoid,
    "silu": nnx.silu,
    "gelu": nnx.gelu,
    "exact gelu": functools.partial(nnx.gelu, approximate=False),
    "hard swish": nnx.hard_swish,
}


def inference(model, fuse=ops.fuse_layers):
    """Plain and fused logits, and the text of the fused program."""
    model.eval()
    graph, state = nnx.split(jaxcnn.accelerate(model))
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9, 8, 20)), jnp.float32)

    def predict(state, images):
        return nnx.merge(graph, state)(images)

    fused = fuse(predict)
    return (
        jax.jit(predict)(state, images),
        jax.jit(fused)(state, images),
        lowered_text(fused, state, images),
    )
