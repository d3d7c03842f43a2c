"""What a module's forward pass does to buffers that are no norm layer's running statistics.

A floating buffer that changes (an EMA, spectral_norm's vectors) is part of a client's vector. Integer
buffers cannot be averaged and are left out: every forward pass finds them as the module was given, so
that a gradient depends on its vector and batch alone. All others must stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from swiftfl.data.tree import Tree
from swiftfl.errors import UserError
from swiftfl.workload.flat import FlatLayout
from swiftfl.workload.losses import call


def changing(module: nn.Module, inputs: Tree, device: torch.device) -> list[str]:
    """The buffers that a trial forward pass in training mode changes; all of them if it fails.

    What norm layers keep does not count. The trial is made on a copy.
    """
    if not any(buffer is not None for *_, buffer in _own(module)):
        return []
    trial = copy.deepcopy(module).to(device).train()
    before = [(name, part, key, b, b._version) for name, part, key, b in _own(trial) if b is not None]
    try:
        with torch.random.fork_rng(devices=[]):
            call(trial, inputs)
    except Exception:  # the first gradient will fail in the same way, and say on which batch
        return [name for name, *_ in before]
    return [name for name, part, key, b, version in before if _changed(part._buffers[key], b, version)]


class Buffers:
    """Keeps a module's buffers in order after each of its forward passes."""

    def __init__(self, module: nn.Module, plan: FlatLayout, flat: Tensor) -> None:
        places = {piece.name: piece for piece in plan.others}
        self._carried: list[tuple[str, nn.Module, str, Tensor, Tensor]] = []
        self._counters: list[tuple[nn.Module, str, Tensor, Tensor, int]] = []
        self._constants: list[tuple[str, nn.Module, str, Tensor | None, int]] = []
        for name, part, key, buffer in _own(module):
            if buffer is not None and name in places:
                view = flat[places[name].start : places[name].stop]
                self._carried.append((name, part, key, buffer, view))
            elif buffer is not None and not buffer.is_floating_point():
                self._counters.append((part, key, buffer, buffer.clone(), buffer._version))
            else:
                self._constants.append((name, part, key, buffer, 0 if buffer is None else buffer._version))

    def settle(self) -> None:
        """After a forward pass (and its backward pass): new values into the flat vector, counters back."""
        for name, part, key, known, version in self._constants:
            if _changed(part._buffers[key], known, version):
                raise UserError(
                    f"buffer {name} begins to change after the first forward pass; clients would share it"
                )
        for name, part, key, buffer, view in self._carried:
            now = part._buffers[key]
            if now is not buffer:  # assigned anew, not written in place
                if now is None or now.shape != buffer.shape:
                    raise UserError(f"buffer {name} changes its shape in the forward pass")
                view.copy_(now.detach().reshape(-1))
                part._buffers[key] = buffer
            elif buffer.requires_grad:  # written in place with something that depends on parameters
                buffer.detach_()
        for k, (part, key, counter, first, version) in enumerate(self._counters):
            if _changed(part._buffers[key], counter, version):
                part._buffers[key] = counter.copy_(first)
                self._counters[k] = part, key, counter, first, counter._version


def _own(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor | None]]:
    """Every buffer once, norm layers' own apart: its name, and where it hangs."""
    seen: set[int] = set()
    for prefix, part in module.named_modules():
        for key, buffer in part._buffers.items():
            if isinstance(part, _NormBase) and key in ("running_mean", "running_var", "num_batches_tracked"):
                continue
            if buffer is None or id(buffer) not in seen:
                seen.add(id(buffer))
                yield (f"{prefix}.{key}" if prefix else key), part, key, buffer


def _changed(now: Tensor | None, known: Tensor | None, version: int) -> bool:
    return now is not known or (known is not None and known._version != version)
