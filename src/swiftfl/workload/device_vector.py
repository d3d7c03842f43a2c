"""A model's vector as a torch tensor, on whatever device its gradient is computed.

It stands wherever a NumPy vector stands. NumPy itself hands its functions over (`__array_ufunc__`,
`__array_function__`), so that update rules, algorithms and engines are written once: what torch can do
happens on the device, whatever else is done on the host with a copy. What NumPy is told to write into comes
back from there; into other copies nothing can be written, so that nothing is lost without an error. An
operation of one of these and a NumPy vector, such as a neighbour's model, takes the other one up to the
device, chunk by chunk; writing into a NumPy vector, such as a slot of a transport, brings the numbers down,
through pinned memory and on a stream of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from swiftfl.vector import Vector
from swiftfl.workload.transfer import download, upload, view_of


def _sign(x: Tensor, out: Tensor | None = None) -> Tensor:
    """As NumPy's: of what is not a number it is not one either, so that a client that diverged is seen."""
    found = torch.where(torch.isnan(x), x, torch.sign(x))
    return found if out is None else out.copy_(found)


_UFUNCS: Mapping[np.ufunc, Callable[..., Tensor]] = {
    np.add: torch.add,
    np.subtract: torch.sub,
    np.multiply: torch.mul,
    np.true_divide: torch.true_divide,
    np.negative: torch.neg,
    np.sqrt: torch.sqrt,
    np.square: torch.square,
    np.sign: _sign,
    np.absolute: torch.abs,
    np.maximum: torch.maximum,
    np.minimum: torch.minimum,
    np.isfinite: torch.isfinite,
    np.equal: torch.eq,
    np.not_equal: torch.ne,
    np.less: torch.lt,
    np.less_equal: torch.le,
    np.greater: torch.gt,
    np.greater_equal: torch.ge,
}
_NOT_OF_A_COPY = {"dump", "dumps", "resize", "setflags"}
_METHODS = frozenset(
    name
    for name in dir(np.ndarray)
    if not name.startswith("_") and callable(getattr(np.ndarray, name)) and name not in _NOT_OF_A_COPY
)
"""What arrays can be asked for that a copy of them can answer."""


