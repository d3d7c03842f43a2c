"""A run as text: a picture of some lines for a terminal, or one line for a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import OverflowMethod
from rich.text import Text

from swiftfl.cli.campaign_screen import duration
from swiftfl.cli.watching import Lanes, Seen

_GLYPHS = {True: " █▓░", False: " #+."}
_BARS = {True: "▁▂▃▄▅▆▇█", False: "_.-=+*#@"}
_DONE = {True: ("█", "░"), False: ("#", ".")}
_STYLES = ("", "blue", "yellow", "bright_black")
_OF_STATES = {"lost": "bold red", "back": "green", "finished": "green", "stopped": "yellow"}
_OF_NEIGHBOURS = {"starting": "not yet", "running": "here"}
_ORDER = ("starting", "running", "back", "lost", "stopped", "finished")
_CLOCKS = {"virtual": "virtual s", "wall": "s", "iterations": "iterations"}
_EVENTS_SHOWN = 5
MOST_LANES = 16


class Pen:
    """Draws for a terminal of this width; `fancy` where it can show blocks and colours."""

    def __init__(self, width: int, fancy: bool = True) -> None:
        self.width, self.fancy = max(width, 20), fancy
        self._overflow: OverflowMethod = "ellipsis" if fancy else "crop"

    def picture(self, seen: Seen, lanes: Lanes | None) -> list[Text]:
        """Lines that are no longer than the terminal is wide."""
        lines = [self._head(seen), self._progress(seen), self._pace(seen), self._measured(seen)]
        if seen.clients and not seen.names:
            lines.append(self._clients(seen))
        if lanes is not None:
            lines += self._lanes(seen, lanes)
        lines += self._neighbours(seen) if seen.names else self._laggards(seen)
        lines += [self._fitted(f"  {text}", _event_style(text)) for text in seen.events[-_EVENTS_SHOWN:]]
        return [line for line in lines if line.plain.strip()]

    def _head(self, seen: Seen) -> Text:
        line = Text(f"{seen.name}  ", style="bold")
        line.append(f"{seen.title}  ", style="default not bold")
        line.append(seen.state, style=_OF_STATES.get(seen.state, "default"))
        line.truncate(self.width, overflow=self._overflow)
        return line

    def _progress(self, seen: Seen) -> Text:
        if not seen.total:
            return self._fitted(f"{seen.done:,} steps")
        share = seen.done / seen.total
        cells = max(10, min(40, self.width - 46))
        full, empty = _DONE[self.fancy]
        line = Text(full * round(share * cells), style="blue")
        line.append(empty * (cells - round(share * cells)), style="bright_black")
        line.append(f" {share:.0%}  {seen.done:,} of {seen.total:,} steps", style="default")
        line.truncate(self.width, overflow=self._overflow)
        return line

    def _pace(self, seen: Seen) -> Text:
        parts = []
        if seen.rate is not None:
            parts.append(f"{_amount(seen.rate)} steps/s")
        if seen.left is not None:
            parts.append(f"{duration(seen.left)} left")
        if seen.time is not None:
            parts.append(f"clock {_amount(seen.time)} {_CLOCKS.get(seen.clock, '')}".rstrip())
        return self._fitted("  ".join(parts))

    def _measured(self, seen: Seen) -> Text:
        if not seen.losses:
            return Text()
        text = f"loss {seen.losses[-1]:.3f}"
        if seen.accuracy is not None:
            text += f"  accuracy {seen.accuracy:.1%}"
        room = min(40, self.width - len(text) - 2)
        return self._fitted(f"{text}  {sparkline(seen.losses, room, _BARS[self.fancy])}")

    def _clients(self, seen: Seen) -> Text:
        line = Text("clients: ")
        for number, state in enumerate(state for state in _ORDER if seen.clients.get(state)):
            line.append(", " if number else "")
            line.append(f"{seen.clients[state]:,} {state}", style=_OF_STATES.get(state, "default"))
            if state == "lost":
                line.append(f" ({_named(seen.lost)})", style="red")
        if seen.refused:
            line.append(f", {seen.refused:,} models refused")
        line.truncate(self.width, overflow=self._overflow)
        return line

    def _lanes(self, seen: Seen, lanes: Lanes) -> list[Text]:
        glyphs, margin = _GLYPHS[self.fancy], max(map(len, lanes.labels)) + 1
        lines = []
        for label, states in zip(lanes.labels, lanes.states, strict=True):
            line = Text(f"{label:>{margin - 1}} ")
            begin = 0
            for at in range(1, len(states) + 1):
                if at == len(states) or states[at] != states[begin]:
                    line.append(glyphs[states[begin]] * (at - begin), style=_STYLES[states[begin]])
                    begin = at
            lines.append(line)
        legend = Text(" " * margin)
        for state, name in enumerate(("compute", "communication", "waiting"), start=1):
            share = f" {seen.shares[name]:.0%}" if name in seen.shares else ""
            legend.append(glyphs[state], style=_STYLES[state])
            legend.append(f" {name}{share}  ")
        stretch = f"{lanes.begin:.4g} to {lanes.end:.4g} {_CLOCKS.get(seen.clock, '')}".rstrip()
        if len(legend) + len(stretch) <= self.width:
            legend.append(stretch, style="bright_black")
        legend.truncate(self.width, overflow=self._overflow)
        return [*lines, legend]

    def _neighbours(self, seen: Seen) -> list[Text]:
        """A node's neighbours, by name: who is there, and how old what is here of each is."""
        lines = []
        wide = min(20, max((len(each.name) for each in seen.neighbours), default=0))
        for each in seen.neighbours:
            state = _OF_NEIGHBOURS.get(each.state, each.state)
            line = Text(f"  {each.name[:wide]:<{wide}}  ")
            line.append(f"{state:<8}", style=_OF_STATES.get(each.state, "default"))
            if each.weight:
                line.append(f"  weight {each.weight:.2f}")
            if each.step is not None:
                old = "" if each.age is None else f" {each.age:.2g} s ago"
                line.append(f"  at step {each.step:,}{old}")
            if each.refused:
                line.append(f"  {each.refused:,} refused", style="red")
            if each.rate:
                line.append(f"  {_amount(each.rate)} steps/s")
            line.truncate(self.width, overflow=self._overflow)
            lines.append(line)
        if lines:
            mean = (
                ""
                if not seen.stalest
                else f" (averaged models: {seen.stalest[0][1]:.1f} steps old on average)"
            )
            lines.insert(0, self._fitted(f"neighbours{mean}:"))
        return lines

    def _laggards(self, seen: Seen) -> list[Text]:
        lines = []
        if seen.slowest:
            named = ", ".join(f"client {i} {times:.1f}x" for i, times in seen.slowest)
            lines.append(self._fitted(f"slowest (times the median step): {named}"))
        if seen.stalest:
            named = ", ".join(f"client {i} {age:.1f}" for i, age in seen.stalest)
            lines.append(self._fitted(f"oldest models (steps): {named}"))
        return lines

    def _fitted(self, text: str, style: str = "") -> Text:
        line = Text(text, style=style)
        line.truncate(self.width, overflow=self._overflow)
        return line


