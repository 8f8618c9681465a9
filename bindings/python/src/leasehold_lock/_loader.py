"""Finds the C library and checks that it speaks the binary interface that this package knows."""

import ctypes
import os
import platform
import sys
from pathlib import Path

#: The LEASEHOLD_ABI_VERSION that `_abi.py` was written for.
ABI_VERSION = 0

#: Names another library than the one that came with the package.
VARIABLE = "LEASEHOLD_LIBRARY"

#: Where a wheel has the library and the command.
NATIVE = Path(__file__).parent / "_native"
BUNDLED = NATIVE / "libleasehold.so"
#: What the system's loader knows it by.
SONAME = f"libleasehold.so.{ABI_VERSION}"


def load() -> ctypes.CDLL:
    """The library: the one that LEASEHOLD_LIBRARY names, else the wheel's, else the system's."""
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        raise ImportError(
            f"Leasehold is for Linux on machines of 64 bits; this is Python of "
            f"{sys.maxsize.bit_length() + 1} bits on {platform.system()}"
        )
    path = os.environ.get(VARIABLE) or (str(BUNDLED) if BUNDLED.exists() else SONAME)
    try:
        # CDLL lets other threads run during a call. PyDLL would not, and every wait for a lock
        # would stop the whole program.
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"the Leasehold library cannot be loaded ({error}). Install the package with pip, "
            f"which brings it, or name one in {VARIABLE}"
        ) from error
    check_version(library, path)
    return library


def check_version(library: ctypes.CDLL, path: str) -> None:
    """Refuses a library whose functions take other arguments than we would pass."""
    try:
        spoken = library["leasehold_abi_version"]
    except AttributeError as error:
        raise ImportError(f"{path} is not the Leasehold library") from error
    spoken.restype = ctypes.c_uint32
    spoken.argtypes = []
    version = spoken()
    if version != ABI_VERSION:
        raise ImportError(
            f"{path} has version {version} of the binary interface, and this package needs "
            f"version {ABI_VERSION}: install the two from the same release"
        )
