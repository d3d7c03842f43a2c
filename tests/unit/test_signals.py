"""Signals that ask for a stop: each of them, twice, ignored, and outside of the main thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from swiftfl.signals import STOPPING, stop_requests


@pytest.fixture(autouse=True)
def handlers_are_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest may have been started in the background
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOPPING)
def test_each_signal_asks_for_a_stop_once(number: signal.Signals) -> None:
    before = [signal.getsignal(k) for k in STOPPING]
    asked: list[int] = []
    with stop_requests() as stop:
        stop.then(lambda: asked.append(1))
        assert not stop()
        send(number)
        assert stop()
        assert stop.number == number
        send(signal.SIGTERM)
    assert asked == [1]
    assert [signal.getsignal(k) for k in STOPPING] == before


def test_what_follows_a_request_may_be_said_after_it() -> None:
    asked: list[int] = []
    with stop_requests() as stop:
        send(signal.SIGTERM)
        stop.then(lambda: asked.append(1))
        send(signal.SIGTERM)
    assert asked == [1]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_control_c_is_not_awaited(first: signal.Signals) -> None:
    with stop_requests() as stop:
        send(first)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_requests() as stop:
        send(signal.SIGHUP)
        assert not stop()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_handlers_are_restored_after_an_error() -> None:
    before = [signal.getsignal(k) for k in STOPPING]
    with pytest.raises(RuntimeError), stop_requests():
        raise RuntimeError
    assert [signal.getsignal(k) for k in STOPPING] == before


def test_another_thread_changes_nothing() -> None:
    found = []

    def other() -> None:
        with stop_requests() as stop:
            found.append((stop(), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(timeout=60)
    assert found == [(False, signal.getsignal(signal.SIGTERM))]
