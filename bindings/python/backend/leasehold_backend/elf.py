"""Which glibc a file needs: its versioned symbols say."""

import re
import struct
from pathlib import Path
from typing import Iterator, Tuple

#: The type of the section that lists the versions that a file needs of its libraries.
_VERNEED = 0x6FFFFFFE


def newest_glibc(file: Path) -> Tuple[int, int]:
    """The highest version of a symbol of glibc, as in (2, 34)."""
    found = [re.fullmatch(rb"GLIBC_(\d+)\.(\d+)(\.\d+)?", name) for name in needed(file)]
    versions = [(int(match[1]), int(match[2])) for match in found if match]
    if not versions:
        raise SystemExit(f"{file} names no version of glibc that it needs")
    return max(versions)


def needed(file: Path) -> Iterator[bytes]:
    """The names of all versions that a file of 64 bits, little end first, needs."""
    data = file.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"{file} is no ELF file of 64 bits")
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + size * i) for i in range(count)]
    for section in sections:
        kind, place, names, entries = section[1], section[4], section[6], section[7]
        if kind == _VERNEED:
            yield from _versions(data, place, sections[names][4], entries)


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
