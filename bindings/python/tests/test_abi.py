"""The declarations are those of the header, all of it, and of this library."""

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

import leasehold_lock as leasehold
from leasehold_lock import _abi, _election, _errors, _events, _loader, _lock

ROOT = Path(__file__).resolve().parents[3]
HEADER = (ROOT / "include/leasehold.h").read_text()

_TYPES: dict[str, Any] = {
    "void": None,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "leasehold_status": ctypes.c_int32,
    "leasehold_counter": ctypes.c_int32,
    "leasehold_fact": ctypes.c_int32,
    "leasehold_wait_mode": ctypes.c_int32,
    "leasehold_log_level": ctypes.c_int32,
    "leasehold_interrupt_fn": _abi.INTERRUPT,
    "leasehold_log_fn": _abi.LOG,
    "leasehold_lease_lost_fn": _abi.LOST,
    "leasehold_lease_drop_fn": _abi.DROP,
    "leasehold_credentials_fn": _abi.ASK,
    "leasehold_credentials_drop_fn": _abi.DROP,
    "leasehold_election_work_fn": _abi.WORK,
    "leasehold_election_change_fn": _abi.CHANGE,
    "leasehold_election_drop_fn": _abi.DROP,
}


def _python_type(c_type: str) -> Any:
    if c_type.count("*") == 1 and "char" in c_type:
        return ctypes.c_char_p
    return ctypes.c_void_p if "*" in c_type else _TYPES[c_type.strip()]


def _prototypes() -> dict[str, list[Any]]:
    """Result and arguments of each function of the header, as ctypes calls them."""
    text = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    found = {}
    pattern = r"^([\w ]+?[ *]+)(leasehold_\w+)\(([^)]*)\);"
    for result, name, arguments in re.findall(pattern, text, flags=re.MULTILINE):
        types = [re.sub(r"\w+$", "", argument.strip()) for argument in arguments.split(",")]
        if arguments == "void":
            types = []
        found[name] = [_python_type(result), *map(_python_type, types)]
    return found


def test_every_function_of_the_library_is_declared() -> None:
    symbols = (ROOT / "tests/languages/abi/symbols.txt").read_text().split()
    assert sorted(_abi.declared) == sorted(symbols)


@pytest.mark.parametrize("name", sorted(_abi.declared))
def test_a_declaration_is_as_in_the_header(name: str) -> None:
    expected = _prototypes()[name]
    function: Any = _abi.declared[name]
    declared = [function.restype, *function.argtypes]
    # A name may hold zero bytes, so it is read with its length; and so are metrics, which hold names.
    names = tuple(f"leasehold_{of}_name" for of in ("lock", "lease", "event", "election"))
    if name in (*names, "leasehold_testing_names_get", "leasehold_metrics_text"):
        assert declared.pop(0) is ctypes.c_void_p and expected.pop(0) is ctypes.c_char_p
    assert declared == expected


def _constants(prefix: str) -> dict[str, int]:
    pattern = rf"^#define LEASEHOLD_({prefix}\w+) \(?(-?\d+)\)?$"
    return {name: int(number) for name, number in re.findall(pattern, HEADER, flags=re.MULTILINE)}


def test_every_status_has_an_exception() -> None:
    statuses = set(_constants("ERR_").values()) | {2, 3, 4, 5}
    assert statuses == set(_errors._by_status)
    for status, kind in _errors._by_status.items():
        assert getattr(leasehold, kind.__name__) is kind
        made = _errors.failure(status)
        assert type(made) is kind and made.status == status and str(made)


def test_events_and_reasons_have_their_numbers() -> None:
    kinds = {kind.name: kind.value for kind in _events.EventKind if kind.name != "OTHER"}
    numbers = {name[6:]: number for name, number in _constants("EVENT_").items()}
    assert kinds == {name: number for name, number in numbers.items() if number}
    reasons = {reason.name: reason.value for reason in _events.LossReason}
    del reasons["OTHER"]
    assert reasons == {name[5:]: number for name, number in _constants("LOSS_").items()}


def test_states_and_ends_of_an_election_have_their_numbers() -> None:
    states = {f"ELECTION_{state.name}": state.value for state in _election.ElectionState}
    assert states == _constants("ELECTION_")
    ends = {f"TERM_{end.name}": end.value for end in _election.TermEnd}
    assert {**ends, "TERM_LASTS": 0} == _constants("TERM_")


def test_counters_are_in_the_order_of_their_numbers() -> None:
    numbers = _constants("COUNTER_")
    ordered = sorted(numbers, key=lambda name: numbers[name])
    assert [name[8:].lower() for name in ordered] == list(leasehold.Counters._fields)
    assert sorted(numbers.values()) == list(range(1, len(numbers) + 1))


def test_wait_modes_are_in_the_order_of_their_numbers() -> None:
    numbers = _constants("WAIT_MODE_")
    assert {
        f"WAIT_MODE_{mode.upper()}": number for number, mode in enumerate(_lock.WAIT_MODES)
    } == numbers


def test_the_version_of_the_interface_is_the_headers() -> None:
    assert _constants("ABI_")["ABI_VERSION"] == _loader.ABI_VERSION
    assert leasehold.__version__ in HEADER


class _Library:
    """A library that says another version."""

    def __getitem__(self, name: str) -> Any:
        assert name == "leasehold_abi_version"
        return ctypes.CFUNCTYPE(ctypes.c_uint32)(lambda: 7)


def test_another_version_is_refused() -> None:
    with pytest.raises(ImportError, match="version 7 .* needs version 0"):
        _loader.check_version(_Library(), "libother.so")  # type: ignore[arg-type]


def test_a_library_that_is_another_one_is_refused() -> None:
    with pytest.raises(ImportError, match="is not the Leasehold library"):
        _loader.check_version(ctypes.CDLL(None), "libc")


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_loader.VARIABLE, "/nowhere/libleasehold.so")
    with pytest.raises(ImportError, match="/nowhere/libleasehold.so"):
        _loader.load()
