"""Compilers for other platforms get no flags of the tests: libtpu does not know them all."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def without_xla_flags():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)
        yield
