"""Compilers for other platforms are not given the tests' flags, which not all of them know."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_flags_of_xla():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)
        yield
