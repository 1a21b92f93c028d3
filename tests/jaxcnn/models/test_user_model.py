"""Models of users by name: where they are found, and what is said of those that are of no use."""

import os
import sys
import textwrap

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from jaxcnn import models
from jaxcnn.errors import InputError
from jaxcnn.models import recipes
from tests.support.user_models import BROKEN, NETWORK, write_models

SHAPE = (8, 8, 1)


@pytest.fixture
def file(tmp_path):
    return write_models(tmp_path / "net.py", *(source for source, _ in BROKEN.values()))


def build(name):
    return models.build(str(name), num_classes=10, input_shape=SHAPE)


def error_of(name) -> InputError:
    with pytest.raises(InputError) as raised:
        build(name)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("attribute", ["Net", "WithoutOut", "Linen", "linen_module"])
def test_classes_and_linen_modules_become_networks(file, attribute):
    model = build(f"{file}:{attribute}")
    assert isinstance(model, nnx.Module) and model(jnp.ones((3, *SHAPE))).shape == (3, 10)


def test_the_seed_decides_the_weights(file):
    name, kernels = f"{file}:Net", []
    for seed in (0, 0, 1):
        model = models.build(name, num_classes=10, input_shape=SHAPE, seed=seed)
        kernels.append(model.out.kernel[...].tolist())
    assert kernels[0] == kernels[1] != kernels[2]


def test_relative_and_home_and_absolute_paths_are_one_model(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("HOME", str(file.parent))
    names = ("./net.py:Net", "net.py:Net", "~/net.py:Net", f"{file}:Net")
    user_models = {models.load_user_model(name) for name in names}
    (user,) = user_models
    assert (user.name, user.label) == (f"{file}:Net", "net.py:Net")


def test_a_module_of_a_package_is_found_by_import(tmp_path, monkeypatch):
    (tmp_path / "own_nets").mkdir()
    write_models(tmp_path / "own_nets" / "small.py")
    monkeypatch.syspath_prepend(tmp_path)
    user = models.load_user_model("own_nets.small:Net")
    assert (user.name, user.label) == ("own_nets.small:Net", "own_nets.small:Net")
    assert user.file == tmp_path / "own_nets" / "small.py"
    assert isinstance(build("own_nets.small:Net"), nnx.Module)


def test_a_file_imports_its_neighbors(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbor_of_net.py").write_text("WIDTH = 6")
    source = NETWORK.replace(
        "import jax.numpy", "from neighbor_of_net import WIDTH\nimport jax.numpy"
    )
    (tmp_path / "net.py").write_text(source.replace("4", "WIDTH"))
    assert build(f"{tmp_path / 'net.py'}:Net").out.kernel.shape == (6, 10)


def test_a_changed_file_is_another_model(file):
    name = f"{file}:Net"
    before = models.load_user_model(name)
    assert models.load_user_model(name) == before
    models.check_digest(name, before.digest)
    write_models(file, "# changed")
    assert models.load_user_model(name).digest != before.digest
    with pytest.raises(InputError, match="its file has changed since the study began"):
        models.check_digest(name, before.digest)


def test_the_row_has_no_published_sizes(file):
    row = models.spec(f"{file}:Net")
    assert (row.input_shape, row.num_classes, row.parameters, row.flops) == (None,) * 4
    assert row.recipe == recipes.OURS
    with pytest.raises(InputError, match=r"net\.py:Net has no published sizes"):
        models.build(f"{file}:Net", num_classes=10)


def test_only_layers_called_out_are_heads(file):
    assert models.heads(build(f"{file}:Net")) == ("out",)
    assert models.heads(build(f"{file}:WithoutOut")) == ()
    assert models.heads(build(f"{file}:Linen")) == ()


def test_nothing_is_computed_under_eval_shape(file):
    model = nnx.eval_shape(lambda: build(f"{file}:Net"))
    assert isinstance(model.out.kernel.get_value(), jax.ShapeDtypeStruct)
    assert models.count_parameters(model) == 3 * 3 * 4 + 4 + 8 + 4 * 10 + 10


@pytest.mark.parametrize("attribute", BROKEN)
def test_a_factory_that_cannot_be_used_is_one_line(file, attribute):
    error = error_of(f"{file}:{attribute}")
    assert str(error).startswith(f"model net.py:{attribute} ")
    assert BROKEN[attribute][1] in str(error) and not error.details


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./gone.py:Net", "cannot read .*gone.py .No such file"),
        ("./net.py", "give the class or the function after a colon, as in ./net.py:Network"),
        ("./net.py:", "give the class or the function after a colon"),
        (
            "./net.py:Absent",
            "has no 'Absent'; it defines Net, WithoutOut, Linen, linen_module, of_",
        ),
        ("./empty.py:Net", "has no 'Net'; it defines no class and no function"),
        ("./broken.py:Net", "broken.py, line 2: invalid syntax"),
        ("./binary.py:Net", "null bytes|is not Python"),
        ("no_such_module_here:Net", "no model 'no_such_module_here' .*no module"),
        ("sys:Net", "the module 'sys' has no file"),
        ("os.no_such_module:Net", "no module 'os.no_such_module'"),
        ("mpl:512", "unknown model 'mpl': did you mean 'mlp'"),
    ],
)
def test_names_that_lead_nowhere(file, monkeypatch, name, message):
    monkeypatch.chdir(file.parent)
    (file.parent / "broken.py").write_text("import os\nclass Net(:\n")
    (file.parent / "empty.py").write_text("")
    (file.parent / "binary.py").write_bytes(b"\0\1")
    with pytest.raises(InputError, match=message) as raised:
        build(name)
    assert "\n" not in str(raised.value) and not raised.value.details


