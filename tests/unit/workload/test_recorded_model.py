"""A flat vector becomes a module again, with its buffers; what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from swiftfl.data import as_dataset
from swiftfl.errors import UserError
from swiftfl.workload import ModuleWorkload
from swiftfl.workload.recorded_model import RecordedModel


class Net(nn.Module):
    """BatchNorm, a frozen layer that its factory draws, and a constant buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(self.norm(self.frozen(x)) * self.scale))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(40, 4, generator=draw), torch.randint(0, 2, (40,), generator=draw)


def test_the_module_of_a_vector_says_what_the_workload_says() -> None:
    workload = ModuleWorkload(Net, as_dataset(data()))
    x = workload.initial(3) + np.linspace(0, 1, workload.parameters + workload.buffers, dtype=np.float32)
    recorded = RecordedModel.from_json(workload.recorded().as_json())
    assert recorded == workload.recorded()
    assert recorded.size == x.size
    inputs, labels = data()
    module = recorded.module(Net, x)
    assert not module.training
    loss = nn.functional.cross_entropy(module(inputs), labels).item()
    assert loss == pytest.approx(workload.evaluate([x])[0].loss, rel=1e-6)
    state = recorded.state_dict(x)
    assert torch.equal(state["norm.running_var"], module.norm.running_var)  # type: ignore[arg-type]
    assert set(state) == {"norm.weight", "norm.bias", "last.weight", "last.bias"} | {
        f"norm.running_{what}" for what in ("mean", "var")
    }


def test_another_model_is_refused() -> None:
    workload = ModuleWorkload(Net, as_dataset(data()))
    x = workload.initial(0)
    with pytest.raises(UserError, match=r"Linear is not the one of this run: .* norm\.weight .* none"):
        workload.recorded().module(nn.Linear(4, 2), x)
    with pytest.raises(UserError, match="vectors of 26 numbers, not"):
        workload.recorded().state_dict(x[:-1])
    with pytest.raises(UserError, match=r"model\.json"):
        RecordedModel.from_json({"tensors": 3})


def test_a_factory_that_makes_no_module_is_refused() -> None:
    with pytest.raises(UserError, match="model must be a torch module or a function that makes one, not str"):
        ModuleWorkload(lambda: "net", as_dataset(data()))  # type: ignore[arg-type,return-value]
