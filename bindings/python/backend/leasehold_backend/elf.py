"""What a file needs of the system: its header says the machine, its versioned symbols the glibc."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

#: The type of the section that lists the versions that a file needs of its libraries.
_VERNEED = 0x6FFFFFFE

#: By the number in the header.
_MACHINES = {62: "x86_64", 183: "aarch64"}


def machine(file: Path) -> str:
    """The processor that a file is for, as `uname -m` says it."""
    (number,) = struct.unpack_from("<H", _read(file), 18)
    if number not in _MACHINES:
        raise SystemExit(f"{file} is for another processor than {' or '.join(_MACHINES.values())}")
    return _MACHINES[number]


def newest_glibc(file: Path) -> Optional[tuple[int, int]]:
    """The highest version of a symbol of glibc, as in (2, 34); none in a file for musl."""
    found = [re.fullmatch(rb"GLIBC_(\d+)\.(\d+)(\.\d+)?", name) for name in needed(file)]
    versions = [(int(match[1]), int(match[2])) for match in found if match]
    return max(versions, default=None)


def needed(file: Path) -> Iterator[bytes]:
    """The names of all versions that a file of 64 bits, little end first, needs."""
    data = _read(file)
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + size * i) for i in range(count)]
    for section in sections:
        kind, place, names, entries = section[1], section[4], section[6], section[7]
        if kind == _VERNEED:
            yield from _versions(data, place, sections[names][4], entries)


def _read(file: Path) -> bytes:
    data = file.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"{file} is no ELF file of 64 bits")
    return data


def _versions(data: bytes, place: int, names: int, entries: int) -> Iterator[bytes]:
    """Each library has a record, and each version needed of it another one."""
    for _ in range(entries):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, place)
        auxiliary = place + first
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, auxiliary)
            end = data.index(b"\0", names + name)
            yield data[names + name : end]
            auxiliary += step
        place += following
