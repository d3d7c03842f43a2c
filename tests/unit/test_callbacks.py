"""Whoever is called while a run goes on: in which order, with what, and what becomes of those that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_experiment import StopAt, plain, same, small

from swiftfl.errors import UserError
from swiftfl.experiment.callbacks import Callback, Row, RunInfo, checked_callbacks
from swiftfl.experiment.run import RunStopped, resume, run
from swiftfl.record import RunFolder


class Listener(Callback):
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def on_start(self, run: RunInfo) -> None:
        self.calls.append(("start", run))

    def on_evaluation(self, row: Row) -> None:
        self.calls.append(("evaluation", row))

    def on_event(self, row: Row) -> None:
        self.calls.append(("event", row))

    def on_end(self, summary: Row | None) -> None:
        self.calls.append(("end", summary))

    def of(self, name: str) -> list[Any]:
        return [what for kind, what in self.calls if kind == name]


class Failing(Callback):
    """Fails in one of its methods, and counts what it is told from then on."""

    def __init__(self, method: str) -> None:
        self.after = 0
        self._failed = False

        def fail(*_: object) -> None:
            self.after += self._failed
            self._failed = True
            raise ValueError("no\nspace")

        setattr(self, method, fail)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_callback_is_told_what_is_recorded(tmp_path: Path, recorded: bool) -> None:
    listener, out = Listener(), tmp_path / "mine" if recorded else None
    result = run(small(), out, callbacks=[listener])
    assert [kind for kind, _ in listener.calls][:2] == ["start", "event"]
    assert listener.calls[-1] == ("end", result.summary)
    [info] = listener.of("start")
    assert (info.folder, info.clients, info.iteration, info.resumed) == (out, 6, 0, False)
    assert info.parameters == result.summary["parameters"]
    assert info.total_steps == result.summary["iterations"]
    assert info.name == ("mine" if recorded else "swift on synthetic")
    assert listener.of("evaluation") == result.curve
    if out is not None:
        folder = RunFolder(out)
        assert info.config == folder.read_json("config.json")
        assert listener.of("evaluation") == folder.read_rows("metrics.jsonl")
        *events, end = folder.read_rows("events.jsonl")
        assert listener.of("event") == events
        assert end["event"] == "end"


def test_what_a_callback_does_to_its_rows_changes_nothing(tmp_path: Path) -> None:
    class Vandal(Callback):
        def on_evaluation(self, row: Row) -> None:
            row["metrics"]["loss"] = row["loss"] = 0.0  # type: ignore[index]

        def on_event(self, row: Row) -> None:
            row.clear()  # type: ignore[attr-defined]

        def on_end(self, summary: Row | None) -> None:
            assert summary is not None
            summary.clear()  # type: ignore[attr-defined]

    same(run(small(), tmp_path / "run", callbacks=[Vandal()]), run(small()))


def test_a_resumed_run_says_where_it_goes_on(tmp_path: Path) -> None:
    first, second = Listener(), Listener()
    with pytest.raises(RunStopped):
        run(small(), tmp_path / "run", StopAt(3), callbacks=[first])
    assert first.calls[-1] == ("end", None)
    assert [row["event"] for row in first.of("event")] == ["start", "checkpoint"]
    result = resume(tmp_path / "run", callbacks=[second])
    [info] = second.of("start")
    assert info.resumed
    assert info.iteration == first.of("evaluation")[-1]["iteration"]
    told = [*first.of("evaluation"), *second.of("evaluation")]
    assert plain(told) == plain(run(small()).curve)
    assert second.calls[-1] == ("end", result.summary)
    assert second.of("event")[0]["event"] == "resume"


@pytest.mark.parametrize("method", ["on_start", "on_evaluation", "on_event", "on_end"])
def test_a_callback_that_fails_is_left_out_with_one_warning(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failing, listener = Failing(method), Listener()
    result = run(small(), callbacks=[failing, listener])
    same(result, run(small()))
    assert failing.after == 0
    assert listener.calls[-1] == ("end", result.summary)
    assert capsys.readouterr().err == (
        f"swiftfl: warning: callback Failing is left out, since {method} failed (ValueError: no space); "
        "the run goes on\n"
    )


def test_a_run_that_fails_ends_its_callbacks() -> None:
    listener = Listener()

    def interrupted(*_: object) -> None:
        raise OSError("of our own")

    with pytest.raises(OSError, match="of our own"):
        run(small(), progress=interrupted, callbacks=[listener])
    assert listener.calls[-1] == ("end", None)
    assert len(listener.of("end")) == 1


def test_live_runs_tell_the_same_rows(tmp_path: Path) -> None:
    listener = Listener()
    run(
        small(engine__name="local", topology__clients=2, engine__costs__slowdowns=[]),
        tmp_path / "run",
        callbacks=[listener],
    )
    folder = RunFolder(tmp_path / "run")
    assert listener.of("evaluation") == folder.read_rows("metrics.jsonl")
    assert listener.of("event") == folder.read_rows("events.jsonl")[:-1]
    assert len(listener.of("start")) == len(listener.of("end")) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (print, "callbacks must be a list of callbacks, not builtin_function_or_method"),
        ("tensorboard", "callbacks must be a list of callbacks, not str"),
        ([Listener], "callbacks[0] is the class Listener: give an object of it"),
        (
            [Listener(), 3],
            "callbacks[1] is a int without the methods of a callback: derive its class from swiftfl.Callback",
        ),
    ],
)
def test_what_is_no_callback_is_refused(given: object, said: str) -> None:
    with pytest.raises(UserError) as error:
        checked_callbacks(given)
    assert str(error.value) == said
    assert checked_callbacks(()) == ()
