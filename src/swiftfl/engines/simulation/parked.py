"""Whether every client of a world that was restored from a checkpoint is where it can go on."""

from __future__ import annotations

from swiftfl.engines.saved import Saved
from swiftfl.engines.simulation.world import World
from swiftfl.verbs import AllReduce, Exchange, Gradient, Mix, Overlapped


def check_parked(world: World, saved: Saved) -> None:
    """That whoever is in the middle of a step will go on, once, and nobody else."""
    held: dict[type, set[int]] = {
        Gradient: world.gradients.clients(),
        Mix: set(world.mixes.waiting),
        Exchange: world.meetings.exchanges.clients(),
        AllReduce: world.meetings.reductions.clients(),
    }
    scheduled = world.events.scheduled()
    there = [record for record in world.records if record.present and not record.finished]
    working = {record.index for record in there if not record.selecting}
    if world.active != len(there):
        saved["active"].fail(f"is {world.active}, but {len(there)} clients are active")
    if not world.unnoticed.isdisjoint(i for i in range(world.n) if world.records[i].present):
        saved["unnoticed"].fail("names a client that is there")
    for record, part in zip(world.records, saved["records"].items(), strict=True):
        i, answered = record.index, record.answer is not None
        at = {kind for kind, clients in held.items() if i in clients}
        overlapped = isinstance(record.parked, Overlapped)
        parked = Gradient if overlapped else type(record.parked)
        expected = {parked} if i in working and (overlapped or not answered) else set()
        timed = answered or (expected == {Gradient} and world.timed_gradients)
        waits = not answered or isinstance(record.parked, Exchange | AllReduce | Overlapped)
        if at != expected or timed != (i in scheduled) or not waits:
            part.fail("is not where its algorithm has it: it would never go on, or go on twice")
    if not world.changing and world.events.planned():
        saved["events"].fail("has an event of the network, which does not change in this run")
