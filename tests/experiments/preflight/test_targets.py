"""Targets by name: slices of TPUs, GPUs, simulated CPU devices."""

import pytest

from experiments.hardware import table
from experiments.preflight import target_groups, targets
from jaxcnn.errors import InputError


@pytest.mark.parametrize(
    ("name", "topology", "chips", "devices"),
    [
        ("tpu-v5e-256", "v5e:16x16", 256, 256),
        ("tpu-v2-64", "v2:4x8", 32, 64),
        ("tpu-v4-8", "v4:2x2x1", 4, 4),
        ("tpu-v5p-8", "v5p:2x2x1", 4, 4),
        ("tpu-7x-4", "tpu7x:2x2x1", 4, 8),
        ("tpu-v5e:2x4", "v5e:2x4", 8, 8),
        ("tpu-v4:4x4x12", "v4:4x4x12", 192, 192),
        ("gpu-a100-80gb", "1x1x1", 1, 1),
        ("gpu-a100-8", "1x1x8", 8, 8),
        ("cpu-8", "8", 8, 8),
    ],
)
def test_targets_are_counted_as_their_vendors_count(name, topology, chips, devices):
    target = targets.target(name)
    assert (target.name, target.topology) == (name, topology)
    assert (target.chips, target.devices) == (chips, devices)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tpu-v5e-3",
            "slices of v5e have 1, 4, 8, 16, 32, 64, 128, 256 chips; give another by its shape",
        ),
        ("tpu-v5q-4", "unknown target 'tpu-v5q-4': did you mean tpu-v5"),
        ("gpu-h1000", "did you mean gpu-h100, "),
        ("tpu7x-3", "the number counts cores, of which a chip has 2"),
        ("tpu-v5e:3x3", "v5e has no slice of 3x3; its slices are 1x1, 2x2, 2x4, 4x4"),
        ("tpu-v5e:3x7", "v5e has no slice of 3x7"),
        ("tpu-v4:2x4x2", "AxBxC of multiples of 4 with A ≤ B ≤ C"),
        ("tpu-v4:16x16x20", "v4 has no slice of 16x16x20"),
        ("gpu-t4-0", "unknown target"),
        ("cpu-10000", "at most 9999 devices"),
        ("gpu-h100-64", "one machine, which has at most 16 GPUs"),
        ("", "unknown target ''"),
    ],
)
def test_impossible_targets_are_refused(name, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        targets.find(name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("v5litepod-8", "tpu-v5e-8"),
        ("tpu-v5litepod-256", "tpu-v5e-256"),
        ("tpu7x-8", "tpu-7x-4"),  # Google counts cores, of which a chip has two
        ("tpu7x:2x2x2", "tpu-7x:2x2x2"),
        ("v4-8", "tpu-v4-8"),
        ("tpu-v6e", "tpu-v6e-1"),
        ("V6E-4", "tpu-v6e-4"),
        ("a100-40gb", "gpu-a100"),
        ("gpu-a100-40gb-8", "gpu-a100-8"),
        ("nvidia-a100-80gb", "gpu-a100-80gb"),
        ("nvidia-tesla-t4", "gpu-t4"),
        ("RTX 4090", "gpu-rtx4090"),
        ("gpu-rtx-3090", "gpu-rtx3090"),
        ("A10G", "gpu-a10g"),
        ("l4", "gpu-l4"),
        ("l40s-4", "gpu-l40s-4"),
        ("cpu-4", "cpu-4"),
    ],
)
def test_names_of_clouds_are_understood(name, ours):
    assert targets.target(name).name == ours


def test_an_unknown_name_gets_the_five_nearest_and_not_all():
    with pytest.raises(InputError) as raised:
        targets.target("gpu-a100-96gb")
    message = str(raised.value)
    assert message.count("gpu-") <= 6 and len(message) < 160 and "gpu-a100-80gb" in message


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tpu-v5e-1", {"chips_per_host_bounds": (1, 1, 1)}),
        ("tpu-v6e-4", {}),
        ("tpu-7x-1", {"chips_per_host_bounds": (1, 1, 1)}),
        ("tpu-v4-8", {"chip_config_name": "megacore"}),
    ],
)
def test_libtpu_is_told_of_single_chips_and_of_megacore(name, options):
    assert targets.target(name).topology_options == options


def test_slices_have_the_published_interconnect():
    """Both directions: TPU7x as printed; v4 has 6 links of 400 Gbit/s, v3 4 of 100 GB/s."""
    links = {name: targets.target(name).interconnect for name in ("tpu-7x-4", "tpu-v4-8")}
    assert links["tpu-7x-4"].value == 1200e9
    assert links["tpu-v4-8"].value == 2 * 6 * 400e9 / 8
    assert targets.target("tpu-v3-8").interconnect.value == 2 * 4 * 100e9
    assert all(link.date == "2026-11-23" and link.address for link in links.values())


def test_groups_stand_for_their_members_and_duplicates_are_dropped():
    duplicates = "Colab,gpu-t4,T4,gpu-t4-1,v5e,tpu-v5e,tpu-v5e:1x1,cpu"
    names = [target.name for target in targets.find(duplicates)]
    assert names == ["tpu-v5e-1", "gpu-t4", "cpu"]
    assert {target.platform for target in targets.find("all")} == {"cpu", "gpu", "tpu"}


@pytest.mark.parametrize("prefix", ["gpu-t4-", "cpu-", "tpu7x-", "tpu-v5e-"])
def test_a_number_with_thousands_of_digits_is_an_unknown_target(prefix):
    with pytest.raises(InputError, match=f"unknown target '{prefix}999.*…'") as error:
        targets.find(prefix + "9" * 5000)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("shape", ["2x", "x", "", "0x2", "9" * 5000])
def test_a_shape_is_written_like_those_of_the_table(shape):
    with pytest.raises(InputError, match=r"the shape of a slice is written as in tpu-v5e:\d"):
        targets.find(f"tpu-v5e:{shape}")


def test_every_target_is_a_row_of_the_device_table():
    rows = {row.name for row in table()}
    for name in set(targets.known_names()) - target_groups.GROUPS.keys() - {"cpu"}:
        target = targets.target(name)
        assert target.row in rows and target.device.bandwidth and target.device.memory, name
        if target.memory:
            assert target.memory == pytest.approx(target.device.memory.value, rel=0.1), name


def test_gpus_are_described_as_their_drivers_describe_them():
    description = targets.target("gpu-t4").description
    for line in (
        "core_count: 40",
        "major: 7 minor: 5",
        "clock_rate_ghz: 1.59",
        'platform_name: "CUDA"',
        '"Tesla T4"',
    ):
        assert line in description
    # 3 multiprocessors of 128 lanes, two FLOP per clock: the peak of the device table
    peak = targets.target("gpu-mx150").device.peaks["float32"].value
    assert peak == pytest.approx(3 * 128 * 2 * 1.532e9, rel=1e-3)
