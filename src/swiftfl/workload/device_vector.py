"""A model's vector as a torch tensor, on whatever device its gradient is computed.

It stands wherever a NumPy vector stands. NumPy itself hands its functions over (`__array_ufunc__`,
`__array_function__`), so that update rules, algorithms and engines are written once: what torch can do
happens on the device, whatever else is done on the host with a copy. An operation of one of these and a
NumPy vector, such as a neighbour's model, takes the other one up to the device, chunk by chunk; writing
into a NumPy vector, such as a slot of a transport, brings the numbers down, through pinned memory and on a
stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from swiftfl.vector import Vector
from swiftfl.workload.transfer import download, upload, view_of

_UFUNCS: Mapping[np.ufunc, Callable[..., Tensor]] = {
    np.add: torch.add,
    np.subtract: torch.sub,
    np.multiply: torch.mul,
    np.true_divide: torch.true_divide,
    np.negative: torch.neg,
    np.sqrt: torch.sqrt,
    np.square: torch.square,
    np.sign: torch.sign,
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
    def nbytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()

    def __len__(self) -> int:
        return len(self.tensor)

    def __repr__(self) -> str:
        return f"DeviceVector({self.tensor!r})"

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
            self.tensor[_plain(key)] = _tensor(value, self.tensor) if array else value

    def copy(self) -> DeviceVector:
        return DeviceVector(self.tensor.clone())

    def astype(self, dtype: Any, copy: bool = True) -> DeviceVector:
        kind = getattr(torch, np.dtype(dtype).name)
        return DeviceVector(self.tensor.to(kind, copy=copy))

    def reshape(self, *shape: int) -> DeviceVector:
        return DeviceVector(self.tensor.reshape(*shape))

    # --- reductions --------------------------------------------------------------------------------

    def dot(self, other: Any) -> float:
        return float(self.tensor.dot(_tensor(other, self.tensor)).item())

    def all(self) -> bool:
        return bool(self.tensor.all())

    def any(self) -> bool:
        return bool(self.tensor.any())

    def sum(self) -> float:
        return float(self.tensor.sum())

    def mean(self) -> float:
        return float(self.tensor.mean())

    # --- NumPy's functions -------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", (None,))[0]
        act = _UFUNCS.get(ufunc)
        if method != "__call__" or act is None or options:
            found = getattr(ufunc, method)(*map(_host, inputs), **options)
            return found if out is None else _into(out, found)
        if isinstance(out, DeviceVector):
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
        if known is not None:
            return known(*given, **options)
        return function(*_hosts(given), **{name: _hosts(value) for name, value in options.items()})


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


def _hosts(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_hosts, value))
    return _host(value)


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


def _norm(x: DeviceVector) -> float:
    return float(torch.linalg.vector_norm(x.tensor))


_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    np.zeros_like: _zeros_like,
    np.empty_like: _empty_like,
    np.full_like: _full_like,
    np.concatenate: _concatenate,
    np.append: _append,
    np.copyto: _copyto,
    np.linalg.norm: _norm,
}
