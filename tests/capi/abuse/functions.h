/*
 * Every function of the library, with what it takes and what it gives, so that programs can call
 * any of them with anything.
 */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include <leasehold.h>

/*
 * FUNCTION(what it returns, name, type of its handle, type of its output, sort of its bytes,
 *          arguments)
 *
 * The words in the arguments stand for members of a struct call; functions.c defines them.
 */
#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(TEXT, status_name, NONE, NONE, NO, (NUMBER_IN))                                       \
    FUNCTION(TEXT, status_message, NONE, NONE, NO, (NUMBER_IN))                                    \
    FUNCTION(TEXT, status_advice, NONE, NONE, NO, (NUMBER_IN))                                     \
    FUNCTION(NUMBER, status_is_retriable, NONE, NONE, NO, (NUMBER_IN))                             \
    FUNCTION(TEXT, timeout_detail, NONE, NONE, NO, ())                                             \
    FUNCTION(NUMBER, error_status, ERROR, NONE, NO, (HANDLE))                                      \
    FUNCTION(TEXT, error_message, ERROR, NONE, NO, (HANDLE))                                       \
    FUNCTION(TEXT, error_detail, ERROR, NONE, NO, (HANDLE))                                        \
    FUNCTION(NOTHING, error_free, ERROR, NONE, NO, (HANDLE))                                       \
    FUNCTION(STATUS, config_from_url, NONE, CONFIG, URL, (BYTES, OUTPUT, ERROR_OUT))               \
    FUNCTION(STATUS, config_from_urls, NONE, CONFIG, NO, (URLS, OUTPUT, ERROR_OUT))                \
    FUNCTION(STATUS, config_from_env, NONE, CONFIG, NO, (OUTPUT, ERROR_OUT))                       \
    FUNCTION(STATUS, config_set_prefix, CONFIG, NONE, NAME, (HANDLE, BYTES))                       \
    FUNCTION(STATUS, config_set_io_timeout_ms, CONFIG, NONE, NO, (HANDLE, MS))                     \
    FUNCTION(STATUS, config_set_pool, CONFIG, NONE, NO, (HANDLE, COUNT))                           \
    FUNCTION(STATUS, config_set_close_timeout_ms, CONFIG, NONE, NO, (HANDLE, MS))                  \
    FUNCTION(STATUS, config_set_claim_window_ms, CONFIG, NONE, NO, (HANDLE, MS))                   \
    FUNCTION(STATUS, config_set_max_ttl_ms, CONFIG, NONE, NO, (HANDLE, MS))                        \
    FUNCTION(STATUS, config_set_guard_data_loss, CONFIG, NONE, NO, (HANDLE, COUNT))                \
    FUNCTION(STATUS, config_set_label, CONFIG, NONE, NAME, (HANDLE, BYTES))                        \
    FUNCTION(STATUS, config_set_register, CONFIG, NONE, NO, (HANDLE, COUNT))                       \
    FUNCTION(STATUS, config_set_advise, CONFIG, NONE, NO, (HANDLE, COUNT))                         \
    FUNCTION(STATUS, config_set_credentials, CONFIG, NONE, NO, (HANDLE, ASK, USER_DATA, DROP))     \
    FUNCTION(STATUS, config_set_program, CONFIG, NONE, NAME, (HANDLE, BYTES))                      \
    FUNCTION(STATUS, config_set_language, CONFIG, NONE, NAME, (HANDLE, BYTES))                     \
    FUNCTION(STATUS, config_add_metrics_group, CONFIG, NONE, NAME, (HANDLE, BYTES))                \
    FUNCTION(STATUS, config_check, CONFIG, NONE, NO, (HANDLE, ERROR_OUT))                          \
    FUNCTION(TEXT, config_store, CONFIG, NONE, NO, (HANDLE))                                       \
    FUNCTION(NOTHING, config_free, CONFIG, NONE, NO, (HANDLE))                                     \
    FUNCTION(STATUS, client_open, NONE, CLIENT, URL, (BYTES, OUTPUT, ERROR_OUT))                   \
    FUNCTION(STATUS, client_open_env, NONE, CLIENT, NO, (OUTPUT, ERROR_OUT))                       \
    FUNCTION(STATUS, client_open_config, CONFIG, CLIENT, NO, (HANDLE, OUTPUT, ERROR_OUT))          \
    FUNCTION(STATUS, client_lock, CLIENT, LOCK, NAME, (HANDLE, BYTES, OUTPUT, ERROR_OUT))          \
    FUNCTION(STATUS, client_ping, CLIENT, NONE, NO, (HANDLE, ERROR_OUT))                           \
    FUNCTION(STATUS, client_initialize, CLIENT, NONE, NO, (HANDLE, COUNT, ERROR_OUT))              \
    FUNCTION(STATUS, client_events, CLIENT, EVENTS, NO, (HANDLE, OUTPUT, ERROR_OUT))               \
    FUNCTION(STATUS, client_reopen_after_fork, CLIENT, NONE, NO, (HANDLE, ERROR_OUT))              \
    FUNCTION(STATUS, client_counter, CLIENT, PLAIN, NO, (HANDLE, NUMBER_IN, OUTPUT, ERROR_OUT))    \
    FUNCTION(STATUS, client_metrics, CLIENT, METRICS, NO, (HANDLE, OUTPUT, ERROR_OUT))             \
    FUNCTION(TEXT, client_store, CLIENT, NONE, NO, (HANDLE))                                       \
    FUNCTION(STATUS, client_close, CLIENT, NONE, NO, (HANDLE, ERROR_OUT))                          \
    FUNCTION(STATUS, client_close_within, CLIENT, NONE, NO, (HANDLE, MS, ERROR_OUT))               \
    FUNCTION(NOTHING, client_free, CLIENT, NONE, NO, (HANDLE))                                     \
    FUNCTION(STATUS, lock_set_ttl_ms, LOCK, NONE, NO, (HANDLE, MS))                                \
    FUNCTION(STATUS, lock_set_wait_ms, LOCK, NONE, NO, (HANDLE, MS))                               \
    FUNCTION(STATUS, lock_set_io_timeout_ms, LOCK, NONE, NO, (HANDLE, MS))                         \
    FUNCTION(STATUS, lock_set_attempts, LOCK, NONE, NO, (HANDLE, COUNT))                           \
    FUNCTION(STATUS, lock_set_renew, LOCK, NONE, NO, (HANDLE, COUNT))                              \
    FUNCTION(STATUS, lock_set_max_hold_ms, LOCK, NONE, NO, (HANDLE, MS))                           \
    FUNCTION(STATUS, lock_set_wait_mode, LOCK, NONE, NO, (HANDLE, NUMBER_IN))                      \
    FUNCTION(STATUS, lock_set_backoff_ms, LOCK, NONE, NO, (HANDLE, MS, MORE_MS))                   \
    FUNCTION(STATUS, lock_check, LOCK, NONE, NO, (HANDLE, ERROR_OUT))                              \
    FUNCTION(TEXT, lock_name, LOCK, LENGTH, NO, (HANDLE, OUTPUT))                                  \
    FUNCTION(STATUS, lock_try_acquire, LOCK, LEASE, NO, (HANDLE, OUTPUT, ERROR_OUT))               \
    FUNCTION(STATUS, lock_acquire, LOCK, LEASE, NO, (HANDLE, OUTPUT, ERROR_OUT))                   \
    FUNCTION(STATUS, lock_acquire_unless, LOCK, LEASE, NO,                                         \
             (HANDLE, INTERRUPT, USER_DATA, OUTPUT, ERROR_OUT))                                    \
    FUNCTION(STATUS, lock_acquire_within, LOCK, LEASE, NO,                                         \
             (HANDLE, MS, INTERRUPT, USER_DATA, OUTPUT, ERROR_OUT))                                \
    FUNCTION(STATUS, lock_take, LOCK, LEASE, NO,                                                   \
             (HANDLE, INTERRUPT, USER_DATA, OUTPUT, ERROR_OUT))                                    \
    FUNCTION(STATUS, lock_attach, LOCK, LEASE, TOKEN, (HANDLE, BYTES, FENCE, OUTPUT, ERROR_OUT))   \
    FUNCTION(STATUS, lock_break, LOCK, PLAIN, NAME, (HANDLE, FENCE, BYTES, OUTPUT, ERROR_OUT))     \
    FUNCTION(STATUS, lock_inspect, LOCK, LOCK_STATE, NO, (HANDLE, OUTPUT, ERROR_OUT))              \
    FUNCTION(NOTHING, lock_free, LOCK, NONE, NO, (HANDLE))                                         \
    FUNCTION(STATUS, waits_open, NONE, WAITS, NO, (OUTPUT, ERROR_OUT))                             \
    FUNCTION(STATUS, waits_start, WAITS, NONE, NO, (HANDLE, A_LOCK, ID, ERROR_OUT))                \
    FUNCTION(STATUS, waits_start_within, WAITS, NONE, NO, (HANDLE, A_LOCK, MS, ID, ERROR_OUT))     \
    FUNCTION(NUMBER, waits_descriptor, WAITS, NONE, NO, (HANDLE))                                  \
    FUNCTION(STATUS, waits_next_within, WAITS, PLAIN, NO, (HANDLE, MS, OUTPUT, ERROR_OUT))         \
    FUNCTION(STATUS, waits_take, WAITS, LEASE, NO, (HANDLE, ID, OUTPUT, ERROR_OUT))                \
    FUNCTION(STATUS, waits_stop, WAITS, NONE, NO, (HANDLE, ID, ERROR_OUT))                         \
    FUNCTION(NOTHING, waits_free, WAITS, NONE, NO, (HANDLE))                                       \
    FUNCTION(NUMBER, lock_state_is_held, LOCK_STATE, NONE, NO, (HANDLE))                           \
    FUNCTION(TEXT, lock_state_token_prefix, LOCK_STATE, NONE, NO, (HANDLE))                        \
    FUNCTION(NUMBER, lock_state_ttl_ms, LOCK_STATE, NONE, NO, (HANDLE))                            \
    FUNCTION(NUMBER, lock_state_fence, LOCK_STATE, NONE, NO, (HANDLE))                             \
    FUNCTION(NUMBER, lock_state_last_fence, LOCK_STATE, NONE, NO, (HANDLE))                        \
    FUNCTION(NUMBER, lock_state_waiters, LOCK_STATE, NONE, NO, (HANDLE))                           \
    FUNCTION(NUMBER, lock_state_more_waiters, LOCK_STATE, NONE, NO, (HANDLE))                      \
    FUNCTION(TEXT, lock_state_fact, LOCK_STATE, NONE, NO, (HANDLE, COUNT, NUMBER_IN))              \
    FUNCTION(NOTHING, lock_state_free, LOCK_STATE, NONE, NO, (HANDLE))                             \
    FUNCTION(TEXT, metrics_text, METRICS, LENGTH, NO, (HANDLE, OUTPUT))                            \
    FUNCTION(NOTHING, metrics_free, METRICS, NONE, NO, (HANDLE))                                   \
    FUNCTION(NUMBER, lease_fence, LEASE, NONE, NO, (HANDLE))                                       \
    FUNCTION(TEXT, lease_token, LEASE, NONE, NO, (HANDLE))                                         \
    FUNCTION(TEXT, lease_name, LEASE, LENGTH, NO, (HANDLE, OUTPUT))                                \
    FUNCTION(NUMBER, lease_remaining_ms, LEASE, NONE, NO, (HANDLE))                                \
    FUNCTION(NUMBER, lease_is_valid, LEASE, NONE, NO, (HANDLE))                                    \
    FUNCTION(STATUS, lease_extend, LEASE, NONE, NO, (HANDLE, ERROR_OUT))                           \
    FUNCTION(STATUS, lease_extend_for_ms, LEASE, NONE, NO, (HANDLE, MS, ERROR_OUT))                \
    FUNCTION(STATUS, lease_end, LEASE, NONE, NO, (HANDLE, COUNT, ERROR_OUT))                       \
    FUNCTION(STATUS, lease_release, LEASE, NONE, NO, (HANDLE, ERROR_OUT))                          \
    FUNCTION(STATUS, lease_let_expire, LEASE, NONE, NO, (HANDLE, ERROR_OUT))                       \
    FUNCTION(STATUS, lease_let_expire_in_ms, LEASE, NONE, NO, (HANDLE, MS, ERROR_OUT))             \
    FUNCTION(STATUS, lease_detach, LEASE, NONE, NO, (HANDLE, ERROR_OUT))                           \
    FUNCTION(STATUS, lease_on_lost, LEASE, NONE, NO, (HANDLE, LOST, USER_DATA, DROP, ERROR_OUT))   \
    FUNCTION(STATUS, lease_watch, LEASE, PLAIN, NO, (HANDLE, EVENTS_IN, OUTPUT, ERROR_OUT))        \
    FUNCTION(NOTHING, lease_free, LEASE, NONE, NO, (HANDLE))                                       \
    FUNCTION(NOTHING, lease_abandon, LEASE, NONE, NO, (HANDLE))                                    \
    FUNCTION(STATUS, client_election, CLIENT, ELECTION, NAME, (HANDLE, BYTES, OUTPUT, ERROR_OUT))  \
    FUNCTION(STATUS, election_set_ttl_ms, ELECTION, NONE, NO, (HANDLE, MS))                        \
    FUNCTION(STATUS, election_set_grace_ms, ELECTION, NONE, NO, (HANDLE, MS))                      \
    FUNCTION(STATUS, election_set_stand_again, ELECTION, NONE, NO, (HANDLE, COUNT))                \
    FUNCTION(STATUS, election_on_change, ELECTION, NONE, NO, (HANDLE, CHANGE, USER_DATA, DROP))    \
    FUNCTION(STATUS, election_check, ELECTION, NONE, NO, (HANDLE, ERROR_OUT))                      \
    FUNCTION(TEXT, election_name, ELECTION, LENGTH, NO, (HANDLE, OUTPUT))                          \
    FUNCTION(STATUS, election_run_as_leader, ELECTION, PLAIN, NO,                                  \
             (HANDLE, WORK, INTERRUPT, USER_DATA, OUTPUT, ERROR_OUT))                              \
    FUNCTION(STATUS, election_stand_within, ELECTION, TERM, NO,                                    \
             (HANDLE, MS, INTERRUPT, USER_DATA, OUTPUT, ERROR_OUT))                                \
    FUNCTION(STATUS, election_leader, ELECTION, LOCK_STATE, NO, (HANDLE, OUTPUT, ERROR_OUT))       \
    FUNCTION(NUMBER, election_state, ELECTION, NONE, NO, (HANDLE))                                 \
    FUNCTION(NUMBER, election_fence, ELECTION, NONE, NO, (HANDLE))                                 \
    FUNCTION(NUMBER, election_is_healthy, ELECTION, NONE, NO, (HANDLE))                            \
    FUNCTION(STATUS, election_resign, ELECTION, NONE, NO, (HANDLE, ERROR_OUT))                     \
    FUNCTION(STATUS, election_stop, ELECTION, NONE, NO, (HANDLE, ERROR_OUT))                       \
    FUNCTION(NOTHING, election_free, ELECTION, NONE, NO, (HANDLE))                                 \
    FUNCTION(NUMBER, term_fence, TERM, NONE, NO, (HANDLE))                                         \
    FUNCTION(NUMBER, term_is_leader, TERM, NONE, NO, (HANDLE))                                     \
    FUNCTION(NUMBER, term_leads_after_ms, TERM, NONE, NO, (HANDLE, MS))                            \
    FUNCTION(NUMBER, term_remaining_ms, TERM, NONE, NO, (HANDLE))                                  \
    FUNCTION(NUMBER, term_end_reason, TERM, NONE, NO, (HANDLE))                                    \
    FUNCTION(NUMBER, term_loss, TERM, NONE, NO, (HANDLE))                                          \
    FUNCTION(STATUS, term_resign, TERM, NONE, NO, (HANDLE, ERROR_OUT))                             \
    FUNCTION(NOTHING, term_free, TERM, NONE, NO, (HANDLE))                                         \
    FUNCTION(NUMBER, event_kind, EVENT, NONE, NO, (HANDLE))                                        \
    FUNCTION(NUMBER, event_reason, EVENT, NONE, NO, (HANDLE))                                      \
    FUNCTION(TEXT, event_name, EVENT, LENGTH, NO, (HANDLE, OUTPUT))                                \
    FUNCTION(TEXT, event_detail, EVENT, NONE, NO, (HANDLE))                                        \
    FUNCTION(NUMBER, event_fence, EVENT, NONE, NO, (HANDLE))                                       \
    FUNCTION(NUMBER, event_lease_id, EVENT, NONE, NO, (HANDLE))                                    \
    FUNCTION(NOTHING, event_free, EVENT, NONE, NO, (HANDLE))                                       \
    FUNCTION(NUMBER, events_descriptor, EVENTS, NONE, NO, (HANDLE))                                \
    FUNCTION(STATUS, events_next_within, EVENTS, EVENT, NO, (HANDLE, MS, OUTPUT, ERROR_OUT))       \
    FUNCTION(NUMBER, events_dropped, EVENTS, NONE, NO, (HANDLE))                                   \
    FUNCTION(NOTHING, events_free, EVENTS, NONE, NO, (HANDLE))                                     \
    FUNCTION(STATUS, log_set, NONE, NONE, NO, (LOG, USER_DATA, NUMBER_IN, ERROR_OUT))              \
    FUNCTION(STATUS, log_socket, NONE, PLAIN, NO, (NUMBER_IN, OUTPUT, ERROR_OUT))                  \
    FUNCTION(STATUS, testing_memory_open, NONE, MEMORY, NAME, (BYTES, OUTPUT, ERROR_OUT))          \
    FUNCTION(TEXT, testing_memory_url, MEMORY, NONE, NO, (HANDLE))                                 \
    FUNCTION(STATUS, testing_memory_lose, MEMORY, NONE, NAME, (HANDLE, BYTES, ERROR_OUT))          \
    FUNCTION(STATUS, testing_memory_busy, MEMORY, EFFECT, NAME,                                    \
             (HANDLE, BYTES, OUTPUT, ERROR_OUT))                                                   \
    FUNCTION(STATUS, testing_memory_fail_next, MEMORY, NONE, NO, (HANDLE, KIND, ERROR_OUT))        \
    FUNCTION(STATUS, testing_memory_failing, MEMORY, EFFECT, NO,                                   \
             (HANDLE, KIND, OUTPUT, ERROR_OUT))                                                    \
    FUNCTION(STATUS, testing_memory_pause, MEMORY, NONE, NO, (HANDLE, ERROR_OUT))                  \
    FUNCTION(STATUS, testing_memory_resume, MEMORY, NONE, NO, (HANDLE, ERROR_OUT))                 \
    FUNCTION(STATUS, testing_memory_advance_ms, MEMORY, NONE, NO, (HANDLE, MS, ERROR_OUT))         \
    FUNCTION(STATUS, testing_memory_held, MEMORY, NAMES, NO, (HANDLE, OUTPUT, ERROR_OUT))          \
    FUNCTION(NOTHING, testing_memory_free, MEMORY, NONE, NO, (HANDLE))                             \
    FUNCTION(NOTHING, testing_effect_free, EFFECT, NONE, NO, (HANDLE))                             \
    FUNCTION(NUMBER, testing_names_count, NAMES, NONE, NO, (HANDLE))                               \
    FUNCTION(TEXT, testing_names_get, NAMES, LENGTH, NO, (HANDLE, COUNT, OUTPUT))                  \
    FUNCTION(NOTHING, testing_names_free, NAMES, NONE, NO, (HANDLE))                               \
    FUNCTION(STATUS, duration_parse, NONE, PLAIN, DURATION, (BYTES, OUTPUT, ERROR_OUT))            \
    FUNCTION(TEXT, version, NONE, NONE, NO, ())                                                    \
    FUNCTION(NUMBER, abi_version, NONE, NONE, NO, ())                                              \
    FUNCTION(NUMBER, handle_count, NONE, NONE, NO, ())