class DeviceVector(NDArrayOperatorsMixin):
    """One tensor behind the part of NumPy's interface that models need."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    # --- what it is ------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self.tensor.numel()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(str(self.tensor.dtype).removeprefix("torch."))

    @property
    def itemsize(self) -> int:
        return self.tensor.element_size()

    @property
    def nbytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()

    def __len__(self) -> int:
        return len(self.tensor)

    def __repr__(self) -> str:
        return f"DeviceVector({self.tensor!r})"

    def __bool__(self) -> bool:
        return bool(np.asarray(self))  # which is refused of several numbers

    def __getattr__(self, name: str) -> Any:
        """Other methods of NumPy's arrays, of a copy on the host."""
        if name in _METHODS:
            return getattr(_read_only(self), name)
        raise AttributeError(f"a vector on a device has no {name!r}: numpy.asarray(x) has what arrays have")

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a vector on a device is not sent to other processes: numpy.asarray(x) is")

    # --- numbers out and in ----------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vector:
        out = np.empty(self.shape, self.dtype)
        download(self.tensor, out)
        return out if dtype is None else out.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        found = self.tensor[_plain(key)]
        return DeviceVector(found) if found.ndim else found.item()

    def __setitem__(self, key: Any, value: Any) -> None:
        place = self.tensor[_plain(key)] if isinstance(key, slice) else None
        if place is not None and isinstance(value, np.ndarray):
            upload(value, place)
        else:
            array = isinstance(value, DeviceVector | np.ndarray)
            self.tensor[_plain(key)] = _tensor(value, self.tensor).to(self.tensor.dtype) if array else value

    def fill(self, value: float) -> None:
        self.tensor.fill_(value)

    def copy(self) -> DeviceVector:
        return DeviceVector(self.tensor.clone())

    def astype(self, dtype: Any, copy: bool = True) -> DeviceVector:
        kind = getattr(torch, np.dtype(dtype).name)
        return DeviceVector(self.tensor.to(kind, copy=copy))

    def __copy__(self) -> DeviceVector:
        return self.copy()

    def __deepcopy__(self, memo: object) -> DeviceVector:
        return self.copy()

    def reshape(self, *shape: Any) -> DeviceVector:
        return DeviceVector(self.tensor.reshape(*shape))

    def ravel(self) -> DeviceVector:
        return self.reshape(-1)

    def flatten(self) -> DeviceVector:
        return self.copy().reshape(-1)

    # --- reductions --------------------------------------------------------------------------------

    # With parameters they are NumPy's; whole numbers and truth values have means on the host only.

    def dot(self, other: Any) -> Any:
        there = _tensor(other, self.tensor)
        if self.tensor.ndim == 1 == there.ndim and self.tensor.dtype == there.dtype:
            return float(self.tensor.dot(there).item())
        return np.dot(np.asarray(self), _host(other))

    def all(self, *given: Any, **options: Any) -> Any:
        return self._reduced("all", given, options)

    def any(self, *given: Any, **options: Any) -> Any:
        return self._reduced("any", given, options)

    def sum(self, *given: Any, **options: Any) -> Any:
        return self._reduced("sum", given, options)

    def max(self, *given: Any, **options: Any) -> Any:
        return self._reduced("max", given, options)

    def min(self, *given: Any, **options: Any) -> Any:
        return self._reduced("min", given, options)

    def argmax(self, *given: Any, **options: Any) -> Any:
        return self._reduced("argmax", given, options)

    def argmin(self, *given: Any, **options: Any) -> Any:
        return self._reduced("argmin", given, options)

    def mean(self, *given: Any, **options: Any) -> Any:
        return self._reduced("mean", given, options)

    def std(self, *given: Any, **options: Any) -> Any:
        return self._reduced("std", given, options, correction=0)

    def var(self, *given: Any, **options: Any) -> Any:
        return self._reduced("var", given, options, correction=0)

    def _reduced(self, name: str, given: Sequence[Any], options: Mapping[str, Any], **here: int) -> Any:
        if given or options or (name in _OF_REALS and not self.tensor.is_floating_point()):
            return getattr(np.asarray(self), name)(*given, **options)
        return getattr(self.tensor, name)(**here).item()

    # --- NumPy's functions -------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        outs = options.pop("out", ())
        out = outs[0] if outs else None
        act = _UFUNCS.get(ufunc)
        if method != "__call__" or act is None or options:
            return _ufunc_on_host(ufunc, method, inputs, outs, options)
        if isinstance(out, DeviceVector):
            if any(getattr(each, "shape", ()) not in ((), out.shape) for each in inputs):
                return _ufunc_on_host(ufunc, method, inputs, outs, options)  # torch would change out's shape
            first, *rest = inputs
            if isinstance(first, np.ndarray) and first.shape == out.shape and not _is(out, rest):
                upload(first, out.tensor)  # straight to where the result will be
                first = out
            act(*(_tensor(each, out.tensor) for each in (first, *rest)), out=out.tensor)
            return out
        like = next(each.tensor for each in inputs if isinstance(each, DeviceVector))
        result = DeviceVector(act(*(_tensor(each, like) for each in inputs)))
        return result if out is None else _into(out, result)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, given: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        known = _FUNCTIONS.get(function)
        if known is None or len(given) > len(_PARAMETERS[function]) or options.keys() - _PARAMETERS[function]:
            return _function_on_host(function, given, options)
        return known(*given, **options)


def on_device(x: Vector, device: torch.device) -> Vector:
    """A copy of a NumPy vector on a device, to be used as one."""
    up = torch.empty(x.shape, dtype=view_of(x).dtype, device=device)
    upload(x, up)
    return cast(Vector, DeviceVector(up))


def _is(out: DeviceVector, inputs: Sequence[Any]) -> bool:
    """Whether the result may go where one of these operands is: views of one memory count."""
    mine = out.tensor.untyped_storage().data_ptr()
    of_others = (each.tensor for each in inputs if isinstance(each, DeviceVector))
    return any(other.untyped_storage().data_ptr() == mine for other in of_others)


def _tensor(operand: Any, like: Tensor) -> Tensor:
    """An operand on the device of `like`; numbers become tensors without a dimension, and stay untyped."""
    if isinstance(operand, DeviceVector):
        return operand.tensor
    if isinstance(operand, np.ndarray) and operand.ndim:
        if like.device.type == "cpu":
            return view_of(operand)
        up = torch.empty(operand.shape, dtype=view_of(operand).dtype, device=like.device)
        upload(operand, up)
        return up
    return torch.as_tensor(float(operand), dtype=torch.float64)


