"""The study of short runs: what it trains on, what it records, and PyTorch beside it."""

import numpy as np
import pytest

from experiments import run
from experiments.config import RunConfig
from experiments.measure.sources import DetectedSources, Quantity, Source
from experiments.studies import speedrun_cases
from jaxcnn import backend
from tests.support.records import read_records

SMALL = ["--study=speedrun", "--dataset=synthetic:160", "--batch-size=32", "--epochs=2"]


def test_all_training_images_train_and_the_record_has_both_accuracies(tmp_path, capsys):
    arguments = [*SMALL, "--device=cpu:1", "--target-accuracy=1", f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    (record,) = read_records(tmp_path, "speedrun")
    metrics, settings = record["metrics"], record["settings"]
    assert settings["library"] == "jaxcnn"
    assert settings["augment"] == "alternating_flip,mirror_shift"
    train, test = (record["provenance"]["examples"][name] for name in ("train", "test"))
    assert train + test == 160
    assert metrics["steps"] == 2 * (train // 32)
    assert [row["epoch"] for row in record["curves"]] == [1, 2]
    for name in ("test_accuracy", "test_accuracy_multicrop"):
        assert metrics[name] * test == pytest.approx(round(metrics[name] * test))
    images = 32 * metrics["steps"]
    assert metrics["images_per_second"] * metrics["training_time"] == pytest.approx(images)
    # Without the gradient with respect to the images: two products of the first layer of blocks
    # and three of all others, two FLOPs for a multiply-add.
    whitening, first, image = 31 * 31 * 288, 31 * 31 * 13_824, 236_294_720 // 2
    macs = whitening + 2 * first + 3 * (image - whitening - first)
    assert metrics["flops_per_step"] == 32 * 2 * macs
    if metrics["test_accuracy_multicrop"] < 1:
        assert "time_to_target" not in metrics
        assert "below the target of 1: raise --epochs" in capsys.readouterr().out


def test_the_energy_is_that_of_the_whole_training(tmp_path, monkeypatch):
    joules, watts = Quantity("gpu0_energy", "J"), 100

    def detect_sources(devices):
        return DetectedSources((Source("NVML gpu0", lambda now: {joules: watts * now}),), ("gpu0",))

    monkeypatch.setattr("experiments.measure.utilisation.detect_sources", detect_sources)
    assert run.main([*SMALL, "--device=cpu:1", f"--results={tmp_path}"]) == 0
    (record,) = read_records(tmp_path, "speedrun")
    metrics = record["metrics"]
    assert metrics["power"] == pytest.approx(watts)
    energy = metrics["energy_per_step"] * metrics["steps"]
    assert energy == pytest.approx(watts * metrics["training_time"], rel=0.05)


def test_the_defaults_are_the_published_recipe(monkeypatch):
    monkeypatch.setattr(speedrun_cases, "missing_packages", lambda peer: [])
    monkeypatch.setattr("jaxcnn.data.fingerprint", lambda *args, **kwargs: "")
    devices = backend.select("cpu:1")
    (case,) = speedrun_cases.cases(RunConfig(study="speedrun"), devices)
    config = case.config
    assert (config.model, config.dataset, config.target_accuracy) == (
        "speedrun_cnn",
        "cifar10",
        0.94,
    )
    assert (config.epochs, config.batch_size, config.optimizer) == (8, 2000, "speedrun")
    full = speedrun_cases.cases(RunConfig(study="speedrun", preset="full"), devices)
    assert [each.settings["library"] for each in full] == ["jaxcnn", "pytorch"]
    half = RunConfig(study="speedrun", preset="full", precision="bfloat16")
    assert [each.settings["library"] for each in speedrun_cases.cases(half, devices)] == ["jaxcnn"]


def test_pytorch_is_left_out_where_ours_trains_on_several_devices(monkeypatch):
    """It trains on one, so that a ratio would compare two devices with one."""
    monkeypatch.setattr(speedrun_cases, "missing_packages", lambda peer: [])
    monkeypatch.setattr("jaxcnn.data.fingerprint", lambda *args, **kwargs: "")

    def libraries(**options):
        config = RunConfig(study="speedrun", preset="full", **options)
        cases = speedrun_cases.cases(config, backend.select("cpu:2"))
        return [each.settings["library"] for each in cases]

    assert libraries() == libraries(strategy="data") == ["jaxcnn"]
    assert libraries(strategy="jit") == ["jaxcnn", "pytorch"]


@pytest.mark.parametrize("option", ["--stages=1", "--patience=2", "--init-from=somewhere"])
def test_options_that_the_study_fixes_are_refused(option, tmp_path, capsys):
    assert run.main([*SMALL, option, f"--results={tmp_path}"]) == 2
    name = option.partition("=")[0]
    assert f"{name} is not for --study=speedrun" in capsys.readouterr().err


@pytest.mark.peers
@pytest.mark.slow
def test_pytorch_trains_by_the_same_recipe(tmp_path):
    torch = pytest.importorskip("torch")
    arguments = [*SMALL, "--preset=full", "--device=cpu:1", f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    records = {r["settings"]["library"]: r for r in read_records(tmp_path, "speedrun")}
    ours, theirs = records["jaxcnn"]["metrics"], records["pytorch"]["metrics"]
    assert ours["steps"] == theirs["steps"]
    assert ours["flops_per_step"] == theirs["flops_per_step"]
    assert theirs["training_loss"] < 2.5
    assert records["pytorch"]["provenance"]["peer_versions"]["torch"] in torch.__version__


@pytest.mark.peers
def test_the_network_in_pytorch_has_the_same_logits():
    torch = pytest.importorskip("torch")
    import jax
    from flax import nnx

    from experiments.peers.speedrun_torch import Network
    from jaxcnn.models.speedrun import WIDTHS, SpeedrunCNN

    model = SpeedrunCNN((32, 32, 3), 10, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    state = nnx.to_pure_dict(nnx.state(model))
    state = jax.tree.map(
        lambda leaf: rng.uniform(0.1, 1, leaf.shape).astype(np.float32) - 0.3, state
    )
    network = Network(
        torch.from_numpy(np.moveaxis(state["whitening"]["kernel"], (2, 3), (1, 0)).copy()),
        WIDTHS,
        10,
    )
    for block, ours in zip(network.blocks, state["blocks"]["layers"].values(), strict=True):
        for conv, norm, number in ((block[0], block[2], 1), (block[4], block[5], 2)):
            kernel = ours[f"conv{number}"]["kernel"].transpose(3, 2, 0, 1)
            conv.weight.data = torch.from_numpy(kernel.copy())
            row = ours[f"norm{number}"]
            row["var"] = np.abs(row["var"]) + 0.5
            norm.bias.data = torch.from_numpy(row["bias"])
            norm.running_mean, norm.running_var = map(torch.from_numpy, (row["mean"], row["var"]))
    network.out.weight.data = torch.from_numpy(state["out"]["kernel"].T.copy())
    nnx.update(model, state)
    model.eval()
    images = rng.normal(size=(2, 32, 32, 3)).astype(np.float32)
    with torch.inference_mode():
        expected = network.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    np.testing.assert_allclose(model(images), expected, atol=1e-4 * np.abs(expected).max())
