"""`swiftfl.Optimizer`: any torch optimizer, with the neighbours' newest models averaged in at each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import LBFGS

from swiftfl.errors import UserError
from swiftfl.loop.module_vector import ModuleVector
from swiftfl.loop.peer import Peer
from swiftfl.loop.wrapped_rule import WrappedRule
from swiftfl.sample import Slope


class Optimizer(torch.optim.Optimizer):
    """Wraps a torch optimizer: `step()` averages, lets it move the model, and publishes the result.

    With a peer that is alone it is the wrapped optimizer, bit for bit. Parameter groups, state and state
    dictionaries are those of the wrapped one, so schedulers, checkpoints and gradient scalers work on either.

    Making it gives the model the numbers that all clients start from: the first client's.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module, peer: Peer) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UserError(f"optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
        if not isinstance(peer, Peer):
            raise UserError(f"peer must be what swiftfl.join() gives, not {type(peer).__name__}")
        if not isinstance(model, nn.Module):
            raise UserError(f"model must be a torch.nn.Module, not {type(model).__name__}")
        _refuse_other_model(optimizer, model)
        self.wrapped, self.peer = optimizer, peer
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._module: ModuleVector | None = None
        if peer.n == 1:
            return
        _refuse_lbfgs(optimizer)
        self._module = ModuleVector(model)
        for group in optimizer.param_groups:
            self._check_group(group)
        self._rule = WrappedRule(optimizer, self._module)
        peer.attach(self._module, self._rule)

    # --- what is the wrapped one's -----------------------------------------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the wrapped optimizer."""
        return self.wrapped.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        """Torch's constructor begins with an empty list and adds to it; the groups are there already."""

    @property
    def state(self) -> Any:
        """That of the wrapped optimizer."""
        return self.wrapped.state

    @state.setter
    def state(self, state: Any) -> None:
        """As with `param_groups`: the wrapped one has its own."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Also called by torch's constructor, for groups that are there."""
        if any(param_group is group for group in self.wrapped.param_groups):
            return
        if self._module is not None:
            self._check_group(param_group)
        self.wrapped.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.wrapped.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.wrapped.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.wrapped.load_state_dict(state_dict)

    def register_state_dict_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.register_state_dict_pre_hook(*args, **kwargs)

    def register_state_dict_post_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.register_state_dict_post_hook(*args, **kwargs)

    def register_load_state_dict_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.register_load_state_dict_pre_hook(*args, **kwargs)

    def register_load_state_dict_post_hook(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.register_load_state_dict_post_hook(*args, **kwargs)

    def __repr__(self) -> str:
        return f"swiftfl.Optimizer({self.wrapped!r}, {self.peer!r})"

    # --- the step --------------------------------------------------------------------------------

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Average with what the neighbours have sent, move by the gradient, and publish; never waits.

        (With an algorithm that waits, such as dsgd, it waits.) A closure is evaluated once, at the model
        before the average.
        """
        client = self.peer.training
        if client is None or self._module is None:
            return self.wrapped.step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._refuse_thawed()
        g = self._module.gradient()
        self._rule.g = g
        client.go_on(Slope(g, _number(loss), self._module.statistics(client.x)))
        self.peer.step_over()
        return loss

    def _check_group(self, group: dict[str, Any]) -> None:
        """Every parameter that is moved must be one that is averaged."""
        assert self._module is not None
        params = group["params"]
        for parameter in [params] if isinstance(params, Tensor) else params:
            if parameter.requires_grad and not self._module.holds(parameter):
                raise UserError(
                    f"a parameter of shape {tuple(parameter.shape)} is not among those that the model had "
                    "when swiftfl.Optimizer was made: the others would not get it; make the Optimizer later"
                )

    def _refuse_thawed(self) -> None:
        """A parameter that was frozen when this was made would be moved here and never sent."""
        assert self._module is not None
        for group in self.wrapped.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self._module.holds(parameter):
                    raise UserError(
                        f"a parameter of shape {tuple(parameter.shape)} was frozen when swiftfl.Optimizer "
                        "was made, and has a gradient now: unfreeze it before the Optimizer is made"
                    )


def _number(loss: float | Tensor | None) -> float:
    """Not a number where the loop takes its gradients itself, and no closure tells."""
    return math.nan if loss is None else float(loss.detach() if isinstance(loss, Tensor) else loss)


def _refuse_other_model(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Alone this would do no harm, and the mistake would show only when there are others."""
    own = {id(parameter) for parameter in model.parameters()}
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not any(id(parameter) in own for parameter in moved):
        raise UserError(
            f"optimizer moves no parameter of {type(model).__name__}: make it from model.parameters()"
        )


def _refuse_lbfgs(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, LBFGS):
        raise UserError(
            "LBFGS learns the curvature from how gradients change between its steps, and averaging with "
            "others would change them, too: it works alone only; use SGD or Adam with peers"
        )
