"""Max and average pooling and their gradients as loops in NumPy."""

import numpy as np


def window_starts(size, window, stride, padding):
    """The positions along an axis at which windows begin; negative in the padding."""
    if padding == "SAME":
        count = -(-size // stride)
        padded = max((count - 1) * stride + window - size, 0)
        return [stride * i - padded // 2 for i in range(count)]
    complete = [start for start in range(0, size, stride) if start + window <= size]
    following = complete[-1] + stride
    if padding == "CEIL" and complete[-1] + window < size and following < size:
        return [*complete, following]
    return complete


def numpy_windows(images, window, strides, padding):
    """Yields the index ``(n, i, j, c)`` of each window and its pixels' index in the images."""
    rows, columns = (
        window_starts(images.shape[1 + axis], window[axis], strides[axis], padding)
        for axis in (0, 1)
    )
    for n, i, j, c in np.ndindex(len(images), len(rows), len(columns), images.shape[3]):
        down = slice(max(rows[i], 0), rows[i] + window[0])
        across = slice(max(columns[j], 0), columns[j] + window[1])
        yield (n, i, j, c), (n, down, across, c)


def numpy_pools(images, window, strides, padding):
    """The maxima, the means over whole windows, and the means over the image's own pixels."""
    windows = list(numpy_windows(images, window, strides, padding))
    last = windows[-1][0]
    values = np.zeros((3, *(index + 1 for index in last)))
    for place, index in windows:
        pixels = images[index]
        size = pixels.size if padding == "CEIL" else window[0] * window[1]
        values[(slice(None), *place)] = pixels.max(), pixels.sum() / size, pixels.mean()
    return values


def numpy_gradients(images, window, strides, padding, cotangent):
    """The gradients of the three `numpy_pools`."""
    gradients = np.zeros((3, *images.shape))
    for place, index in numpy_windows(images, window, strides, padding):
        pixels = images[index]
        size = pixels.size if padding == "CEIL" else window[0] * window[1]
        n, down, across, c = index
        first = np.unravel_index(np.argmax(pixels), pixels.shape)
        gradients[0, n, down.start + first[0], across.start + first[1], c] += cotangent[place]
        gradients[(1, *index)] += cotangent[place] / size
        gradients[(2, *index)] += cotangent[place] / pixels.size
    return gradients
