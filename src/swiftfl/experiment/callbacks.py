"""Callbacks of a run: who is told of its start, evaluations, events and end."""

from __future__ import annotations

import copy
import logging
import traceback
from collections.abc import Callable, Iterable, Sequence

from swiftfl.errors import UserError
from swiftfl.experiment.notices import notice
from swiftfl.trackers.base import Callback, Row, RunInfo
from swiftfl.trackers.library import without_secrets
from swiftfl.trackers.registry import make_trackers

__all__ = ["Callback", "CallbackGroup", "Row", "RunInfo", "checked_callbacks", "with_trackers"]
_log = logging.getLogger(__name__)


class CallbackGroup:
    """The callbacks of one run; one that raises is left out, with one warning.

    Rows that come before the start are kept until then: an engine may have to fork before anybody else
    has a thread.
    """

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._members = list(callbacks)
        self._early: list[Row] = []
        self._started = False

    def start(self, run: RunInfo) -> None:
        self._started = True
        self._tell("on_start", lambda member: member.on_start(run))
        early, self._early = self._early, []
        self.events(early)

    def evaluation(self, row: Row) -> None:
        self._tell("on_evaluation", lambda member: member.on_evaluation(copy.deepcopy(row)))

    def events(self, rows: Sequence[Row]) -> None:
        if not self._members:
            return
        if not self._started:
            self._early += rows
            return
        for row in rows:
            self._tell_event(row)

    def _tell_event(self, row: Row) -> None:
        self._tell("on_event", lambda member: member.on_event(copy.deepcopy(row)))

    def end(self, summary: Row | None) -> None:
        """Called once if there was a start; a second call does nothing."""
        if self._started:
            self._tell("on_end", lambda member: member.on_end(copy.deepcopy(summary)))
        self._members = []

    def _tell(self, method: str, call: Callable[[Callback], None]) -> None:
        for member in list(self._members):
            try:
                call(member)
            except Exception as error:
                self._members.remove(member)
                self._report(type(member).__name__, method, error)

    def _report(self, name: str, method: str, error: Exception) -> None:
        _log.debug("%s.%s: %s", name, method, without_secrets("".join(traceback.format_exception(error))))
        why = without_secrets(_told(error))
        notice(f"warning: callback {name} is left out, since {method} failed ({why}); the run goes on")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def with_trackers(
    callbacks: Sequence[Callback], trackers: Sequence[str], recorded: bool
) -> tuple[Callback, ...]:
    """The callbacks that were given, and the trackers that the configuration names.

    Raises:
        UserError: A tracker's library is not installed, or the run has no folder.
    """
    if trackers and not recorded:
        raise UserError(f"tracker {trackers[0]} needs a run folder: give out")
    return (*callbacks, *make_trackers(trackers))


def checked_callbacks(callbacks: object) -> tuple[Callback, ...]:
    """Callbacks as they were given in Python.

    Args:
        callbacks: A list or tuple of objects with the four methods of `Callback`.

    Raises:
        UserError: Something else was given.
    """
    if not isinstance(callbacks, Iterable) or isinstance(callbacks, str | bytes):
        raise UserError(f"callbacks must be a list of callbacks, not {type(callbacks).__name__}")
    found = tuple(callbacks)
    for position, member in enumerate(found):
        if isinstance(member, type):
            raise UserError(f"callbacks[{position}] is the class {member.__name__}: give an object of it")
        if not isinstance(member, Callback):
            raise UserError(
                f"callbacks[{position}] is a {type(member).__name__} without the methods of a callback: "
                "derive its class from swiftfl.Callback"
            )
    return found
