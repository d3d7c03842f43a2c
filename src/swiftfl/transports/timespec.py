"""A length of time as the kernel takes it, for calls that wait at most so long."""

from __future__ import annotations

import ctypes


class Timespec(ctypes.Structure):
    """`struct timespec` of C: whole seconds, and nanoseconds."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def timespec(seconds: float) -> Timespec:
    whole = int(seconds)
    return Timespec(whole, int((seconds - whole) * 1e9))
