import pickle

import numpy as np
import pytest
import torch
from torch import nn

from swiftfl.data.synthetic import synthetic
from swiftfl.errors import UserError
from swiftfl.sample import Batch
from swiftfl.workload.models import MODELS, model
from swiftfl.workload.module import ModuleWorkload

COLOUR = (3, 32, 32)


def count(factory):
    with torch.device("meta"):
        return sum(p.numel() for p in factory().parameters())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18", 11_173_962),
        ("resnet50", 23_520_842),
        ("thin_resnet18", 175_818),
        ("thin_resnet50", 545_930),
        ("resnet34", 21_282_122),
        ("resnet101", 42_512_970),
        ("resnet152", 58_156_618),
        ("thin_resnet34", 514_218),
        ("thin_resnet101", 1_749_258),
        ("thin_resnet152", 2_741_386),
        ("cnn", 33_834),
        ("logistic", 30_730),
    ],
)
def test_parameter_counts(name, parameters):
    assert count(model(name, COLOUR, 10)) == parameters
    if "resnet" in name:
        assert count(model(name, COLOUR, 10, norm="group")) == parameters


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"resnet34", "resnet50", "resnet101", "resnet152"}))
@pytest.mark.parametrize("shape", [(1, 28, 28), COLOUR])
def test_every_model_takes_images_of_both_kinds(name, shape):
    module = model(name, shape, 10)().eval()
    with torch.inference_mode():
        assert module(torch.zeros(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_the_depth_of_a_textbook_network_counts_its_layers(depth):
    """Stem, convolutions of the blocks without those of shortcuts, and the head."""
    with torch.device("meta"):
        module = model(f"resnet{depth}", COLOUR, 10)()
    layers = [name for name, m in module.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert sum("shortcut" not in name for name in layers) == depth


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_thin_resnet_takes_a_step_downhill(norm):
    data = synthetic(32, (3, 16, 16), 4, seed=0)
    workload = ModuleWorkload(model("thin_resnet18", data.shape, 4, norm=norm), data)
    assert (workload.buffers > 0) == (norm == "batch")
    x, batch = workload.initial(0), Batch(0, 1, np.arange(16))
    slope = workload.gradient(x, batch)
    assert workload.gradient(x - 0.01 * slope.g, batch).loss < slope.loss


def test_a_factory_can_be_sent_to_another_process():
    factory = pickle.loads(pickle.dumps(model("cnn", COLOUR, 10, norm="group", width=32)))
    assert (factory.name, count(factory)) == ("cnn", count(model("cnn", COLOUR, 10, norm="group", width=32)))


def test_group_norm_divides_the_planes():
    groups = [
        m for m in model("resnet18", COLOUR, 10, norm="group")().modules() if isinstance(m, nn.GroupNorm)
    ]
    assert {(m.num_channels, m.num_groups) for m in groups} == {(64, 4), (128, 8), (256, 16), (512, 32)}


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("cnn", (64,), 10), {}, "cnn needs images"),
        (("resnet18", (64,), 10), {}, "a ResNet needs images"),
        (("mlp", (64,), 10), {"norm": "batch"}, "option norm: there is no such setting"),
        (("mlp", (64,), 10), {"depth": 3}, "option depth: there is no such setting"),
        (("mlp", (64,), 10), {"hidden": 10**9}, "model mlp with hidden 1000000000 needs 300 GB of memory"),
        (("mlp", (64,), 10), {"hidden": 10**18}, "model mlp cannot be built with hidden 10{18}: "),
        (("mlp", (64,), 10), {"hidden": 10**30}, "model mlp cannot be built with hidden 10{30}: "),
        (("mlp", (64,), 10), {"hidden": 0}, "hidden must be at least 1, not 0"),
        (("cnn", COLOUR, 10), {"norm": "layer"}, "norm must be batch or group, not 'layer'"),
    ],
)
def test_impossible_models_are_refused_at_once(arguments, options, says):
    with pytest.raises(UserError, match=says):
        model(*arguments, **options)
