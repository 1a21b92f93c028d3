"""The device table and a user's own rows."""

import dataclasses
import re

import pytest

from experiments import hardware
from experiments.hardware import Cell, Device, find, how_to_add, load, peak_for
from jaxcnn.errors import InputError

ROW = """
[sources]
sheet = { title = "A data sheet", address = "https://example.com" }

[[device]]
name = "Card"
platform = "gpu"
kinds = ["NVIDIA Card"]
peaks.float32 = { value = 1e12, source = "sheet", date = 2026-01-31 }
bandwidth = { value = 1e11, source = "my own", date = 2026-02-01 }

[[device]]
name = "Other"
platform = "gpu"
kinds = ["NVIDIA Other"]
memory = { value = 8e9, source = "sheet", date = 2026-01-31 }
[device.peaks]
float16 = { value = 2e12, source = "sheet", date = 2026-01-31 }
"""


def cells_of(device: Device) -> dict[str, Cell]:
    fields = {field.name: getattr(device, field.name) for field in dataclasses.fields(device)}
    return (
        {f"peaks.{name}": cell for name, cell in device.peaks.items()}
        | {f"published.{name}": cell for name, cell in device.published.items()}
        | {f"prices.{name}": cell for name, cell in device.prices.items()}
        | {name: value for name, value in fields.items() if isinstance(value, Cell)}
    )


def write_toml(folder, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "platform", "name", "dtype", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "gpu", "H100 SXM", "bfloat16", 989.4e12),
        ("NVIDIA H200", "gpu", "H200 SXM", "float16", 989.4e12),
        ("NVIDIA B200", "gpu", "B200", "bfloat16", 2250e12),
        ("NVIDIA H100 PCIe", "gpu", "H100 PCIe", "bfloat16", 756.5e12),
        ("NVIDIA H100 NVL", "gpu", "H100 NVL", "float8", 1670.5e12),
        ("NVIDIA A100-PCIE-40GB", "gpu", "A100 PCIe 40 GB", "bfloat16", 312e12),
        ("NVIDIA A100 80GB PCIe", "gpu", "A100 PCIe 80 GB", "tf32", 156e12),
        ("NVIDIA L40S", "gpu", "L40S", "float8", 733e12),
        ("NVIDIA A10G", "gpu", "A10G", "bfloat16", 70e12),
        ("NVIDIA GeForce RTX 4090", "gpu", "RTX 4090", "bfloat16", 165.2e12),
        ("NVIDIA GeForce RTX 5090", "gpu", "RTX 5090", "bfloat16", 209.5e12),
        ("AMD Instinct MI300X", "gpu", "MI300X", "float8", 2614.9e12),
        ("NVIDIA A100-SXM4-40GB", "gpu", "A100 SXM 40 GB", "tf32", 156e12),
        ("NVIDIA A100-SXM4-80GB", "gpu", "A100 SXM 80 GB", "float32", 19.5e12),
        ("NVIDIA L4", "gpu", "L4", "bfloat16", 121e12),
        ("NVIDIA GeForce RTX 3090", "gpu", "RTX 3090", "float16", 71e12),
        ("Tesla T4", "gpu", "T4", "float16", 65e12),
        ("tesla t4", "gpu", "T4", "int8", 130e12),
        ("Tesla V100-SXM2-16GB", "gpu", "V100 SXM2 16 GB", "float16", 125e12),
        ("Tesla P100-PCIE-16GB", "gpu", "P100 PCIe", "float32", 9.3e12),
        ("Tesla P100-SXM2-16GB", "gpu", "P100 SXM2", "float16", 21.22e12),
        ("Tesla K80", "gpu", "Tesla K80", "float32", 8.74e12),
        ("Tesla K20Xm", "gpu", "Tesla K20X", "float32", 3.95e12),
        ("NVIDIA GeForce MX150", "gpu", "GeForce MX150", "float32", 1.177e12),
        ("NVIDIA GeForce GT 1030", "gpu", "GeForce GT 1030", "float32", 1.127e12),
        ("TPU v2", "tpu", "TPU v2", "bfloat16", 45e12),
        ("TPU v3", "tpu", "TPU v3", "bfloat16", 123e12),
        ("TPU v4", "tpu", "TPU v4", "int8", 275e12),
        ("TPU v5 lite", "tpu", "TPU v5e", "bfloat16", 197e12),
        ("TPU v5", "tpu", "TPU v5p", "bfloat16", 459e12),
        ("TPU v5p", "tpu", "TPU v5p", "int8", 918e12),
        ("TPU v6 lite", "tpu", "TPU v6e", "bfloat16", 918e12),
        ("TPU7x", "tpu", "TPU7x", "bfloat16", 2307e12),
    ],
)
def test_find_knows_the_device_kinds_of_jax(kind, platform, name, dtype, peak):
    device = find(kind, platform)
    assert device.name == name
    assert device.peaks[dtype].value == peak


