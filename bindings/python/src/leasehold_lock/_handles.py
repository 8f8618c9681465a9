"""Owners of C handles: a handle is freed when the object that has it goes.

A finaliser that is written in Python can swallow a Ctrl-C: the interpreter raises
KeyboardInterrupt wherever Python code runs, and what a finaliser raises is printed and forgotten.
So these finalisers are the C functions themselves.
"""

import ctypes
from ctypes import c_void_p
from typing import Any, Callable

from . import _abi


def _finaliser(free: Callable[..., Any]) -> Any:
    """`free` as a method, called with the object as its argument."""
    if not hasattr(ctypes, "pythonapi"):  # Not CPython: a Ctrl-C may be lost there.
        return lambda handle: free(handle)
    method = ctypes.pythonapi.PyInstanceMethod_New
    method.restype = ctypes.py_object
    method.argtypes = [ctypes.py_object]
    return method(free)


class ConfigHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.config_free)


class LockHandle(c_void_p):
    __slots__ = ("name", "argument")

    name: str
    #: The handle, as an argument.
    argument: Any

    __del__ = _finaliser(_abi.lock_free)


class LockStateHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.lock_state_free)


class MetricsHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.metrics_free)


class EventsHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.events_free)


class WaitsHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.waits_free)


class EventHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.event_free)


class ElectionHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.election_free)


class TermHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.term_free)


class MemoryHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.testing_memory_free)


class EffectHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.testing_effect_free)


class NamesHandle(c_void_p):
    __slots__ = ()
    __del__ = _finaliser(_abi.testing_names_free)
