"""Options that are lists, and options from a file: the configurations that they stand for."""

import hashlib
import re
import tomllib

import pytest

from experiments.config import RunConfig, RunOptions
from experiments.config.configurations import LISTS, combination, parse
from jaxcnn.errors import InputError
from tests.support.paths import ROOT


def pairs(arguments: list[str], *names: str) -> list[tuple]:
    """The values of these options in each configuration."""
    return [tuple(getattr(config, name) for name in names) for config in parse(arguments)]


@pytest.fixture
def write(tmp_path):
    """Writes a file of options and returns its option."""

    def write_options(text: str) -> str:
        (tmp_path / "study.toml").write_text(text)
        return f"--config={tmp_path / 'study.toml'}"

    return write_options


def test_without_a_list_there_is_one_configuration():
    assert parse([]) == (RunConfig(),)
    assert parse(["--model=mlp:64", "--batch-size", "8"]) == (
        RunConfig(model="mlp:64", batch_size=8),
    )


def test_seeds_from_zero_on():
    assert pairs(["--seeds=3", "--model=mlp"], "seed", "seeds") == [(n, None) for n in range(3)]
    assert pairs(["--model=mlp,lenet5", "--seeds=2"], "model", "seed") == [
        ("mlp", 0),
        ("mlp", 1),
        ("lenet5", 0),
        ("lenet5", 1),
    ]
    for arguments, message in (
        (["--seeds=0"], "--seeds=0: must be from 1 to 1000"),
        (["--seeds=2", "--seed=1,2"], "--seed and --seeds exclude each other"),
    ):
        with pytest.raises(InputError, match=message):
            parse(arguments)


def test_seeds_in_a_file(write):
    assert pairs([write("seeds = 2")], "seed") == [(0,), (1,)]


@pytest.mark.parametrize(
    ("text", "arguments", "seeds"),
    [
        ("seeds = 3", ["--seed=5"], [5]),
        ("seeds = 3", ["--seed", "5,7"], [5, 7]),
        ("seed = 5", ["--seeds=2"], [0, 1]),
        ("seed = [5, 6]", ["--seeds=2"], [0, 1]),
        ("seeds = 3", ["--seeds=2"], [0, 1]),
        ("seeds = 2", ["--model=mlp"], [0, 1]),
    ],
)
def test_the_command_line_wins_over_what_it_excludes_in_the_file(text, arguments, seeds, write):
    assert pairs([write(text), *arguments], "seed") == [(seed,) for seed in seeds]


def test_options_that_exclude_each_other_in_one_place_are_refused(write):
    for text, more in (("seed = 1\nseeds = 2", []), ("", ["--seed=1", "--seeds=2"])):
        arguments = [write(text), *more]
        with pytest.raises(InputError, match="--seed and --seeds exclude each other"):
            parse(arguments)


def test_a_price_on_the_command_line_wins_over_a_list_of_prices_in_the_file(write):
    option = write('prices = "mine.toml"\nbatch_size = 0')
    with pytest.raises(InputError, match="line 2"):
        parse([option, "--price=2/h"])
    assert pairs([write('prices = "mine.toml"'), "--price=2/h"], "price", "prices") == [
        ("2/h", None)
    ]


def test_the_list_that_is_given_first_varies_slowest():
    arguments = ["--model=mlp,lenet5", "--batch-size", "32, 64"]
    expected = [("mlp", 32), ("mlp", 64), ("lenet5", 32), ("lenet5", 64)]
    assert pairs(arguments, "model", "batch_size") == expected
    expected = [("mlp", 32), ("lenet5", 32), ("mlp", 64), ("lenet5", 64)]
    assert pairs(["--batch_size=32,64", *arguments[:1]], "model", "batch_size") == expected