@pytest.mark.parametrize(
    ("kind", "platform"),
    [
        ("NVIDIA H100 80GB", "gpu"),
        ("NVIDIA H100", "gpu"),
        ("NVIDIA A100-PCIE-80GB", "gpu"),
        ("TPU v5 lite", "gpu"),
        ("cpu", "cpu"),
    ],
)
def test_find_does_not_match_a_device_kind_by_its_beginning(kind, platform):
    assert find(kind, platform) is None


def test_every_figure_has_a_source_and_a_date():
    rows = {device.name: cells_of(device) for device in hardware.table()}
    assert len(rows) == len(hardware.table()) == 35
    for name, figures in rows.items():
        assert len(figures) >= 4, name
        for key, cell in figures.items():
            assert cell.address.startswith("http") or "C11" in cell.source, (name, key)
            assert re.fullmatch(r"20\d\d-\d\d-\d\d", cell.date), (name, key)


def test_figures_are_of_a_plausible_size():
    for device in hardware.table():
        for cell in device.peaks.values():
            assert 1e12 <= cell.value <= 1e16, device.name
        assert 1e10 < device.bandwidth.value < 1e13, device.name
        assert device.memory is None or 1e9 < device.memory.value < 1e12, device.name
        assert device.power is None or 10 < device.power.value <= 1500, device.name
        assert all(0.1 < price.value < 20 for price in device.prices.values()), device.name
        assert device.purchase is None or 100 < device.purchase.value < 1e5, device.name
        assert device.on_chip_memory is None or 1e5 < device.on_chip_memory.value < 1e9, device.name


def test_gpus_with_bfloat16_have_a_tf32_peak():
    for device in hardware.table():
        is_nvidia = device.platform == "gpu" and not device.name.startswith("MI")
        if is_nvidia and "bfloat16" in device.peaks:
            assert "tf32" in device.peaks, device.name


@pytest.mark.parametrize(
    ("name", "bandwidth", "power"),
    [
        ("B200", 7700e9, 1000),
        ("L40S", 864e9, 350),
        ("RTX 4090", 1008e9, 450),
        ("RTX 5090", 1792e9, 575),
        ("A100 PCIe 40 GB", 1555e9, 250),
        ("A100 PCIe 80 GB", 1935e9, 300),
        ("A10G", 600e9, 300),
        ("MI300X", 5300e9, 750),
    ],
)
def test_bandwidth_and_power_are_those_of_the_data_sheets(name, bandwidth, power):
    (device,) = [row for row in hardware.table() if row.name == name]
    assert (device.bandwidth.value, device.power.value) == (bandwidth, power)


def test_cards_that_are_compared_have_a_price_with_host_of_one_provider():
    cards = {row.name: row for row in hardware.table()}
    nebius = {
        name: card.prices["Nebius"] for name, card in cards.items() if "Nebius" in card.prices
    }
    assert {name: price.value for name, price in nebius.items()} == {
        "L40S": 1.5484,
        "H100 SXM": 2.95,
        "H200 SXM": 3.50,
        "B200": 5.50,
    }
    assert all(price.host and cards[name].price == price for name, price in nebius.items())
    assert not cards["H200 SXM"].prices["Google"].host and not cards["T4"].price.host
    assert cards["RTX 4090"].purchase.value == 1599 and cards["RTX 4090"].price is None


