"""How clients of engine local start, forked or spawned, and on which device a process of a run computes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import torch

from swiftfl.engines.live.local.forkserver import fork_child, run_and_exit
from swiftfl.engines.threads import place_among_runs
from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.given import needs_objects
from swiftfl.transports.ranks import local_rank_here, local_size_here
from swiftfl.workload.cuda_settings import allow, make_current
from swiftfl.workload.placement import bound_memory, device_of, devices_here, sharing

Start = Literal["fork", "spawn"]
_PROGRAM = "swiftfl.api.spawned_client"
_PORTABLE = "shared_memory"


def how_to_start(config: Config, devices: Sequence[str] | None = None) -> tuple[Start, str]:
    """Whether clients are forked or spawned, and what of the user's wishes that leaves out.

    Forks cost little, inherit everything, and cannot use CUDA. Without being told, clients are spawned where
    they have a GPU to use and all that they need can be sent.
    """
    start, device = config.engine.live.start, config.model.device
    if device_kind(device) not in ("auto", "cpu", "cuda"):
        raise UserError(f"device {device!r} cannot be used with engine local: say cpu, cuda or auto")
    obstacle = cannot_be_sent(config)
    if start == "spawn":
        if obstacle:
            raise UserError(f"clients cannot be spawned: {obstacle}")
        return "spawn", ""
    wanted = device.startswith("cuda")
    if start == "fork":
        if wanted:
            raise UserError(
                f"device {device!r} cannot be used by clients that are forked: "
                "leave out engine.live.start=fork"
            )
        return "fork", ""
    there = devices_here() if devices is None and device in ("auto", "cuda") else devices
    if not wanted and not (device == "auto" and there):
        return "fork", ""
    if not obstacle:
        return "spawn", ""
    if wanted:
        raise UserError(f"device {device!r} needs clients that are spawned, but {obstacle}")
    return "fork", f"clients compute on the cpu, and not on the GPUs that are here: {obstacle}"


def how_to_start_here(config: Config) -> tuple[Start, str]:
    """As `how_to_start`, in a process that may have computed something before."""
    start, told = how_to_start(config)
    if start == "spawn" or forks_can_compute():
        return start, told
    why = "this process has taken a gradient and sees a GPU, so that torch takes none in its forks"
    if config.engine.live.start == "fork":
        raise UserError(f"clients cannot be forked: {why}; leave out engine.live.start=fork")
    obstacle = cannot_be_sent(config)
    if obstacle:
        raise UserError(
            f"clients cannot be forked: {why} (hide it with CUDA_VISIBLE_DEVICES= before Python starts); "
            f"and they cannot be spawned: {obstacle}"
        )
    return "spawn", f"clients are spawned, and not forked: {why}"


def forks_can_compute() -> bool:
    """Whether a fork of this process can take a gradient, which only a trial tells.

    With a GPU in sight, torch's autograd starts threads at the first gradient, on whatever device, and then
    refuses in forks.
    """
    try:
        pid = fork_child()
    except OSError:  # no more processes: whoever starts clients says so
        return True
    if pid == 0:
        run_and_exit(_take_gradient)
    return os.waitpid(pid, 0)[1] == 0


def _take_gradient() -> int:
    try:
        torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return 1
    return 0


def cannot_be_sent(config: Config) -> str:
    """Why a fresh process could not make this run again; empty if it can."""
    if needs_objects(config) and config.experiment is None:
        return (
            "objects that were given in Python cannot be sent to them: give them by reference "
            "(swiftfl run FILE.py:FUNCTION, docs/own-code.md), or use engine mpi"
        )
    if config.engine.live.transport != _PORTABLE:
        name = config.engine.live.transport
        return f"transport {name} cannot be handed to a fresh process: use {_PORTABLE}"
    return ""


def remaking(config: Config) -> tuple[str, dict[str, Any]]:
    """The program of a spawned client, and what it is told to make the run again."""
    return _PROGRAM, {"config": config.model_dump(mode="json")}


def place(config: Config, client: int | None = None, devices: Sequence[str] | None = None) -> str:
    """The device of this process, with cuDNN set up and its memory bounded where several share it.

    Spawned clients of engine local take the GPUs in turn by their numbers, ranks of MPI by theirs on their
    machine, runs that a pool computes at once by their workers'. The process of engine local itself evaluates
    on the first one, beside the clients there.
    """
    name, engine = config.model.device, config.engine.name
    device_kind(name)
    if engine == "local" and client is None and how_to_start(config, devices)[0] == "fork":
        return usable_device("cpu")
    if name != "auto" and not name.startswith("cuda"):
        return usable_device(name)  # without a look at GPUs, which takes its time where there are some
    found = devices_here() if devices is None else devices
    number, everybody = _neighbours(config, client)
    device = device_of(name, number, found)
    if device.startswith("cuda"):
        allow(config.model.deterministic, config.model.tf32)
        usable_device(device)
        make_current(device)  # for code of the user's own that says only .cuda()
        bound_memory(device, sharing(device, [device_of(name, k, found) for k in everybody]))
        return device
    return usable_device(device)


def _neighbours(config: Config, client: int | None) -> tuple[int, Sequence[int]]:
    """The number of this process among those that compute on this machine, and the numbers of all of them."""
    if config.engine.name == "mpi":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        one = bool(visible) and "," not in visible  # a rank's own, or everybody's: nobody says
        return local_rank_here() or 0, range(1 if one else local_size_here() or 1)
    run, runs = place_among_runs()
    if config.engine.name != "local":
        return run, range(runs)
    each = config.topology.clients
    first = run * each
    return first + (client or 0), [*range(runs * each), *range(0, runs * each, each)]


def device_kind(name: str) -> str:
    """What a device's name begins with, or `auto`; a name that is none is the user's mistake.

    >>> device_kind("cuda:1")
    'cuda'
    """
    if name == "auto":
        return name
    try:
        return torch.device(name).type
    except RuntimeError:
        raise UserError(
            f"device {name!r} cannot be used here: no device has that name; say auto, cpu, cuda or, as in "
            "cuda:1, a certain GPU"
        ) from None


def usable_device(name: str) -> str:
    """The name of a device that works here."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise UserError(f"device {name!r} cannot be used here: {reason}") from None
    return name
