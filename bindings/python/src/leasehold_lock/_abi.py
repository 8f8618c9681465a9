"""The functions of leasehold.h, as ctypes has to know them, and nothing else.

Handles and pointers to room for a result are `c_void_p`: it takes addresses, `byref()` and None,
and passing an address costs the least. Everything in here is as in the header, which explains it.
"""

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Callable

from ._loader import load

_library = load()

#: Every function that was declared, by its name in C.
declared: dict[str, Callable[..., Any]] = {}

INTERRUPT = CFUNCTYPE(c_int, c_void_p)
LOG = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
LOST = CFUNCTYPE(c_int, c_void_p, c_void_p)
DROP = CFUNCTYPE(None, c_void_p)
WORK = CFUNCTYPE(c_int, c_void_p, c_void_p)
CHANGE = CFUNCTYPE(None, c_void_p, c_uint64, c_int32, c_int32)


def _function(result: Any, name: str, *arguments: Any) -> Callable[..., Any]:
    function = _library["leasehold_" + name]
    function.restype = result
    function.argtypes = arguments
    declared["leasehold_" + name] = function
    return function


class Turn(Structure):
    """leasehold_turn."""

    _fields_ = [("lease", c_void_p), ("fence", c_uint64)]


class Credentials(Structure):
    """leasehold_credentials."""

    _fields_ = [
        ("user", c_char_p),
        ("secret", c_char_p),
        ("valid_until_ms", c_int64),
        ("retire_connections", c_bool),
        ("failure", c_char_p),
    ]


ASK = CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint16, c_char_p, POINTER(Credentials))

#: Makes of an address or a handle what ctypes passes on: nothing is left to convert in a call.
argument: Callable[[Any], Any] = c_void_p.from_param

# Status
status_name = _function(c_char_p, "status_name", c_int32)
status_message = _function(c_char_p, "status_message", c_int32)
status_advice = _function(c_char_p, "status_advice", c_int32)
status_is_retriable = _function(c_bool, "status_is_retriable", c_int32)

# Errors
error_status = _function(c_int32, "error_status", c_void_p)
error_message = _function(c_char_p, "error_message", c_void_p)
error_detail = _function(c_char_p, "error_detail", c_void_p)
error_free = _function(None, "error_free", c_void_p)

# Setting up a client
config_from_url = _function(c_int32, "config_from_url", c_char_p, c_size_t, c_void_p, c_void_p)
config_from_urls = _function(c_int32, "config_from_urls", c_void_p, c_size_t, c_void_p, c_void_p)
config_from_env = _function(c_int32, "config_from_env", c_void_p, c_void_p)
config_set_prefix = _function(c_int32, "config_set_prefix", c_void_p, c_char_p, c_size_t)
config_set_io_timeout_ms = _function(c_int32, "config_set_io_timeout_ms", c_void_p, c_int64)
config_set_pool = _function(c_int32, "config_set_pool", c_void_p, c_uint32)
config_set_close_timeout_ms = _function(c_int32, "config_set_close_timeout_ms", c_void_p, c_int64)
config_set_claim_window_ms = _function(c_int32, "config_set_claim_window_ms", c_void_p, c_int64)
config_set_max_ttl_ms = _function(c_int32, "config_set_max_ttl_ms", c_void_p, c_int64)
config_set_guard_data_loss = _function(c_int32, "config_set_guard_data_loss", c_void_p, c_bool)
config_set_label = _function(c_int32, "config_set_label", c_void_p, c_char_p, c_size_t)
config_set_register = _function(c_int32, "config_set_register", c_void_p, c_bool)
config_set_advise = _function(c_int32, "config_set_advise", c_void_p, c_bool)
config_set_program = _function(c_int32, "config_set_program", c_void_p, c_char_p, c_size_t)
config_set_language = _function(c_int32, "config_set_language", c_void_p, c_char_p, c_size_t)
config_add_metrics_group = _function(
    c_int32, "config_add_metrics_group", c_void_p, c_char_p, c_size_t
)
config_set_credentials = _function(c_int32, "config_set_credentials", c_void_p, ASK, c_void_p, DROP)
config_check = _function(c_int32, "config_check", c_void_p, c_void_p)
config_store = _function(c_char_p, "config_store", c_void_p)
config_free = _function(None, "config_free", c_void_p)