def test_every_option_that_may_be_a_list_is_split_and_has_values_of_its_type():
    arguments = [
        "--strategy=jit,data",
        "--model=mlp,lenet5",
        "--dataset=digits,mnist",
        "--image-size=28,32",
        "--precision=float32,bfloat16",
        "--batch-size=None,64",
        "--optimizer=sgd,adam",
        "--learning-rate=1e-3,1",
        "--seed=0,1",
    ]
    assert len(arguments) == len(LISTS)
    configs = parse(arguments)
    assert len(configs) == len(set(configs)) == 2**9
    assert configs[-1] == RunConfig(
        strategy="data",
        model="lenet5",
        dataset="mnist",
        image_size=32,
        precision="bfloat16",
        batch_size=64,
        optimizer="adam",
        learning_rate=1.0,
        seed=1,
    )
    for name in LISTS:
        assert re.search(rf"\b{name.replace('_', ' ')}\b", RunOptions.__doc__, re.IGNORECASE), name


def test_repeated_values_and_repeated_options_count_once():
    assert pairs(["--batch-size=32,64,032,32"], "batch_size") == [(32,), (64,)]
    assert pairs(["--batch-size=1,2", "--batch-size=8,9"], "batch_size") == [(8,), (9,)]
    assert pairs(["--batch-size=1,2", "--batch-size", "8"], "batch_size") == [(8,)]


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--augment=shift,flip"], "augment", "shift,flip"),
        (["--schedule=milestones:0.5,0.75:0.1"], "schedule", "milestones:0.5,0.75:0.1"),
        (["--stages", "1", "0.1"], "stages", (1.0, 0.1)),
        (["--patience", "3", "5"], "patience", (3, 5)),
        (["--study=train,kernels"], "study", "train,kernels"),
        (["--results=a,b"], "results", "a,b"),
        (["--init-from=a,b.weights"], "init_from", "a,b.weights"),
        (["--model=./my.nets/mine.py:Net"], "model", "./my.nets/mine.py:Net"),
        (["--model", "mlp:64"], "model", "mlp:64"),
    ],
)
def test_other_commas_and_colons_slashes_and_dots_are_part_of_the_value(arguments, name, value):
    assert pairs(arguments, name) == [(value,)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=mlp,,lenet5"], "--model=mlp,,lenet5: a value is missing beside a comma"),
        (["--batch-size=8,"], "--batch-size=8,: a value is missing beside a comma"),
        (["--batch-size=8,many"], "^--batch-size=many: expected a whole number$"),
        (["--batch-size=8,0"], "--batch-size=0: must be from 1 to"),
        (["--epochs=1,2"], "^--epochs=1,2: expected a whole number$"),
    ],
)
def test_a_bad_value_of_a_list_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        parse(arguments)


def test_a_configuration_is_named_by_the_options_that_others_do_not_share():
    configs = parse(["--seed=3", "--batch-size=32,64", "--model=mlp,lenet5"])
    assert combination(configs[0], configs) == "--model=mlp --batch-size=32"
    assert combination(configs[1], configs[:2]) == "--model=lenet5"
    assert combination(configs[0], configs[:1]) == ""


FILE = """
study = ["train", "inference"]  # names with a comma between them on the command line
model = ["resnet50", "a,b.py:Net"]
batch-size = 64
learning_rate = 1
stages = [1, 0.1]
patience = 4
augment = "shift,flip"
normalise = "unit"
force = true
"""


def test_a_file_has_the_options_of_the_command_line(write):
    configs = parse([write(FILE)])
    assert [config.model for config in configs] == ["resnet50", "a,b.py:Net"]  # a comma in a name
    config = configs[0]
    assert config.studies == ("train", "inference")
    assert (config.batch_size, config.learning_rate) == (64, 1.0)
    assert (config.stages, config.patience) == ((1.0, 0.1), (4,))
    assert (config.augmentations, config.normalise) == (("shift", "flip"), "unit")
    assert config.force and not config.json
    assert config.config_digest == hashlib.sha256(FILE.encode()).hexdigest()[:16]
    assert config.config.endswith("study.toml")