def plain_line(seen: Seen) -> str:
    """A run in one line."""
    parts = [f"{seen.done / seen.total:.0%}" if seen.total else f"{seen.done:,} steps"]
    if seen.state != "running":
        parts = [seen.state, *parts]
    if seen.rate is not None:
        parts.append(f"{_amount(seen.rate)} steps/s")
    if seen.left is not None:
        parts.append(f"{duration(seen.left)} left")
    if seen.losses:
        parts.append(f"loss {seen.losses[-1]:.3f}")
    if seen.accuracy is not None:
        parts.append(f"accuracy {seen.accuracy:.1%}")
    if seen.names:
        here = [each.name for each in seen.neighbours if each.state in ("running", "back")]
        parts.append(f"with {', '.join(here)}" if here else "alone")
    else:
        there = [state for state in ("running", "back") if seen.clients.get(state)]
        parts += [f"{seen.clients[state]:,} {state}" for state in there]
    if seen.lost:
        parts.append(f"{len(seen.lost):,} lost ({_named(seen.lost, seen.names)})")
    return f"{seen.name}: {', '.join(parts)}"


def sparkline(values: list[float], room: int, bars: str = _BARS[True]) -> str:
    """The course of some numbers in at most so many characters.

    >>> sparkline([4.0, 2.0, 1.0, 0.5], 4)
    '█▄▂▁'
    """
    if room < 1 or not values:
        return ""
    if len(values) > room:
        values = [values[(k + 1) * len(values) // room - 1] for k in range(room)]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(bars[min(len(bars) - 1, int((value - low) / span * len(bars)))] for value in values)


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _named(clients: list[int], names: Sequence[str] = ()) -> str:
    return ", ".join(names[i] if i < len(names) else str(i) for i in clients[:5]) + (
        ", ..." if len(clients) > 5 else ""
    )


def _event_style(text: str) -> str:
    return "red" if " lost" in text else "bright_black"