/* What a function takes or gives. Those before NONE are handles. */
enum type {
    ERROR,
    CONFIG,
    CLIENT,
    LOCK,
    LOCK_STATE,
    LEASE,
    EVENTS,
    EVENT,
    WAITS,
    METRICS,
    MEMORY,
    EFFECT,
    NAMES,
    ELECTION,
    TERM,
    NONE,
    PLAIN,
    LENGTH
};
#define TYPES NONE

enum result { STATUS, NUMBER, TEXT, NOTHING };

/* What the bytes that go in are meant to be. */
enum sort { NO, URL, NAME, TOKEN, DURATION };
#define SORTS (DURATION + 1)

/* One call: what goes in, and what comes out. */
struct call {
    void *handle;
    leasehold_lock *lock;
    const char *bytes;
    size_t length;
    int64_t ms, more_ms;
    uint32_t count;
    int32_t number;
    uint64_t fence;
    leasehold_interrupt_fn interrupt;
    leasehold_log_fn log;
    leasehold_lease_lost_fn lost;
    leasehold_credentials_fn ask;
    leasehold_election_work_fn work;
    leasehold_election_change_fn change;
    leasehold_lease_drop_fn drop;
    leasehold_events *events;
    void *user_data;
    /* Where the output goes, and the error; either may be NULL. */
    void *output;
    leasehold_error **error;

    leasehold_status status;
    int64_t returned;
    const char *text;
};

struct function {
    const char *name;
    enum result result;
    enum type handle, output;
    enum sort bytes;
    /* The words of its arguments, as FUNCTIONS has them. */
    const char *arguments;
    void (*run)(struct call *);
};

extern const struct function functions[];
#define FUNCTION(...) +1
enum { FUNCTION_COUNT = FUNCTIONS(FUNCTION) };
#undef FUNCTION

bool takes(const struct function *function, const char *word);

/* By the name without leasehold_; ends the program when there is none. */
const struct function *function_named(const char *name);

/* Frees a handle with the function for its type, whose name free_names has. */
void free_handle(enum type type, void *handle);
extern const char *const free_names[TYPES];

/* The functions of one copy of the library; a process can have several. */
struct library {
#define FUNCTION(result, name, handle, output, bytes, arguments) __typeof__(leasehold_##name) *name;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* The copy that this program is linked with. */
struct library linked_library(void);

/* Another one, from a file. Ends the program if it cannot be loaded, or is the first one again. */
struct library load_library(const char *path);

#endif