# Clients
client_open = _function(c_int32, "client_open", c_char_p, c_size_t, c_void_p, c_void_p)
client_open_env = _function(c_int32, "client_open_env", c_void_p, c_void_p)
client_open_config = _function(c_int32, "client_open_config", c_void_p, c_void_p, c_void_p)
client_lock = _function(c_int32, "client_lock", c_void_p, c_char_p, c_size_t, c_void_p, c_void_p)
client_initialize = _function(c_int32, "client_initialize", c_void_p, c_bool, c_void_p)
client_ping = _function(c_int32, "client_ping", c_void_p, c_void_p)
client_reopen_after_fork = _function(c_int32, "client_reopen_after_fork", c_void_p, c_void_p)
client_events = _function(c_int32, "client_events", c_void_p, c_void_p, c_void_p)
client_counter = _function(c_int32, "client_counter", c_void_p, c_int32, c_void_p, c_void_p)
client_metrics = _function(c_int32, "client_metrics", c_void_p, c_void_p, c_void_p)
client_store = _function(c_char_p, "client_store", c_void_p)
client_close = _function(c_int32, "client_close", c_void_p, c_void_p)
client_close_within = _function(c_int32, "client_close_within", c_void_p, c_int64, c_void_p)
client_free = _function(None, "client_free", c_void_p)

# Metrics
metrics_text = _function(c_void_p, "metrics_text", c_void_p, c_void_p)
metrics_free = _function(None, "metrics_free", c_void_p)

# Locks
lock_set_ttl_ms = _function(c_int32, "lock_set_ttl_ms", c_void_p, c_int64)
lock_set_wait_ms = _function(c_int32, "lock_set_wait_ms", c_void_p, c_int64)
lock_set_attempts = _function(c_int32, "lock_set_attempts", c_void_p, c_uint32)
lock_set_renew = _function(c_int32, "lock_set_renew", c_void_p, c_bool)
lock_set_io_timeout_ms = _function(c_int32, "lock_set_io_timeout_ms", c_void_p, c_int64)
lock_set_max_hold_ms = _function(c_int32, "lock_set_max_hold_ms", c_void_p, c_int64)
lock_set_wait_mode = _function(c_int32, "lock_set_wait_mode", c_void_p, c_int32)
lock_set_backoff_ms = _function(c_int32, "lock_set_backoff_ms", c_void_p, c_int64, c_int64)
lock_check = _function(c_int32, "lock_check", c_void_p, c_void_p)
lock_name = _function(c_void_p, "lock_name", c_void_p, c_void_p)
lock_try_acquire = _function(c_int32, "lock_try_acquire", c_void_p, c_void_p, c_void_p)
lock_acquire = _function(c_int32, "lock_acquire", c_void_p, c_void_p, c_void_p)
lock_acquire_unless = _function(
    c_int32, "lock_acquire_unless", c_void_p, INTERRUPT, c_void_p, c_void_p, c_void_p
)
lock_acquire_within = _function(
    c_int32, "lock_acquire_within", c_void_p, c_int64, INTERRUPT, c_void_p, c_void_p, c_void_p
)
lock_take = _function(c_int32, "lock_take", c_void_p, INTERRUPT, c_void_p, c_void_p, c_void_p)
lock_attach = _function(
    c_int32, "lock_attach", c_void_p, c_char_p, c_size_t, c_uint64, c_void_p, c_void_p
)
lock_break = _function(
    c_int32, "lock_break", c_void_p, c_uint64, c_char_p, c_size_t, c_void_p, c_void_p
)
lock_inspect = _function(c_int32, "lock_inspect", c_void_p, c_void_p, c_void_p)
lock_free = _function(None, "lock_free", c_void_p)

