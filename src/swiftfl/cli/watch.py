"""`swiftfl watch`: a run in the terminal while it goes on, whoever runs it; and what `swiftfl run` shows."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live

from swiftfl.cli.screen import Interrupted
from swiftfl.cli.watch_picture import MOST_LANES, Pen, plain_line
from swiftfl.cli.watching import COMINGS_AND_GOINGS, Watcher
from swiftfl.errors import UserError
from swiftfl.experiment.bars import plain_console
from swiftfl.experiment.stages import show_stages, stages_over
from swiftfl.views import Library, RunView, is_run

if TYPE_CHECKING:
    from typing_extensions import Self

    from swiftfl.experiment.measure import Measurement

_log = logging.getLogger(__name__)
_EVERY = 0.5
_LINE_EVERY = 5.0  # seconds between two lines where nobody is at a terminal
_SHARE = 20  # beside a run, at most one part in so many of the time
_OTHER_LINES = 14  # of a picture besides the lanes
_RUNS = Path("runs")


def watch(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]", help="A run folder; of a folder with runs, the newest (default: runs)."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show how it stands now, and end.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until there is a run.")] = False,
) -> None:
    """Follow a run in the terminal, live or finished, until it ends. The folder is only read.

    swiftfl watch runs/mine

    swiftfl watch runs/mine --once
    """
    watcher = Watcher(_found(run or _RUNS, wait))
    console = plain_console()
    try:
        if once:
            _print(console, watcher)
        elif console.is_terminal:
            _follow(console, watcher)
        else:
            _tell(watcher)
    except KeyboardInterrupt:
        return


def _found(path: Path, wait: bool) -> RunView:
    """The run of a folder, or its newest one."""
    said = False
    while True:
        if is_run(path):
            return RunView(path)
        cards = Library([path]).cards() if path.is_dir() else []
        if cards:
            return RunView(Path(cards[0]["path"]))
        if not wait:
            what = "no run folder, and has no run in it" if path.is_dir() else "not there"
            raise UserError(f"{path} is {what}: name the folder of a run, or --wait for it")
        if not said:
            print(f"swiftfl: waiting for a run in {path}", file=sys.stderr, flush=True)
            said = True
        time.sleep(_EVERY)


def _picture(
    console: Console, watcher: Watcher, whole: bool, counted: tuple[int, int] | None = None
) -> Group:
    pen = Pen(console.width, console.encoding.lower().startswith("utf"))
    height = console.height if console.is_terminal else 1000
    seen = watcher.look(counted)
    clients = sum(seen.clients.values())
    margin = len(str(clients)) * (2 if clients > MOST_LANES else 1) + 2
    if seen.names:
        margin = len(seen.names[0]) + 2
    most = max(1, min(MOST_LANES, height - _OTHER_LINES))
    return Group(*pen.picture(seen, watcher.lanes(max(10, pen.width - margin), most, whole)))


def _print(console: Console, watcher: Watcher) -> None:
    console.print(_picture(console, watcher, watcher.run.state() != "running"), no_wrap=True, crop=False)


def _follow(console: Console, watcher: Watcher) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while watcher.run.state() in ("running", "silent"):
            live.update(_picture(console, watcher, whole=False), refresh=True)
            time.sleep(_EVERY)
    _print(console, watcher)


def _tell(watcher: Watcher) -> None:
    """Lines: how it stands every few seconds, and what happens as it happens."""
    due = 0.0
    while True:
        running = watcher.run.state() in ("running", "silent")
        for text in watcher.new_events():
            print(f"{watcher.name}: {text}", flush=True)
        if not running or time.monotonic() >= due:
            print(plain_line(watcher.look()), flush=True)
            due = time.monotonic() + _LINE_EVERY
        if not running:
            return
        time.sleep(_EVERY)


class RunScreen:
    """The view of a run beside it, on standard error: a picture on a terminal, else a line now and then.

    The run calls it twice a second. Where looking takes long, it looks less often, so that the run does not
    wait for its picture.
    """

    def __init__(self, folder: Path) -> None:
        self.console = plain_console(stderr=True)
        self._watcher = Watcher(RunView(folder))
        live = self.console.is_terminal
        self._live = Live(console=self.console, auto_refresh=False, transient=True) if live else None
        self._due = time.monotonic() + (0.0 if live else _LINE_EVERY)
        self._begun = self._blind = False

    def __enter__(self) -> Self:
        show_stages(self.console)
        return self

    def __call__(self, done: int, total: int, last: Measurement) -> None:
        if self._blind:
            return
        try:
            self._show(done, total)
        except (UserError, OSError) as error:  # whatever is wrong with its files, the run goes on
            _log.warning("the run is no longer shown: %s", error)
            self._blind = True

    def _show(self, done: int, total: int) -> None:
        began = time.monotonic()
        if not self._begun:
            self._begin(done, total)
        if self._live is None and self._watcher.clock() == "wall":  # else losses are what was asked for
            for text in self._watcher.new_events(COMINGS_AND_GOINGS):  # warnings are shown already
                self._print(f"{self._watcher.name}: {text}")
        if began < self._due:
            return
        if self._live is not None:
            picture = _picture(self.console, self._watcher, whole=False, counted=(done, total))
            self._live.update(picture, refresh=True)
        elif done < total:
            self._print(plain_line(self._watcher.look((done, total))))
        now = time.monotonic()
        pause = _SHARE * (now - began)
        self._due = now + (pause if self._live is not None else max(_LINE_EVERY, pause))

    def _begin(self, done: int, total: int) -> None:
        self._begun = True
        stages_over()
        if self._live is not None:
            self._live.start()
        else:
            self._watcher.look((done, total))  # from which rates are measured

    def _print(self, text: str) -> None:
        print(text, file=self.console.file, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stages_over()
        if self._live is not None and self._begun:
            self._live.stop()
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(str(error) or "stopped") from None
