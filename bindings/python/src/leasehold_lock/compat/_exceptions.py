"""redis-py's exceptions: its own, so that code that catches them goes on to, or else our own of the
same names."""

from typing import TYPE_CHECKING, Optional

from .. import _errors

if TYPE_CHECKING:
    _theirs = False
else:
    try:
        from redis.exceptions import (
            AuthenticationError,
            ConnectionError,
            LockError,
            LockNotOwnedError,
            RedisError,
            ResponseError,
            TimeoutError,
        )
    except ImportError:
        _theirs = False
    else:
        _theirs = True

if not _theirs:

    class RedisError(Exception):
        """What all of them are."""

    class ConnectionError(RedisError):
        """The server cannot be reached."""

    class AuthenticationError(ConnectionError):
        """The server did not accept the user or the password."""

    class TimeoutError(RedisError):
        """The server did not answer in time."""

    class ResponseError(RedisError):
        """The server answered with an error."""

    class LockError(RedisError, ValueError):
        """A lock could not be taken or given back."""

        def __init__(self, message: Optional[str] = None, lock_name: Optional[str] = None) -> None:
            super().__init__(message)
            self.message = message
            self.lock_name = lock_name

    class LockNotOwnedError(LockError):
        """A lock that is to be extended or given back is not owned any more."""


_THEIRS: dict[type[_errors.Error], type[RedisError]] = {
    _errors.Refused: ConnectionError,
    _errors.Tls: ConnectionError,
    _errors.Auth: AuthenticationError,
    _errors.NoAnswer: TimeoutError,
    _errors.NoQuorum: TimeoutError,
    _errors.Unknown: TimeoutError,
    _errors.BadArgument: ResponseError,
    _errors.Permission: ResponseError,
    _errors.WrongType: ResponseError,
    _errors.ReadOnly: ResponseError,
    _errors.OutOfMemory: ResponseError,
    _errors.DiskFull: ResponseError,
    _errors.Unavailable: ResponseError,
    _errors.NotReplicated: ResponseError,
    _errors.Protocol: ResponseError,
}


def translated(error: _errors.Error) -> Exception:
    """What redis-py would raise for trouble with the server, and for what that refuses; our own
    error for all else."""
    theirs = _THEIRS.get(type(error))
    return error if theirs is None else theirs(str(error))
