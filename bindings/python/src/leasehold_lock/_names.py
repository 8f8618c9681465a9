"""Names of locks: any bytes, as text where that can be."""

from typing import Union

#: Text, or any bytes.
Name = Union[str, bytes]


def encode_name(name: Name) -> bytes:
    """A name as bytes. What `decode_name` made of any bytes comes back as it was."""
    if isinstance(name, str):
        return name.encode("utf-8", "surrogateescape")
    if isinstance(name, bytes):
        return name
    raise TypeError(f"the name of a lock is str or bytes, not {type(name).__name__}")


def decode_name(name: bytes) -> str:
    """A name as text; bytes that are no UTF-8 become lone surrogates."""
    return name.decode("utf-8", "surrogateescape")