def _plain(key: Any) -> Any:
    if isinstance(key, DeviceVector):
        return key.tensor
    return view_of(key) if isinstance(key, np.ndarray) else key


def _host(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, DeviceVector) else value


def _read_only(x: DeviceVector) -> Vector:
    """A copy on the host that nobody takes for the vector itself: writing into it would be lost."""
    copy = np.asarray(x)
    copy.flags.writeable = False
    return copy


def _ufunc_on_host(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], outs: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """By NumPy, into what it is to write into: numbers that `where` leaves out stay as they were."""
    given, into = list(map(_host, inputs)), tuple(map(_host, outs))
    more = {name: _host(value) for name, value in options.items()} | ({"out": into} if outs else {})
    found = getattr(ufunc, method)(*given, **more)
    if method == "at":
        _take_back(inputs[0], given[0])
    for out, host in zip(outs, into, strict=True):
        _take_back(out, host)
    if not outs:
        return found
    results = found if isinstance(found, tuple) else (found,)
    replies = tuple(new if out is None else out for out, new in zip(outs, results, strict=True))
    return replies if len(replies) > 1 else replies[0]


def _function_on_host(function: Callable[..., Any], given: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """By NumPy, with copies; what it is known to write into is written back."""
    target = given[0] if given and function in _WRITERS else options.get("out")
    copy = np.asarray(target) if isinstance(target, DeviceVector) else None

    def host(value: Any) -> Any:
        if copy is not None and value is target:
            return copy
        if isinstance(value, tuple | list):
            return type(value)(map(host, value))
        return _read_only(value) if isinstance(value, DeviceVector) else value

    found = function(*map(host, given), **{name: host(value) for name, value in options.items()})
    if copy is None:
        return found
    _take_back(target, copy)
    return target if found is copy else found


def _take_back(target: Any, copy: Vector) -> None:
    if isinstance(target, DeviceVector):
        target[:] = copy


def _into(out: Any, found: Any) -> Any:
    if isinstance(out, DeviceVector):
        out[:] = found
    else:
        np.copyto(out, found)
    return out


# --- functions of NumPy that stay on the device --------------------------------------------------


def _zeros_like(x: DeviceVector, dtype: Any = None) -> DeviceVector:
    return DeviceVector(torch.zeros_like(x.tensor) if dtype is None else x.astype(dtype).tensor.zero_())


def _empty_like(x: DeviceVector, dtype: Any = None) -> DeviceVector:
    return DeviceVector(torch.empty_like(x.tensor)) if dtype is None else _zeros_like(x, dtype)


def _full_like(x: DeviceVector, value: float) -> DeviceVector:
    return DeviceVector(torch.full_like(x.tensor, value))


def _concatenate(parts: Sequence[Any], out: Any = None) -> Any:
    like = next(part.tensor for part in (*parts, out) if isinstance(part, DeviceVector))
    joined = DeviceVector(torch.cat([_tensor(part, like) for part in parts]))
    return joined if out is None else _into(out, joined)


def _append(x: Any, values: Any) -> Any:
    return _concatenate([each if isinstance(each, DeviceVector) else np.ravel(each) for each in (x, values)])


def _copyto(to: Any, x: Any) -> None:
    if isinstance(to, DeviceVector):
        to[:] = x
    elif isinstance(x, DeviceVector) and x.dtype == to.dtype and x.shape == to.shape:
        download(x.tensor, to)
    else:
        np.copyto(to, _host(x))


def _ravel(x: DeviceVector) -> DeviceVector:
    return x.ravel()


def _norm(x: DeviceVector) -> float:
    return float(torch.linalg.vector_norm(x.tensor))


_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    np.zeros_like: _zeros_like,
    np.empty_like: _empty_like,
    np.full_like: _full_like,
    np.concatenate: _concatenate,
    np.append: _append,
    np.ravel: _ravel,
    np.copyto: _copyto,
    np.linalg.norm: _norm,
}
_PARAMETERS = {function: inspect.signature(known).parameters.keys() for function, known in _FUNCTIONS.items()}
"""What these know; whoever gives more is served by NumPy."""
_WRITERS = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}
"""Functions that write into their first argument."""
_OF_REALS = {"mean", "std", "var"}
