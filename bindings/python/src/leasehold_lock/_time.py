"""Durations: seconds in Python, milliseconds in C."""

from datetime import timedelta
from math import ceil, inf, isnan
from typing import Union

from ._errors import bad_argument

#: A duration: seconds, or a timedelta.
Seconds = Union[int, float, timedelta]

#: No limit.
FOREVER_MS = 2**63 - 1
#: The longest time that C counts, and more than anybody waits.
_LONGEST_MS = 2**53


def milliseconds(what: str, duration: Seconds) -> int:
    """Whole milliseconds, rounded up; `math.inf` is for ever."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise TypeError(
            f"{what} is a number of seconds or a timedelta, not {type(duration).__name__}"
        )
    if isnan(seconds) or seconds < 0:
        raise bad_argument(f"{what} is {duration}; it cannot be negative")
    if seconds == inf:
        return FOREVER_MS
    # Rounded to microseconds first: 0.3 s is a little more than 300 ms in binary.
    return min(ceil(round(seconds * 1000, 3)), _LONGEST_MS)