def test_the_command_line_wins_over_the_file(write):
    arguments = [write(FILE), "--model=mlp", "--no-force", "--batch-size=8,16", "--stages", "2"]
    configs = parse(arguments)
    assert [(config.model, config.batch_size) for config in configs] == [("mlp", 8), ("mlp", 16)]
    assert configs[0].stages == (2.0,) and not configs[0].force
    assert configs[0].normalise == "unit", "the others are the file's"
    assert parse([write("force = true"), "--force"])[0].force


def test_lists_of_the_file_vary_slower_than_those_of_the_command_line(write):
    option = write("seed = [1, 2]\nmodel = 'mlp,lenet5'")
    expected = [
        *((1, "mlp", 8), (1, "mlp", 16), (1, "lenet5", 8), (1, "lenet5", 16)),
        *((2, "mlp", 8), (2, "mlp", 16), (2, "lenet5", 8), (2, "lenet5", 16)),
    ]
    arguments = ["--batch-size=8,16", "--config", option.removeprefix("--config=")]
    assert pairs(arguments, "seed", "model", "batch_size") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bach_size = 8", "unknown option 'bach_size': did you mean 'batch_size'"),
        ("[training]\nepochs = 3", "unknown option 'training'"),
        ("config_digest = 'a'", "unknown option 'config_digest'"),
        ("batch_size = 'many'", 'batch_size = "many": must be a whole number, or a list of them'),
        ("batch_size = '8'", 'batch_size = "8": must be a whole number, or a list of them'),
        ("batch-size = [8, 1.5]", "batch-size = [8, 1.5]: must be a whole number, or a list"),
        ("batch_size = []", "batch_size = []: must be a whole number, or a list of them"),
        ("batch_size = true", "batch_size = true: must be a whole number, or a list of them"),
        ("batch_size = 0", "--batch-size=0: must be from 1 to"),
        ("learning_rate = [1, nan]", "--learning-rate=nan: must be a positive number"),
        ("epochs = [1, 2]", "epochs = [1, 2]: must be a whole number"),
        ("model = 5", "model = 5: must be text in quotes, or a list of them"),
        ("model = 'mlp,'", "--model=mlp,: a value is missing beside a comma"),
        ("device = ['cpu']", 'device = ["cpu"]: must be text in quotes'),
        ("study = ['train', 1]", 'study = ["train", 1]: must be text in quotes, or a list of'),
        ("force = 1", "force = 1: must be true or false"),
        ("force = 'true'", 'force = "true": must be true or false'),
        ("preset = 'fast'", 'preset = "fast": must be "quick" or "full"'),
        ("stages = ['a']", 'stages = ["a"]: must be a number, or a list of them'),
        ("stages = [-1.0]", "--stages=-1.0: must be a positive number"),
        ("time_limit = 1979-05-27", 'time_limit = "1979-05-27": must be a number'),
        ("time_limit = {a = 1}", 'time_limit = {"a": 1}: must be a number'),
        ("config = 'other.toml'", "the option config cannot name another file"),
        ("batch-size", "not TOML: "),
    ],
)
def test_a_bad_file_gets_its_name_and_line_the_value_and_what_is_allowed(write, text, message):
    option = write(f"# options\n{text}\n")
    with pytest.raises(InputError) as error:
        parse([option])
    assert str(error.value).startswith(f"{option.removeprefix('--config=')}, line 2: {message}")


def test_an_option_in_both_spellings_is_refused(write):
    with pytest.raises(InputError, match=r"line 2: the option batch_size is in the file twice"):
        parse([write("batch_size = 1\nbatch-size = 2")])


@pytest.mark.parametrize(
    ("name", "reason"), [("nowhere.toml", "No such file or directory"), ("", "Is a directory")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, reason):
    with pytest.raises(
        InputError, match=rf"--config={tmp_path / name}.*: cannot be read.*{reason}"
    ):
        parse([f"--config={tmp_path / name}"])


def test_the_file_of_the_documents_is_read(write):
    text = (ROOT / "docs" / "several-at-once.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    configs = parse([write(example)])
    lists = [value for value in tomllib.loads(example).values() if isinstance(value, list)]
    assert len(configs) == 4 and len(lists) >= 2
