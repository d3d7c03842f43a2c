"""swiftfl in a Jupyter notebook, with a real kernel: the example, and a cell that is interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="make install-notebook installs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="make install-notebook installs nbclient and ipykernel")
import nbformat  # noqa: E402
from jupyter_client.manager import start_new_kernel  # noqa: E402

NOTEBOOK = Path(__file__).parents[2] / "examples" / "own_code" / "notebook.ipynb"
LIMIT = 300
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that talk to the kernel

PREPARE = """
import asyncio, os, threading
import torch
from torch import nn
import swiftfl

asyncio.get_running_loop()  # a kernel's loop runs while its cells do
assert threading.active_count() > 1
torch.manual_seed(0)
data = torch.randn(64, 3), torch.arange(64) % 2
arguments = dict(
    train=data, clients=2, epochs=60, batch_size=16, engine="local", progress=True,
    settings={"engine.live.gradient_seconds": 0.02, "engine.live.save_seconds": 0.1},
)
net = lambda: nn.Linear(3, 2)
"""
TRAIN = "result = swiftfl.train(net, **arguments, out='run')"
RESUME = """
result = swiftfl.train(net, **arguments, resume='run')
print(result.summary['iterations'], result.summary['lost'])
"""


@pytest.fixture(autouse=True)
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What IPython keeps of its sessions does not stay in the user's home."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=LIMIT, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number in (2, 3):  # the two that end with a result
        shown = [output for output in cells[number].outputs if output.output_type == "execute_result"]
        assert len(shown) == 1
        assert "accuracy" in shown[0].data["text/plain"]
        assert "4 clients" in shown[0].data["text/html"]
    text = "".join(o.get("text", "") for cell in cells for o in cell.outputs if o.output_type == "stream")
    assert "\x1b" not in text  # no control codes of a terminal
    by_hand, measured = map(float, text.strip().splitlines()[-1].split())
    assert by_hand == measured > 0.3  # ten classes; how much is learnt depends on how busy the machine is


@pytest.fixture
def kernel(profile: None, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path), startup_timeout=LIMIT)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_an_interrupted_cell_can_be_resumed(kernel: tuple[Any, Any], tmp_path: Path) -> None:
    manager, client = kernel
    assert client.execute_interactive(PREPARE, timeout=LIMIT)["content"]["status"] == "ok"
    asked = client.execute(TRAIN)
    end = time.monotonic() + LIMIT
    while len(list(tmp_path.glob("run/clients/*.safetensors"))) < 2:
        assert time.monotonic() < end, "the run saves nothing"
        time.sleep(0.05)
    manager.interrupt_kernel()
    reply = reply_to(client, asked)["content"]
    assert (reply["status"], reply["ename"]) == ("error", "RunStopped")
    assert "swiftfl.train(..., resume='run')" in reply["evalue"]
    assert not (tmp_path / "run" / "summary.json").exists()
    printed: list[str] = []

    def note(message: Any) -> None:
        printed.append(message["content"].get("text", ""))

    again = client.execute_interactive(RESUME, timeout=LIMIT, output_hook=note)["content"]
    assert again["status"] == "ok", again
    assert f"{2 * 2 * 60} []" in "".join(printed)


def reply_to(client: Any, asked: str) -> Any:
    while True:
        reply = client.get_shell_msg(timeout=LIMIT)
        if reply["parent_header"].get("msg_id") == asked:
            return reply
