"""Gradients and evaluations of many clients at once, one by one or batched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from swiftfl.data.tree import Tree
from swiftfl.errors import UserError
from swiftfl.sample import Batch, Slope
from swiftfl.vector import Vector
from swiftfl.workload.base import Evaluation, GradientPiece
from swiftfl.workload.choice import Choice, Way, compare
from swiftfl.workload.form import Form
from swiftfl.workload.samples import Samples, count
from swiftfl.workload.scoring import Scoring

Scores = npt.NDArray[np.float64]
_TRIAL = 4  # how many clients the loop is timed and compared on
_NEAR = 1e-2  # batched and single gradients may differ by rounding, never by this much of their norm


class Single(Protocol):
    """What a group needs of the workload it belongs to."""

    @property
    def samples(self) -> Samples: ...

    @property
    def evaluation_chunk(self) -> int:
        """How many test samples are looked at together."""

    def gradient(self, x: Vector, batch: Batch) -> Slope: ...

    def draws(self, batch: Batch) -> bool: ...

    def score(self, x: Vector, inputs: Tree, labels: Tree | None) -> Tensor:
        """(1, 2): the summed loss and the number of right answers of one model."""


class Group:
    """Chooses between a workload's loop and a form of batching."""

    def __init__(
        self,
        single: Single,
        form: Form,
        batching: str | Mapping[str, Way],
        scoring: Scoring,
        reason: str | None = None,
    ) -> None:
        self._single, self._form, self._scoring = single, form, scoring
        self._choice = Choice(batching, form.bar)
        self._evaluation = Choice(batching if isinstance(batching, str) else "off", form.bar)
        self._reason = reason  # why this model cannot be batched, once that is known
        self._tried = reason is not None
        self._separable = False  # whether the form is, by its word and by trial

    def gradients(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        """One reply per client, piece by piece."""
        pieces = self.pieces(xs, batches)
        if len(pieces) == 1:
            return self.piece(pieces[0].way, xs, batches)
        replies: dict[int, Slope] = {}
        for piece in pieces:
            members = piece.members
            slopes = self.piece(piece.way, [xs[k] for k in members], [batches[k] for k in members])
            replies.update(zip(members, slopes, strict=True))
        return [replies[k] for k in range(len(xs))]

    def pieces(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[GradientPiece]:
        """A group in parts that are computed together: batched ones fit the cache, others have one client.

        Batches of unequal size (an epoch's last) form groups of their own.
        """
        if len(xs) != len(batches):
            raise UserError(f"{len(xs)} models but {len(batches)} batches")
        sizes = {batch.indices.size for batch in batches}
        if len(sizes) == 1:
            return self._divided(range(len(xs)), xs, batches)
        found: list[GradientPiece] = []
        for size in sorted(sizes):
            members = [k for k, batch in enumerate(batches) if batch.indices.size == size]
            found += self._divided(members, [xs[k] for k in members], [batches[k] for k in members])
        return found

    @property
    def separable(self) -> bool:
        """Whether a client's gradient has the same bits in whatever group it is computed."""
        if self._reason is not None or self._choice.of_all == "loop":
            return True
        return self._separable and self._choice.of_all == "batched"

    def piece(self, way: str, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        """The gradients of one piece."""
        if way == "loop":
            return self._loop(xs, batches)
        with self._reported_alone(xs, batches):
            return self._form.gradients(xs, batches)

    def evaluate(self, xs: Sequence[Vector]) -> list[Evaluation]:
        """Every model on the whole test set; the test set is prepared once for all of them."""
        if not xs:
            return []
        totals = np.zeros((len(xs), 2))
        samples = answers = 0
        for inputs, labels in self._single.samples.test(self._single.evaluation_chunk):
            weight = self._scoring.weight(inputs, labels)
            if weight:  # else no label of these samples counts
                samples += weight
                answers += self._scoring.answers(inputs, labels)
                totals += self._scores(xs, inputs, labels)
        means = (totals / [samples, max(answers, 1)]).tolist()
        told = self._scoring.right_answers and not np.isnan(totals[:, 1]).any()
        return [Evaluation(loss, right if told else None) for loss, right in means]

    def one_by_one(self, models: int) -> bool:
        """Whether it is known that so many models are evaluated one by one."""
        if self._reason is not None or (self._evaluation.batching == "auto" and not self._form.bounded):
            return True  # hundreds of samples of a model of unknown size: together only by measuring
        return self._evaluation.known(models) == "loop"

    def by_model(self, models: int) -> bool:
        """Whether so many models would be evaluated one by one now, each as if it were alone."""
        if self.one_by_one(models):
            return True
        return self._evaluation.known(models) is None and not self._may_be_measured(models)

    def choices(self) -> dict[str, object]:
        """JSON-ready: `groups` may be given to a later workload as `batching`."""
        batching = self._choice.batching
        return {
            "batching": batching if isinstance(batching, str) else "recorded",
            "form": None if self._reason else self._form.name,
            "reason": self._reason,
            "groups": self._choice.groups,
            "speedups": self._choice.speedups,
        }

    def _divided(
        self, members: Sequence[int], xs: Sequence[Vector], batches: Sequence[Batch]
    ) -> list[GradientPiece]:
        """The pieces of clients whose batches have one size."""
        with self._reported_alone(xs, batches):
            way = self._way(xs, batches)
            chunk = 1 if way == "loop" else self._form.chunk(batches[0])
        return [GradientPiece(members[start : start + chunk], way) for start in range(0, len(members), chunk)]

    def _way(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> Way:
        way = self._choice.known(len(xs))
        if way != "loop" and not self._tried:
            self._reason = self._why_not(xs, batches)
            self._tried = True
        if way == "loop" or self._reason is not None:
            return "loop"
        return self._measure(xs, batches) if way is None else way

    @contextlib.contextmanager
    def _reported_alone(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> Iterator[None]:
        """What fails together because it fails alone is reported as alone: with the client and its batch."""
        try:
            yield
        except UserError:
            raise
        except (ValueError, RuntimeError, IndexError, TypeError):
            self._loop(xs[:1], batches[:1])
            raise

    def _loop(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> list[Slope]:
        return [self._single.gradient(x, batch) for x, batch in zip(xs, batches, strict=True)]

    def _why_not(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> str | None:
        """What rules batching out for this model, tried on a few clients; None if nothing does."""
        if self._single.draws(batches[0]):
            return "it draws random numbers by itself, which are keyed one client at a time"
        large = self._form.too_large(batches[0])
        if large is not None and self._choice.batching in ("auto", "measure"):
            return large
        few = slice(0, min(len(xs), _TRIAL))
        alone = self._loop(xs[few], batches[few])
        try:
            together = self._form.gradients(xs[few], batches[few])
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            return f"vmap refuses it: {str(error).strip().splitlines()[0]}"
        if not all(map(_agree, alone, together)):
            return "its gradients differ when taken together (does its forward pass keep state?)"
        if self._form.separable:  # which a library of linear algebra could break
            apart = [
                self._form.gradients([x], [batch])[0] for x, batch in zip(xs[few], batches[few], strict=True)
            ]
            self._separable = all(map(_same_bits, apart, together))
        return None

    def _measure(self, xs: Sequence[Vector], batches: Sequence[Batch]) -> Way:
        """Time both ways on (a chunk of) this group."""
        some = slice(0, min(len(xs), self._form.chunk(batches[0])))
        few = slice(0, min(len(xs), _TRIAL))
        loop, batched = compare(
            lambda: self._loop(xs[few], batches[few]), lambda: self._form.gradients(xs[some], batches[some])
        )
        return self._choice.settle(len(xs), (loop / few.stop) / (batched / some.stop))

    def _scores(self, xs: Sequence[Vector], inputs: Tree, labels: Tree | None) -> Scores:
        """(models, 2): summed loss and right answers on these samples."""
        if self.one_by_one(len(xs)):
            return self._scores_one_by_one(xs, inputs, labels)
        way = self._evaluation.known(len(xs))
        if way is None and self._may_be_measured(len(xs)):
            way = self._measure_scores(xs, inputs, labels)
        if way == "batched":
            return self._scores_together(xs, inputs, labels)
        return self._scores_one_by_one(xs, inputs, labels)

    def _may_be_measured(self, models: int) -> bool:
        """A module that is too large for vmap must not be found out here, on hundreds of samples."""
        return models > 1 and (self._form.bounded or "batched" in self._choice.groups.values())

    def _measure_scores(self, xs: Sequence[Vector], inputs: Tree, labels: Tree | None) -> Way:
        some = xs[: self._form.evaluation_chunk(count(inputs))]
        try:
            loop, batched = compare(
                lambda: self._scores_one_by_one(xs[:1], inputs, labels),
                lambda: self._scores_together(some, inputs, labels),
            )
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            return self._evaluation.settle(len(xs), 0.0)
        return self._evaluation.settle(len(xs), loop / (batched / len(some)))

    def _scores_one_by_one(self, xs: Sequence[Vector], inputs: Tree, labels: Tree | None) -> Scores:
        return _rows(self._single.score(x, inputs, labels) for x in xs)

    def _scores_together(self, xs: Sequence[Vector], inputs: Tree, labels: Tree | None) -> Scores:
        chunk = self._form.evaluation_chunk(count(inputs))
        chunks = (xs[start : start + chunk] for start in range(0, len(xs), chunk))
        return _rows(self._scoring.scores(self._form.outputs(some, inputs), labels) for some in chunks)


def _rows(found: Iterable[Tensor]) -> Scores:
    return np.concatenate([some.cpu().numpy() for some in found]).astype(np.float64)


def _agree(alone: Slope, together: Slope) -> bool:
    same = _near(alone.g, together.g)
    if alone.statistics is None or together.statistics is None:
        return same and alone.statistics is together.statistics
    return same and _near(alone.statistics.values, together.statistics.values)


def _same_bits(one: Slope, other: Slope) -> bool:
    return one.loss == other.loss and one.g.tobytes() == other.g.tobytes()


def _near(a: Vector, b: Vector) -> bool:
    size = float(np.linalg.norm(a))  # of a diverged client not finite: it says nothing about the form
    return not np.isfinite(size) or float(np.linalg.norm(a - b)) <= _NEAR * size + 1e-6
