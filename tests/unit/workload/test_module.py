import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from swiftfl.data.batches import Batches
from swiftfl.data.digits import digits
from swiftfl.errors import UserError
from swiftfl.rules import SgdRule
from swiftfl.sample import Batch
from swiftfl.vector import advance
from swiftfl.workload.models import model
from swiftfl.workload.module import ModuleWorkload

DIGITS = digits()


def normalised():
    return nn.Sequential(
        nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10), nn.BatchNorm1d(10, momentum=0.3)
    )


def as_torch(factory, workload, seed):
    """The user's own module with the workload's initial values."""
    module = factory()
    x = workload.initial(seed)
    nn.utils.vector_to_parameters(torch.from_numpy(x[: workload.parameters].copy()), module.parameters())
    return module


def own_gradient(module, batch):
    module.zero_grad()
    inputs, labels = DIGITS.train_inputs[batch.indices], DIGITS.train_labels[batch.indices]
    loss = functional.cross_entropy(module(inputs), labels)
    loss.backward()
    return loss.item(), torch.cat([p.grad.reshape(-1) for p in module.parameters()]).numpy()


@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_a_gradient_is_torchs_own(name):
    factory = model(name, (64,), 10)
    workload = ModuleWorkload(factory, DIGITS)
    batch = Batches(np.arange(100), 32, seed=0, client=0)(1)
    slope = workload.gradient(workload.initial(4), batch)
    loss, g = own_gradient(as_torch(factory, workload, 4), batch)
    assert slope.loss == loss
    assert (slope.g == g).all()
    assert slope.statistics is None


@pytest.mark.parametrize(
    "rule",
    [
        SgdRule(),
        SgdRule(momentum=0.9),
        SgdRule(0.9, 1e-2),
        SgdRule(0.9, 1e-2, nesterov=True),
        SgdRule(weight_decay=0.1),
    ],
    ids=str,
)
def test_training_equals_torch_optim_step_by_step(rule):
    factory = model("mlp", (64,), 10)
    workload = ModuleWorkload(factory, DIGITS)
    batches = Batches(np.arange(200), 32, seed=0, client=0)
    module = as_torch(factory, workload, 1)
    optimiser = torch.optim.SGD(
        module.parameters(), 0.1, rule.momentum, weight_decay=rule.weight_decay, nesterov=rule.nesterov
    )
    x = workload.initial(1)
    memory = rule.init(x)
    for c in range(1, 15):
        slope = workload.gradient(x, batches(c))
        move, memory = rule.update(slope.g, x, 0.1, memory)
        x = advance(x, move, slope.statistics)
        own_gradient(module, batches(c))
        optimiser.step()
        expected = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-7)


def test_batch_statistics_reproduce_running_buffers():
    workload = ModuleWorkload(normalised, DIGITS)
    assert (workload.parameters, workload.buffers) == (12 * 65 + 24 + 130 + 20, 44)
    module = as_torch(normalised, workload, 2)
    batches = Batches(np.arange(100), 32, seed=0, client=0)
    x = workload.initial(2)
    assert (x[-44 : -44 + 12] == 0).all()
    assert (x[-10:] == 1).all()
    for c in range(1, 8):
        slope = workload.gradient(x, batches(c))
        assert (slope.g[workload.parameters :] == 0).all()
        x = advance(x, -0.1 * slope.g, slope.statistics)
        _, g = own_gradient(module, batches(c))
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
        np.testing.assert_allclose(slope.g[: workload.parameters], g, rtol=1e-4, atol=1e-6)
        running = [
            module[1].running_mean,
            module[1].running_var,
            module[4].running_mean,
            module[4].running_var,
        ]
        np.testing.assert_allclose(x[-44:], torch.cat(running).numpy(), rtol=1e-4, atol=1e-6)


def test_evaluation_uses_the_running_buffers_and_the_whole_test_set():
    workload = ModuleWorkload(normalised, DIGITS)
    x = workload.initial(0) + np.linspace(0, 0.1, workload.initial(0).size, dtype=np.float32)
    module = as_torch(normalised, workload, 0).eval()
    tensors = [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]
    with torch.no_grad():
        start = 0
        for t in tensors:
            t.copy_(torch.from_numpy(x[start : start + t.numel()]).view_as(t))
            start += t.numel()
        outputs = module(DIGITS.test_inputs)
    (seen,) = workload.evaluate([x])
    assert seen.loss == pytest.approx(functional.cross_entropy(outputs, DIGITS.test_labels).item(), rel=1e-5)
    assert seen.accuracy == pytest.approx((outputs.argmax(1) == DIGITS.test_labels).float().mean().item())


def test_a_diverged_client_does_not_poison_the_others():
    workload = ModuleWorkload(normalised, DIGITS)
    batch = Batch(0, 1, np.arange(32))
    x = workload.initial(0)
    good = workload.gradient(x, batch)
    workload.gradient(np.full_like(x, np.inf), batch)
    again = workload.gradient(x, batch)
    assert (again.g == good.g).all()
    assert (again.statistics.values == good.statistics.values).all()


def test_initial_depends_on_the_seed_only():
    workload = ModuleWorkload(model("mlp", (64,), 10), DIGITS)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    a = workload.initial(1)
    torch.rand(3)
    assert (workload.initial(1) == a).all()
    assert (workload.initial(2) != a).any()
    torch.manual_seed(5)
    assert torch.equal(torch.get_rng_state(), state)
    given = nn.Linear(64, 10)
    assert (ModuleWorkload(given, DIGITS).initial(9)[:640] == given.weight.detach().numpy().ravel()).all()