RAISING = {
    "import": ("raise KeyError('at the top')", "importing it raises KeyError: 'at the top'"),
    "import of another": ("import no_such_library", "importing it raises ModuleNotFoundError"),
    "exit": ("raise SystemExit('stop')", "importing it raises SystemExit: stop"),
    "building": (
        "def helper():\n    raise ValueError('first\\nsecond')\n\n"
        "def Broken(num_classes, rngs):\n    return helper()",
        "building it raises ValueError: first",
    ),
    "calling": (
        "class Broken(Net):\n    def __call__(self, images):\n        return self.out(images)",
        "calling it with images of 8×8×1 raises TypeError: dot_general requires",
    ),
}


@pytest.mark.parametrize("where", RAISING)
def test_what_the_users_code_raises_is_shown_with_its_frames_alone(tmp_path, where):
    source, message = RAISING[where]
    file = write_models(tmp_path / "net.py", source)
    error = error_of(f"{file}:Broken")
    assert message in str(error)
    heading, *frames = [line for line in error.details.splitlines() if line[:6] != "      "]
    assert heading == "Traceback of your code:"
    files = {line.split('"')[1] for line in frames if line.startswith('  File "')}
    assert files == {str(file)}
    assert ("in helper" in error.details) == (where == "building")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "class Bad(Net):\n    def __init__(self, num_classes, input_shape, *, rngs):\n"
            "        super().__init__(num_classes, input_shape, rngs=rngs)\n"
            "        self.out.bias[...] = jnp.full(num_classes, jnp.nan)",
            "outputs are not finite .* before any training; so are its initial out.bias",
        ),
        (
            "class Bad(Net):\n    def __call__(self, images):\n"
            "        return jnp.log(0 * super().__call__(images))",
            "outputs are not finite .NaN or infinite. before any training$",
        ),
    ],
    ids=["weights", "outputs"],
)
def test_outputs_that_are_not_finite_are_refused(tmp_path, source, message):
    name = f"{write_models(tmp_path / 'net.py', source)}:Bad"
    with pytest.raises(InputError, match=message):
        models.require_finite(build(name), SHAPE, models.label(name))


def test_images_too_small_for_a_users_network_are_named(tmp_path):
    source = """
    from jaxcnn.models.lenet import LeNet5

    class Small(LeNet5):
        pass
    """
    (tmp_path / "small.py").write_text(textwrap.dedent(source))
    with pytest.raises(InputError, match=r"small\.py:Small' cannot take images of 8×8"):
        build(tmp_path / "small.py:Small")


def test_finite_outputs_are_not_refused(file):
    models.require_finite(build(f"{file}:Net"), SHAPE, "net.py:Net")


def test_names_of_files_and_of_published_models_are_told_apart():
    assert models.is_user_model(f"nets{os.sep}net.py:Net")
    assert not models.is_user_model("mlp:wide") and not models.is_user_model("lenet5")