def test_what_was_measured_is_not_a_limit():
    tpus = {row.name: row for row in hardware.table() if row.platform == "tpu"}
    assert tpus["TPU v3"].power is None and tpus["TPU v3"].power_measured.value == 262
    assert tpus["TPU v4"].power is None and tpus["TPU v4"].power_measured.value == 192


def test_a_users_file_has_one_price_or_one_for_each_provider(tmp_path):
    cell = "{ value = 2.5, source = 'sheet', date = 2026-01-31"
    memory = "memory = {"
    one = load(write_toml(tmp_path, ROW.replace(memory, f"price = {cell} }}\n{memory}")))[1]
    assert one.price.value == 2.5 and one.price.host
    several = f"prices.Here = {cell}, host = false }}\nprices.There = {cell} }}\n{memory}"
    two = load(write_toml(tmp_path, ROW.replace(memory, several)))[1]
    assert [*two.prices] == ["Here", "There"] and not two.price.host
    for text, message in (
        (f"price = {cell} }}\nprices.A = {cell} }}", "price and prices: give one of them"),
        (f"prices.A = {cell}, host = 1 }}", "host of prices.A must be true or false, not 1"),
        ("prices = 3", "prices must be a table of cells"),
    ):
        with pytest.raises(InputError, match=message):
            load(write_toml(tmp_path, ROW.replace(memory, f"{text}\n{memory}")))


def test_chips_that_hold_two_jax_devices():
    two_devices = {device.name for device in hardware.table() if device.devices_per_chip == 2}
    assert two_devices == {"TPU v2", "TPU v3", "TPU7x", "Tesla K80"}
    k80 = find("Tesla K80", "gpu")
    assert k80.per_device(k80.bandwidth) == 240e9
    assert k80.per_device(None) is None


def test_figures_of_the_tpu_and_gpu_comparison():
    rows = {device.name: device.published for device in hardware.table() if device.published}
    assert rows.keys() == {"TPU v1", "Tesla K80", "Tesla P40"}
    figures = [
        [rows[name][key].value for name in ("Tesla K80", "TPU v1", "Tesla P40")]
        for key in ("on_chip_memory", "power")
    ]
    assert figures == [[16e6, 24e6, 11e6], [300, 75, 250]]
    assert rows["TPU v1"]["inference_int8"].value == 90e12
    assert "training_float32" not in rows["TPU v1"]
    assert rows["Tesla K80"]["inferences_relative"].value == pytest.approx(1 / 13, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "platform", "precision", "level", "peak"),
    [
        ("NVIDIA A100-SXM4-40GB", "gpu", "float32", None, 156e12),
        ("NVIDIA A100-SXM4-40GB", "gpu", "float32", "high", 156e12),
        ("NVIDIA A100-SXM4-40GB", "gpu", "float32", "highest", 19.5e12),
        ("NVIDIA A100-SXM4-40GB", "gpu", "tf32", None, 156e12),
        ("NVIDIA A100-SXM4-40GB", "gpu", "bfloat16", "highest", 312e12),
        ("NVIDIA A100-SXM4-40GB", "gpu", "float32", "TF32_TF32_F32_X3", None),
        ("Tesla T4", "gpu", "float32", None, 8.1e12),
        ("Tesla T4", "gpu", "bfloat16", None, None),
        ("TPU v5 lite", "tpu", "float32", None, 197e12),
        ("TPU v5 lite", "tpu", "float32", "bfloat16", 197e12),
        ("TPU v5 lite", "tpu", "float32", "high", None),
        ("TPU v5 lite", "tpu", "float32", "highest", None),
        ("TPU v5 lite", "tpu", "int8", None, 393e12),
        ("TPU v3", "tpu", "int8", None, None),
    ],
)
def test_peak_of_float32_is_that_of_the_dtype_it_is_computed_in(
    kind, platform, precision, level, peak
):
    cell = peak_for(find(kind, platform), precision, level)
    assert (cell and cell.value) == peak


