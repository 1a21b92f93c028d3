"""No flags of other tests, as libtpu does not know them all, and an empty cache."""

import pytest

from experiments.preflight import cache


@pytest.fixture(scope="module", autouse=True)
def without_xla_flags():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)
        yield


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Nothing is in the cache of a test."""
    monkeypatch.setattr(cache, "default_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"
