"""The table of rows holds whole batches, epoch by epoch."""

import numpy as np
import pytest

from jaxcnn.data.scheduled import batch_rows
from jaxcnn.errors import InputError


def test_every_epoch_has_whole_batches_of_different_rows():
    rows = batch_rows(range(10, 17), steps=5, batch_size=3, seed=1)
    assert rows.shape == (5, 3) and rows.dtype == np.int32
    # Two batches per epoch, which leave out one of the seven rows.
    for epoch in (rows[:2], rows[2:4]):
        assert len(set(epoch.ravel())) == 6
        assert set(epoch.ravel()) <= set(range(10, 17))


def test_the_order_depends_on_epoch_and_seed():
    rows = batch_rows(range(10, 17), steps=5, batch_size=3, seed=1)
    assert rows[:2].tolist() != rows[2:4].tolist()
    assert batch_rows(range(10, 17), 5, 3, seed=2).tolist() != rows.tolist()


def test_a_batch_larger_than_the_rows_is_refused():
    with pytest.raises(InputError, match="batch size 8 is larger than the 7 rows"):
        batch_rows(range(10, 17), steps=5, batch_size=8, seed=1)