class Forgetful(nn.Linear):
    def forward(self, x):
        return super().forward(functional.dropout(x, 0.5))


@pytest.mark.parametrize(
    "factory",
    [lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 10)), lambda: Forgetful(64, 10)],
    ids=["layer", "function"],
)
def test_dropout_is_keyed_by_client_and_counter(factory):
    workload = ModuleWorkload(factory, DIGITS)
    x = workload.initial(0)
    one, two = Batch(0, 1, np.arange(32)), Batch(1, 1, np.arange(32))
    g = workload.gradient(x, one).g
    assert (workload.gradient(x, two).g != g).any()
    assert (workload.gradient(x, one).g == g).all()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.code = nn.Linear(64, 64, bias=False)
        self.decode = nn.Linear(64, 64, bias=False)
        self.decode.weight = self.code.weight
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.decode(torch.tanh(self.code(x))))


def test_shared_parameters_appear_once():
    workload = ModuleWorkload(Tied, DIGITS)
    assert workload.parameters == 64 * 64 + 650
    batch = Batch(0, 1, np.arange(32))
    _, g = own_gradient(as_torch(Tied, workload, 0), batch)
    np.testing.assert_allclose(workload.gradient(workload.initial(0), batch).g, g, rtol=1e-5, atol=1e-7)


def test_double_precision_and_own_loss():
    def square(outputs, labels):
        return ((outputs - functional.one_hot(labels, 10)) ** 2).mean()

    workload = ModuleWorkload(model("logistic", (64,), 10), DIGITS, loss=square, dtype=torch.float64)
    x = workload.initial(0)
    batch = Batch(0, 1, np.arange(32))
    slope = workload.gradient(x, batch)
    assert slope.g.dtype == np.float64
    e = np.zeros_like(x)
    e[17] = 1e-6
    rise = workload.gradient(x + e, batch).loss - workload.gradient(x - e, batch).loss
    assert rise / 2e-6 == pytest.approx(slope.g[17], rel=1e-5)


def test_what_cannot_work_is_refused():
    with pytest.raises(UserError, match="layer 1 has momentum=None"):
        ModuleWorkload(nn.Sequential(nn.Linear(64, 10), nn.BatchNorm1d(10, momentum=None)), DIGITS)
    with pytest.raises(UserError, match="no trainable parameters"):
        ModuleWorkload(nn.ReLU(), DIGITS)
    with pytest.raises(UserError, match="PReLU has trainable parameters, but not one number in them"):
        ModuleWorkload(nn.PReLU(0), DIGITS)
    with pytest.raises(UserError, match="lazy"):
        ModuleWorkload(nn.LazyLinear(10), DIGITS)
    with pytest.raises(UserError, match="vectors of 650 numbers"):
        ModuleWorkload(nn.Linear(64, 10), DIGITS).gradient(np.zeros(3, np.float32), Batch(0, 1, np.arange(2)))
    with pytest.raises(UserError, match="parameter weight is complex"):
        ModuleWorkload(nn.Linear(64, 10, dtype=torch.complex64), DIGITS)
    with pytest.raises(UserError, match="no model 'vgg': choose from"):
        model("vgg", (64,), 10)


def test_a_batch_that_is_too_small_is_named():
    workload = ModuleWorkload(normalised, DIGITS)
    with pytest.raises(
        UserError, match="fails on client 3's batch of 1 at step 7: ValueError: Expected more than 1 value"
    ):
        workload.gradient(workload.initial(0), Batch(3, 7, np.arange(1)))


def test_a_batch_that_is_too_small_is_named_in_a_group_too():
    workload = ModuleWorkload(normalised, DIGITS, batching="on")
    x = workload.initial(0)
    workload.gradients([x, x], [Batch(k, 1, np.arange(16)) for k in range(2)])
    assert workload.choices()["form"] == "vmap"
    with pytest.raises(
        UserError, match="fails on client 0's batch of 1 at step 2: ValueError: Expected more"
    ):
        workload.gradients([x, x], [Batch(k, 2, np.arange(1)) for k in range(2)])


@pytest.mark.parametrize("batching", ["on", "off"])
def test_too_few_outputs_are_named(batching):
    workload = ModuleWorkload(lambda: nn.Linear(64, 7), DIGITS, batching=batching)
    x = workload.initial(0)
    with pytest.raises(UserError, match="linear has 7 outputs, but digits has 10 classes"):
        workload.gradients([x], [Batch(0, 1, np.arange(32))])
    with pytest.raises(UserError, match="linear has 7 outputs, but digits has 10 classes"):
        workload.evaluate([x, x])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "nonsense"])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(UserError, match=f"device '{device}' cannot be used: .+"):
        ModuleWorkload(nn.Linear(64, 10), DIGITS, device=device)


def test_a_factorys_module_is_never_touched():
    given = normalised()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    workload = ModuleWorkload(lambda: given, DIGITS, dtype=torch.float64)
    x = workload.initial(0)
    workload.gradient(x + 1, Batch(0, 1, np.arange(32)))
    assert (workload.initial(1) == x).all()
    after = given.state_dict()
    assert after.keys() == before.keys()
    assert all(after[k].dtype == v.dtype and torch.equal(after[k], v) for k, v in before.items())
    assert given[1].momentum == 0.1


def test_dropout_keeps_the_mean_and_drops_its_share():
    workload = ModuleWorkload(lambda: nn.Sequential(nn.Dropout(0.25), nn.Linear(64, 10)), DIGITS)
    layer = workload._module[0]
    workload._masks.start(Batch(0, 1, np.arange(1)))
    out = layer(torch.ones(200, 50))
    assert out.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert (layer.eval()(out) == out).all()
