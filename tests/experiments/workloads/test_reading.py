"""Splits that are read whole: what is decoded once, and what is not kept."""

from dataclasses import dataclass

import numpy as np
import pytest

from experiments.workloads import reading
from jaxcnn.data.source import ArraySplit
from jaxcnn.data.tfds import TfdsSplit


@dataclass
class Source:
    """Counts how many examples have been read."""

    pixel: int = 7
    count: int = 0

    def __len__(self) -> int:
        return 3

    def __getitems__(self, rows):
        self.count += len(rows)
        image = np.full((2, 2, 1), self.pixel, np.uint8)
        return [{"image": image, "label": row} for row in rows]


@pytest.fixture(autouse=True)
def empty():
    reading._read.cache_clear()


def test_a_split_of_tfds_is_decoded_once():
    source = Source()
    first = reading.read_in_parts(TfdsSplit(source, "train of a", 1), (2, 2, 1))
    count = source.count
    again = reading.read_in_parts(TfdsSplit(source, "train of a", 1), (2, 2, 1))
    assert source.count == count and again.images is first.images
    assert first.images.tolist() == np.full((3, 2, 2, 1), 7).tolist()
    assert first.labels.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        again.images[0] = 0


@pytest.mark.parametrize("location, modified, shape", [("b", 1, 2), ("a", 2, 2), ("a", 1, 4)])
def test_another_split_time_or_shape_is_read_anew(location, modified, shape):
    reading.read_in_parts(TfdsSplit(Source(), "a", 1), (2, 2, 1))
    other = TfdsSplit(Source(pixel=9), location, modified)
    assert reading.read_in_parts(other, (shape, shape, 1)).images.max() == 9


def test_large_splits_and_arrays_are_not_kept(monkeypatch):
    arrays = ArraySplit(np.zeros((3, 2, 2, 1), np.uint8), np.zeros(3, np.int32))
    assert reading.read_in_parts(arrays, (2, 2, 1)).images.flags.writeable
    monkeypatch.setattr(reading, "_KEPT_BYTES", 3 * 4 - 1)
    source = Source()
    for _ in range(2):
        reading.read_in_parts(TfdsSplit(source, "a", 1), (2, 2, 1))
    assert reading._read.cache_info().currsize == 0 and source.count >= 6
