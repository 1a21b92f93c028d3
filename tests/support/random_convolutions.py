"""Convolutions of random shapes and layouts, and their definition in float64."""

from dataclasses import dataclass

import jax
import numpy as np
from jax import lax

LAYOUTS = {
    1: [("NWC", "WIO", "NWC"), ("NCW", "OIW", "NCW")],
    2: [
        ("NHWC", "HWIO", "NHWC"),
        ("NCHW", "OIHW", "NCHW"),
        ("NCHW", "HWIO", "NHWC"),
        ("CHWN", "HWIO", "NHWC"),
    ],
    3: [("NDHWC", "DHWIO", "NDHWC"), ("NCDHW", "OIDHW", "NCDHW")],
}
AXES = {1: "W", 2: "HW", 3: "DHW"}


@dataclass(frozen=True)
class Convolution:
    """A convolution of images ``[N, ..., C]``; its operands may be stored in another layout."""

    images: tuple[int, ...]
    kernel: tuple[int, ...]  # [..., C / groups, D]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int
    layout: tuple[str, str, str]

    @property
    def axes(self) -> int:
        return len(self.strides)

    def __call__(self, images, kernel):
        """By JAX, of operands in the layout.

        The padding is an operation of its own: XLA:CPU reads outside of the images if a convolution
        crops one pixel in front and pads one behind.
        """
        pads = {name: (*pad, 0) for name, pad in zip(AXES[self.axes], self.padding, strict=True)}
        padded = lax.pad(images, 0.0, [pads.get(name, (0, 0, 0)) for name in self.layout[0]])
        return self.convolve(padded, kernel, [(0, 0)] * self.axes)

    def convolve(self, images, kernel, padding, precision=None):
        return lax.conv_general_dilated(
            images,
            kernel,
            self.strides,
            padding,
            rhs_dilation=self.dilation,
            dimension_numbers=self.layout,
            feature_group_count=self.groups,
            precision=precision,
        )

    @property
    def result_size(self) -> tuple[int, ...]:
        sizes = zip(
            self.images[1:-1],
            self.kernel[:-2],
            self.strides,
            self.padding,
            self.dilation,
            strict=True,
        )
        return tuple(
            (size + sum(pads) - (taps - 1) * step - 1) // stride + 1
            for size, taps, stride, pads, step in sizes
        )


def random_convolution(rng: np.random.Generator) -> Convolution:
    """One whose result is not empty."""
    while True:
        axes = int(rng.choice([1, 2, 2, 2, 3]))
        groups = int(rng.choice([1, 1, 1, 2, 4]))
        most = 40 if axes < 3 else 9
        channels, outputs = (groups * int(n) for n in rng.integers(1, most, 2))
        if rng.random() < 0.2:  # depthwise
            groups, outputs = channels, channels * int(rng.integers(1, 3))
        low = int(rng.choice([-1, 0, 0, 0]))
        size = rng.integers(3, 18 if axes < 3 else 7, axes)
        taps = [int(rng.choice([1, 3, 3, 4, 5, 7]))] * axes
        if rng.random() < 0.5:
            taps = rng.integers(1, 5, axes)
        ones = np.ones(axes, int)
        convolution = Convolution(
            images=(int(rng.integers(1, 5)), *map(int, size), channels),
            kernel=(*map(int, taps), channels // groups, outputs),
            strides=tuple(map(int, ones if rng.random() < 0.5 else rng.integers(1, 4, axes))),
            padding=tuple((int(a), int(b)) for a, b in rng.integers(low, 4, (axes, 2))),
            dilation=tuple(map(int, ones if rng.random() < 0.6 else rng.integers(1, 3, axes))),
            groups=groups,
            layout=LAYOUTS[axes][rng.integers(len(LAYOUTS[axes]))],
        )
        if min(convolution.result_size) > 0:
            return convolution


def by_definition(c: Convolution, images, kernel, cotangent):
    """Both gradients and the result in float64, tap by tap; images ``[N, ..., C]``."""
    images, kernel, cotangent = (np.float64(each) for each in (images, kernel, cotangent))
    margin = 40  # more than any padding and any window
    around = [(0, 0), *[(margin, margin)] * c.axes, (0, 0)]
    padded = np.pad(images, around)
    padded_gradient = np.zeros_like(padded)
    result, kernel_gradient = np.zeros_like(cotangent), np.zeros_like(kernel)
    outputs = cotangent.reshape(*cotangent.shape[:-1], c.groups, -1)
    for tap in np.ndindex(*c.kernel[:-2]):
        starts = [
            margin - low + t * step
            for (low, _), t, step in zip(c.padding, tap, c.dilation, strict=True)
        ]
        under_tap = (
            slice(None),
            *(
                slice(start, start + (count - 1) * stride + 1, stride)
                for start, count, stride in zip(starts, c.result_size, c.strides, strict=True)
            ),
        )
        pixels = padded[under_tap]
        inputs = pixels.reshape(*pixels.shape[:-1], c.groups, -1)
        weights = kernel[tap].reshape(-1, c.groups, outputs.shape[-1])
        result += np.einsum("...gc,cgd->...gd", inputs, weights).reshape(result.shape)
        kernel_gradient[tap] = np.einsum(
            "ngc,ngd->cgd",
            inputs.reshape(-1, *inputs.shape[-2:]),
            outputs.reshape(-1, *outputs.shape[-2:]),
        ).reshape(kernel[tap].shape)
        padded_gradient[under_tap] += np.einsum("...gd,cgd->...gc", outputs, weights).reshape(
            pixels.shape
        )
    inside = (slice(None), *(slice(margin, margin + size) for size in c.images[1:-1]))
    return padded_gradient[inside], kernel_gradient, result


def in_its_layout(c: Convolution, arrays, *, back: bool = False):
    """Images, kernel and result from the order that `by_definition` has, or back to it."""
    axes = AXES[c.axes]
    for array, names, layout in zip(
        arrays, (f"N{axes}C", f"{axes}IO", f"N{axes}C"), c.layout, strict=True
    ):
        here, there = (layout, names) if back else (names, layout)
        yield np.transpose(array, [here.index(name) for name in there])


def with_gradients(function, images, kernel, cotangent):
    result, pull_back = jax.vjp(function, images, kernel)
    return *pull_back(cotangent), result


def largest_errors(c: Convolution, values, exact) -> list[float]:
    """Of each array, relative to its largest value."""
    return [
        float(np.abs(np.float64(value) - reference).max() / np.abs(reference).max())
        for value, reference in zip(in_its_layout(c, values, back=True), exact, strict=True)
    ]