# Many waits at once
waits_open = _function(c_int32, "waits_open", c_void_p, c_void_p)
waits_start = _function(c_int32, "waits_start", c_void_p, c_void_p, c_uint64, c_void_p)
waits_start_within = _function(
    c_int32, "waits_start_within", c_void_p, c_void_p, c_int64, c_uint64, c_void_p
)
waits_descriptor = _function(c_int, "waits_descriptor", c_void_p)
waits_next_within = _function(c_int32, "waits_next_within", c_void_p, c_int64, c_void_p, c_void_p)
waits_take = _function(c_int32, "waits_take", c_void_p, c_uint64, c_void_p, c_void_p)
waits_stop = _function(c_int32, "waits_stop", c_void_p, c_uint64, c_void_p)
waits_free = _function(None, "waits_free", c_void_p)

# What is to be seen of a lock
lock_state_is_held = _function(c_bool, "lock_state_is_held", c_void_p)
lock_state_token_prefix = _function(c_char_p, "lock_state_token_prefix", c_void_p)
lock_state_ttl_ms = _function(c_int64, "lock_state_ttl_ms", c_void_p)
lock_state_fence = _function(c_uint64, "lock_state_fence", c_void_p)
lock_state_last_fence = _function(c_uint64, "lock_state_last_fence", c_void_p)
timeout_detail = _function(c_char_p, "timeout_detail")
lock_state_waiters = _function(c_size_t, "lock_state_waiters", c_void_p)
lock_state_more_waiters = _function(c_uint64, "lock_state_more_waiters", c_void_p)
lock_state_fact = _function(c_char_p, "lock_state_fact", c_void_p, c_size_t, c_int32)
lock_state_free = _function(None, "lock_state_free", c_void_p)


# Leases
lease_fence = _function(c_uint64, "lease_fence", c_void_p)
lease_token = _function(c_char_p, "lease_token", c_void_p)
lease_name = _function(c_void_p, "lease_name", c_void_p, c_void_p)
lease_remaining_ms = _function(c_int64, "lease_remaining_ms", c_void_p)
lease_is_valid = _function(c_bool, "lease_is_valid", c_void_p)
lease_extend = _function(c_int32, "lease_extend", c_void_p, c_void_p)
lease_extend_for_ms = _function(c_int32, "lease_extend_for_ms", c_void_p, c_int64, c_void_p)
lease_release = _function(c_int32, "lease_release", c_void_p, c_void_p)
lease_end = _function(c_int32, "lease_end", c_void_p, c_bool, c_void_p)
lease_let_expire = _function(c_int32, "lease_let_expire", c_void_p, c_void_p)
lease_let_expire_in_ms = _function(c_int32, "lease_let_expire_in_ms", c_void_p, c_int64, c_void_p)
lease_detach = _function(c_int32, "lease_detach", c_void_p, c_void_p)
lease_on_lost = _function(c_int32, "lease_on_lost", c_void_p, LOST, c_void_p, DROP, c_void_p)
lease_watch = _function(c_int32, "lease_watch", c_void_p, c_void_p, c_void_p, c_void_p)
lease_free = _function(None, "lease_free", c_void_p)
lease_abandon = _function(None, "lease_abandon", c_void_p)

# The two calls of an everyday turn once more, for arguments that are converted already: that takes
# longer than the rest of a call.
prepared_take: Callable[..., Any] = _library["leasehold_lock_take"]
prepared_end: Callable[..., Any] = _library["leasehold_lease_end"]
WAIT, DO_NOT_WAIT = (c_bool.from_param(wait) for wait in (True, False))

