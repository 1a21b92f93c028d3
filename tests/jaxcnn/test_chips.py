"""The names of processors, from files such as Linux has."""

import pytest

from jaxcnn.chips import cpu_name


def name_of(tmp_path, *lines: str) -> str:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("\n".join(lines) + "\n")
    return cpu_name(tmp_path)


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("AMD EPYC", "AMD EPYC family 26 model 2"),
        ("AMD EPYC 7B13 64-Core Processor", "AMD EPYC 7B13 64-Core Processor"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel(R) Xeon(R) CPU @ 2.20GHz"),
    ],
)
def test_a_processor_whose_product_is_hidden_is_named_by_family_and_model(tmp_path, reported, name):
    lines = ("processor\t: 0", "cpu family\t: 26", "model\t\t: 2", f"model name\t: {reported}")
    assert name_of(tmp_path, *lines) == name


def test_a_name_without_family_and_model_stays_as_it_is(tmp_path):
    assert name_of(tmp_path, "model name\t: AMD EPYC") == "AMD EPYC"


def test_without_a_model_name_it_is_the_systems(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert cpu_name(tmp_path) == "aarch64"
    assert name_of(tmp_path, "Features\t: fp asimd") == "aarch64"
