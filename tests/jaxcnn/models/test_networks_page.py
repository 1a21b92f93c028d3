"""The page that lists the networks agrees with the table of models and the names of weights."""

import re

from jaxcnn import models
from jaxcnn.weights.torch_names import NAMINGS
from tests.support.paths import ROOT
from tests.support.torch_digests import DIGESTS

ROW = re.compile(r"^\| `(\w+)` \| ([\d×]+) \| ([\d,]+) \| ([\d,.]+) \| (.+) \|$", re.MULTILINE)
# Timm has torchvision's names of these.
RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")


def test_each_network_has_a_row_with_its_size():
    rows = {name: cells for name, *cells in ROW.findall((ROOT / "docs/networks.md").read_text())}
    assert list(rows) == list(models.MODELS)
    for name, (shape, parameters, mflop, _) in rows.items():
        spec = models.spec(name)
        assert shape == "×".join(map(str, spec.input_shape))
        assert parameters == f"{spec.parameters:,}"
        assert mflop == f"{spec.flops / 1e6:,.2f}"


def test_the_libraries_are_those_whose_names_are_known():
    rows = {name: cells for name, *cells in ROW.findall((ROOT / "docs/networks.md").read_text())}
    listed = {name for name, cells in rows.items() if "torchvision" in cells[-1]}
    assert listed == NAMINGS.keys() - {"alexnet"}
    with_timm = {name for name, libraries in DIGESTS.items() if "timm" in libraries}
    assert {name for name in listed if "timm" in rows[name][-1]} == with_timm | set(RESNETS)
