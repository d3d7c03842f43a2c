"""What a run records of its model, so that a flat vector can become a module or a `state_dict` again."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from swiftfl.errors import UserError, in_one_line
from swiftfl.streams import number
from swiftfl.vector import Vector

MakeModel: TypeAlias = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class RecordedModel:
    """The tensors of a model in the order of its vector: parameters, then running buffers.

    `inputs` is the shape of one input where it is one tensor, `classes` the number of classes if there are
    any: what a registered model is made from. `input_dtype` is the type that the model gets its input in.
    """

    name: str
    tensors: Mapping[str, tuple[int, ...]]
    parameters: int
    inputs: tuple[int, ...] | None
    classes: int | None
    dtype: str = "float32"
    input_dtype: str = "float32"

    def as_json(self) -> dict[str, Any]:
        tensors = [{"name": name, "shape": list(shape)} for name, shape in self.tensors.items()]
        inputs = None if self.inputs is None else list(self.inputs)
        return {**vars(self), "tensors": tensors, "inputs": inputs}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> RecordedModel:
        try:
            tensors = {str(row["name"]): tuple(map(int, row["shape"])) for row in tree["tensors"]}
            inputs = None if tree["inputs"] is None else tuple(map(int, tree["inputs"]))
            return cls(**{**tree, "tensors": tensors, "inputs": inputs})
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"model.json is not one of this version: {error}") from None

    @property
    def size(self) -> int:
        """The length of a vector."""
        return sum(map(math.prod, self.tensors.values()))

    @property
    def layout_hash(self) -> str:
        """The SHA-256 of what lies where in a vector: two models with the same one can be averaged."""
        tensors = [[name, list(shape)] for name, shape in self.tensors.items()]
        return _hash([tensors, self.parameters, self.dtype])

    @property
    def shapes_hash(self) -> str:
        """The same without names, which a training loop of one's own may give as it likes."""
        return shapes_hash(self.tensors.values(), self.parameters, self.dtype)

    def state_dict(self, x: Vector) -> dict[str, Tensor]:
        """The tensors by name, copied; without what never changes (frozen parameters, constant buffers)."""
        if x.shape != (self.size,):
            raise UserError(f"model {self.name} has vectors of {self.size} numbers, not {x.shape}")
        found, start = {}, 0
        for name, shape in self.tensors.items():
            stop = start + math.prod(shape)
            found[name] = torch.from_numpy(x[start:stop].copy()).view(shape)
            start = stop
        return found

    def module(self, make: MakeModel, x: Vector) -> nn.Module:
        """A module with the values of this vector, in evaluation mode."""
        module = build_module(make, 0, getattr(torch, self.dtype))
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, value in self.state_dict(x).items():
            if name not in own or own[name].shape != value.shape:
                there = f"one of shape {tuple(own[name].shape)}" if name in own else "none"
                raise UserError(
                    f"model {type(module).__name__} is not the one of this run: that has a tensor {name} of "
                    f"shape {tuple(value.shape)}, and this has {there}"
                )
            own[name].data.copy_(value)
        return module.eval()


def shapes_hash(shapes: Iterable[Sequence[int]], parameters: int, dtype: str) -> str:
    """The SHA-256 of the shapes of a model's tensors, in their order."""
    return _hash([[list(shape) for shape in shapes], parameters, dtype])


def _hash(said: object) -> str:
    return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()


def build_module(make: MakeModel, seed: int, dtype: torch.dtype) -> nn.Module:
    """A module of the user's; what its factory draws depends on the seed and on nothing else."""
    if isinstance(make, nn.Module):
        return _own_copy(make).to(dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number(seed, "initial"))
        return _own_copy(_made(make)).to(dtype)  # it may give the same module again and again


def _made(make: Callable[[], nn.Module]) -> nn.Module:
    try:
        return make()
    except UserError:
        raise
    except Exception as error:  # whatever a class or function of one's own may raise
        name = getattr(make, "__name__", type(make).__name__)
        raise UserError(f"model {name} cannot be made: {in_one_line(error)}") from error


def _own_copy(module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise UserError(f"model must be a torch module or a function that makes one, not {_kind(module)}")
    for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in named:
            if tensor.is_complex():
                raise UserError(f"{kind} {name} is complex; a vector holds real numbers only")
    try:
        return copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{type(module).__name__} cannot be copied: {first}") from error


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
