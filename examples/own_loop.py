"""A training loop of one's own: what is new are the two lines with `swiftfl`, and the last one.

Alone:                 python examples/own_loop.py
Four that never wait:  swiftfl launch -n 4 examples/own_loop.py
The same over MPI:     mpiexec -n 4 python examples/own_loop.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import swiftfl
from swiftfl.data.digits import digits

peer = swiftfl.join()  # alone if nobody launched us
data = digits()
mine = slice(peer.rank, None, peer.n)  # each client has its own part of the data
own = TensorDataset(data.train_inputs[mine], data.train_labels[mine])
loader = DataLoader(own, batch_size=32, shuffle=True)

torch.manual_seed(peer.rank)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
loss_fn = nn.CrossEntropyLoss()
opt = swiftfl.Optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model, peer)

for epoch in range(1, 31):  # unchanged from here on
    for x, y in loader:
        loss = loss_fn(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    if epoch % 10 == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")

clients = peer.consensus()  # the average of all who are there; this call waits for them
model.eval()
with torch.no_grad():
    right = model(data.test_inputs).argmax(1) == data.test_labels
print(
    f"client {peer.rank} of {peer.n}: accuracy {right.float().mean():.3f} of the average of {clients} models"
)