# Leader election
client_election = _function(
    c_int32, "client_election", c_void_p, c_char_p, c_size_t, c_void_p, c_void_p
)
election_set_ttl_ms = _function(c_int32, "election_set_ttl_ms", c_void_p, c_int64)
election_set_grace_ms = _function(c_int32, "election_set_grace_ms", c_void_p, c_int64)
election_set_stand_again = _function(c_int32, "election_set_stand_again", c_void_p, c_bool)
election_on_change = _function(c_int32, "election_on_change", c_void_p, CHANGE, c_void_p, DROP)
election_check = _function(c_int32, "election_check", c_void_p, c_void_p)
election_name = _function(c_void_p, "election_name", c_void_p, c_void_p)
election_run_as_leader = _function(
    c_int32, "election_run_as_leader", c_void_p, WORK, INTERRUPT, c_void_p, c_void_p, c_void_p
)
election_stand_within = _function(
    c_int32, "election_stand_within", c_void_p, c_int64, INTERRUPT, c_void_p, c_void_p, c_void_p
)
election_leader = _function(c_int32, "election_leader", c_void_p, c_void_p, c_void_p)
election_state = _function(c_int32, "election_state", c_void_p)
election_fence = _function(c_uint64, "election_fence", c_void_p)
election_is_healthy = _function(c_bool, "election_is_healthy", c_void_p)
election_resign = _function(c_int32, "election_resign", c_void_p, c_void_p)
election_stop = _function(c_int32, "election_stop", c_void_p, c_void_p)
election_free = _function(None, "election_free", c_void_p)
term_fence = _function(c_uint64, "term_fence", c_void_p)
term_is_leader = _function(c_bool, "term_is_leader", c_void_p)
term_leads_after_ms = _function(c_bool, "term_leads_after_ms", c_void_p, c_int64)
term_remaining_ms = _function(c_int64, "term_remaining_ms", c_void_p)
term_end_reason = _function(c_int32, "term_end_reason", c_void_p)
term_loss = _function(c_int32, "term_loss", c_void_p)
term_resign = _function(c_int32, "term_resign", c_void_p, c_void_p)
term_free = _function(None, "term_free", c_void_p)

# Events
event_kind = _function(c_int32, "event_kind", c_void_p)
event_reason = _function(c_int32, "event_reason", c_void_p)
event_name = _function(c_void_p, "event_name", c_void_p, c_void_p)
event_detail = _function(c_char_p, "event_detail", c_void_p)
event_fence = _function(c_uint64, "event_fence", c_void_p)
event_lease_id = _function(c_uint64, "event_lease_id", c_void_p)
event_free = _function(None, "event_free", c_void_p)
events_descriptor = _function(c_int, "events_descriptor", c_void_p)
events_next_within = _function(c_int32, "events_next_within", c_void_p, c_int64, c_void_p, c_void_p)
events_dropped = _function(c_uint64, "events_dropped", c_void_p)
events_free = _function(None, "events_free", c_void_p)

# A store for tests
testing_memory_open = _function(
    c_int32, "testing_memory_open", c_char_p, c_size_t, c_void_p, c_void_p
)
testing_memory_url = _function(c_char_p, "testing_memory_url", c_void_p)
testing_memory_lose = _function(
    c_int32, "testing_memory_lose", c_void_p, c_char_p, c_size_t, c_void_p
)
testing_memory_busy = _function(
    c_int32, "testing_memory_busy", c_void_p, c_char_p, c_size_t, c_void_p, c_void_p
)
testing_memory_fail_next = _function(
    c_int32, "testing_memory_fail_next", c_void_p, c_int32, c_void_p
)
testing_memory_failing = _function(
    c_int32, "testing_memory_failing", c_void_p, c_int32, c_void_p, c_void_p
)
testing_memory_pause = _function(c_int32, "testing_memory_pause", c_void_p, c_void_p)
testing_memory_resume = _function(c_int32, "testing_memory_resume", c_void_p, c_void_p)
testing_memory_advance_ms = _function(
    c_int32, "testing_memory_advance_ms", c_void_p, c_int64, c_void_p
)
testing_memory_held = _function(c_int32, "testing_memory_held", c_void_p, c_void_p, c_void_p)
testing_memory_free = _function(None, "testing_memory_free", c_void_p)
testing_effect_free = _function(None, "testing_effect_free", c_void_p)
testing_names_count = _function(c_size_t, "testing_names_count", c_void_p)
testing_names_get = _function(c_void_p, "testing_names_get", c_void_p, c_size_t, c_void_p)
testing_names_free = _function(None, "testing_names_free", c_void_p)

# The log, durations, versions, handles
log_set = _function(c_int32, "log_set", LOG, c_void_p, c_int32, c_void_p)
log_socket = _function(c_int32, "log_socket", c_int32, c_void_p, c_void_p)
duration_parse = _function(c_int32, "duration_parse", c_char_p, c_size_t, c_void_p, c_void_p)
version = _function(c_char_p, "version")
abi_version = _function(c_uint32, "abi_version")
handle_count = _function(c_size_t, "handle_count")
