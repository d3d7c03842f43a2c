"""The sections `data` and `model`: what is learnt from, and what is trained."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator, model_validator

from swiftfl.data.parse import check_spec
from swiftfl.data.registry import dataset_options, has_folder
from swiftfl.engines.setup import Buffers
from swiftfl.experiment.options import Tree, models_with, named
from swiftfl.experiment.own import own_name
from swiftfl.experiment.section import Section
from swiftfl.experiment.shift_config import ShiftConfig
from swiftfl.settings import Count, SettingError, checked_options
from swiftfl.workload.losses import LOSSES
from swiftfl.workload.models import MODELS, model_options
from swiftfl.workload.module import Vectors


class DataConfig(Section):
    dataset: str = "digits"
    """The data, by name."""
    folder: str | None = None
    """Where the dataset's files are, if it comes from files."""
    options: Tree = {}
    """Options of the dataset."""
    partition: str = "iid"
    """Which client holds which samples."""
    batch_size: Count = 16
    """Samples per step."""
    drop_last: bool = False
    """Leave out the last batch of an epoch if it is smaller."""
    augment: bool = False
    """Random crops and mirror images of pictures."""
    shift: list[ShiftConfig] = []
    """How local data change during training; a list."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        name, options = named(tree, "dataset", "digits")
        if name is None:
            return tree
        name = own_name(name)
        known = dataset_options(name)
        if tree.get("folder") is not None and not has_folder(name):
            raise SettingError("data.folder", f"is not used: dataset {name} comes from no folder")
        values = checked_options(f"dataset {name}", known, options, "data.options.")
        return {**tree, "dataset": name, "options": values}

    @field_validator("partition")
    @classmethod
    def _exists(cls, spec: str) -> str:
        check_spec(spec)
        return spec


class ModelConfig(Section):
    """What is trained, and what it minimises; without `loss`, the usual one of the labels."""

    name: str = "mlp"
    """The model, by name."""
    options: Tree = {}
    """Options of the model."""
    norm: Literal["batch", "group"] | None = None
    """Normalisation of cnn and resnets."""
    loss: str | None = None
    """The loss, by name; without one, the usual loss of the labels."""
    buffers: Buffers = "averaged"
    """Running buffers of batch norm: averaged with the models, or each client's own."""
    device: str = "cpu"
    """Where gradients are computed: cpu, cuda:0, or auto: clients take the GPUs that are here in turn."""
    vectors: Vectors = "auto"
    """What models are: numpy arrays, or tensors on the device (torch); auto: the latter on a GPU."""
    deterministic: bool = False
    """On a GPU: only algorithms of cuDNN that give the same bits again."""
    tf32: bool = False
    """On a GPU: products of 19 bits instead of 32, which is faster."""
    batching: Literal["auto", "measure", "on", "off"] | dict[str, Literal["loop", "batched"]] = "auto"
    """Gradients of many clients at once, or one by one (off)."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        name, options = named(tree, "name", "mlp")
        if name is None:
            return tree
        name = own_name(name)
        known, norm = model_options(name), tree.get("norm")
        default = known.pop("norm", None)
        if norm is not None and default is None:
            normed = [other for other in MODELS if "norm" in model_options(other)]
            raise SettingError("model.norm", f"is for {', '.join(normed)}, not model {name}")
        values = checked_options(f"model {name}", known, options, "model.options.", models_with)
        norm = default.default if default and norm is None else norm
        return {**tree, "name": name, "options": values, "norm": norm}

    @field_validator("loss")
    @classmethod
    def _loss_exists(cls, name: str | None) -> str | None:
        if name is None:
            return None
        LOSSES[own_name(name)]  # an unknown one is refused with the names that there are
        return own_name(name)