def test_a_users_rows_take_precedence_over_the_table(tmp_path):
    rows = load(write_toml(tmp_path, ROW.replace("NVIDIA Other", "Tesla T4")))
    assert find("nvidia card", "gpu", rows).peaks["float32"] == Cell(
        1e12, "A data sheet", "2026-01-31", "https://example.com"
    )
    assert find("NVIDIA Card", "gpu", rows).bandwidth.source == "my own"
    assert find("Tesla T4", "gpu", rows).peaks["float16"].value == 2e12
    assert find("Tesla T4", "gpu").peaks["float16"].value == 65e12


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("bandwidth =", "bandwith =", 10, "unknown key 'bandwith': did you mean 'bandwidth'"),
        ('source = "my own", ', "", 10, "bandwidth has no source"),
        (", date = 2026-02-01", "", 10, "bandwidth has no date"),
        ("2026-02-01", '"yesterday"', 10, "date of bandwidth must be a day"),
        (
            "value = 1e11",
            "vale = 1e11",
            10,
            "unknown key of bandwidth 'vale': did you mean 'value'",
        ),
        ("value = 1e11", 'value = "1e11"', 10, "value of bandwidth must be a positive number"),
        ("value = 1e11", "value = -1", 10, "not -1"),
        ("value = 1e11", "value = nan", 10, "not nan"),
        ("value = 1e11", "value = true", 10, "not True"),
        ('"my own"', '" "', 10, "source of bandwidth must be a string"),
        ("{ value = 1e11", "1e11 # { value", 10, "bandwidth must be { value"),
        ("peaks.float32", "peaks.fp32", 9, "unknown dtype 'fp32'"),
        ('name = "Card"', "name = 5", 6, "name must be a string, not 5"),
        ('"gpu"', '"cuda"', 7, "platform 'cuda'; known: gpu, tpu, cpu"),
        ('["NVIDIA Card"]', '"NVIDIA Card"', 8, "kinds must be a list"),
        ('kinds = ["NVIDIA Card"]', "", 5, "kinds must be a list"),
        ('["NVIDIA Other"]', '["nvidia card"]', 15, "two devices have the kind 'nvidia card'"),
        ("memory = {", "note = 1\nmemory = {", 16, "note must be a string"),
        (
            "memory = {",
            "devices_per_chip = 0\nmemory = {",
            16,
            "devices_per_chip must be an integer of 1 or more, not 0",
        ),
        (
            "float16 = { value = 2e12",
            "float16 = { value = 0",
            18,
            "value of peaks.float16 must be a positive number",
        ),
        ("float16 =", "half =", 18, "unknown dtype 'half'"),
        ("[device.peaks]", "[device.peak]", 17, "unknown key 'peak': did you mean 'peaks'"),
        ('title = "A data sheet", ', "", 3, "source sheet needs"),
        ("[sources]", "[source]", 2, "unknown key 'source': did you mean 'sources'"),
        ("peaks.float32 =", "peaks.float32 ==", 9, "not TOML"),
        ("peaks.float32 = {", "peaks = 3 # {", 9, "peaks must be a table of cells"),
        ("[[device]]", "[device]", 12, "not TOML"),
    ],
)
def test_a_mistake_in_a_users_rows_is_reported_with_its_line(tmp_path, old, new, line, message):
    assert old in ROW
    path = write_toml(tmp_path, ROW.replace(old, new, 1))
    with pytest.raises(InputError, match=re.escape(f"{path}, line {line}: ")) as raised:
        load(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unreadable_file_is_reported(tmp_path):
    with pytest.raises(
        InputError, match=r"--devices=.*nothing.toml: cannot be read \(No such file"
    ):
        load(str(tmp_path / "nothing.toml"))
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory"):
        load(str(tmp_path))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(InputError, match="not a text file in UTF-8"):
        load(str(tmp_path / "latin.toml"))
    with pytest.raises(InputError, match="line 1: no device"):
        load(write_toml(tmp_path, ""))


def test_how_to_add_is_one_sentence_with_the_file_and_the_keys():
    sentence = how_to_add("NVIDIA H100 PCIe")
    for word in (
        'kinds = ["NVIDIA H100 PCIe"]',
        "devices.toml",
        "--devices=FILE",
        "tf32",
        "bandwidth",
        "source",
        "date",
    ):
        assert word in sentence
    assert "\n" not in sentence
