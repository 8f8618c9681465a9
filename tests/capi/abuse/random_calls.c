/*
 * Random calls from four threads, with handles that are valid, freed, foreign, made up, of another
 * type or NULL, and with arguments to match. All threads use and free the same handles at once.
 *
 * usage: random_calls CALLS SEED COPY URL_FOR_COPY URL...
 *
 * COPY is a file with another copy of the library, whose handles are foreign here. The seed decides
 * what is called; which thread comes first, it does not.
 */
#include "handles.h"
#include "world.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4

static struct world foreign;
static atomic_int failures;

struct thread {
    pthread_t id;
    struct chance chance;
    long calls, wanted;
    /* A call is being made within another one's callback. */
    bool within;
    struct log_data *log_data;
    /* How often each function has succeeded. */
    long succeeded[FUNCTION_COUNT];
};

/* ---- callbacks -------------------------------------------------------------------------------- */

static void random_call(struct thread *thread);

/* Asks for another call on the same thread, and ends the wait soon. */
static int interrupt(void *user_data)
{
    struct thread *thread = user_data;

    if (!thread->within) {
        thread->within = true;
        random_call(thread);
        thread->within = false;
    }
    return percent(&thread->chance, 70);
}

/* What a leader does: another call, and soon the end. */
static int work_as_leader(void *user_data, leasehold_term *term)
{
    struct thread *thread = user_data;
    const uint64_t fence = leasehold_term_fence(term);

    interrupt(thread);
    if (fence == 0 || leasehold_term_fence(term) != fence) {
        fprintf(stderr, "a term without its fence\n");
        failures++;
    }
    return percent(&thread->chance, 20);
}

static void changed(void *user_data, uint64_t fence, int32_t end, int32_t loss)
{
    atomic_long *calls = user_data;

    atomic_fetch_add(calls, 1);
    if (fence == 0 || end < LEASEHOLD_TERM_LASTS || end > LEASEHOLD_TERM_LOST ||
        (loss != LEASEHOLD_LOSS_NONE) != (end == LEASEHOLD_TERM_LOST)) {
        fprintf(stderr, "a change that cannot be: %d, %d\n", end, loss);
        failures++;
    }
}

/* What a log function writes to. It is freed as soon as the library says that this may be done. */
struct log_data {
    atomic_long records, ended;
};

static void log_record(void *user_data, leasehold_log_level level, const char *message)
{
    struct log_data *data = user_data;
    const long records = atomic_fetch_add(&data->records, 1);

    if (level < LEASEHOLD_LOG_ERROR || level > LEASEHOLD_LOG_TRACE || strlen(message) == 0) {
        fprintf(stderr, "a record of level %d: %s\n", level, message);
        failures++;
    }
    leasehold_lease_is_valid(open_handles[LEASE][records % PLACES]);
    if (records % 100 == 99)
        leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, NULL);
    /* Long enough for somebody to set another function meanwhile: who has to wait. */
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    atomic_fetch_add(&data->ended, 1);
}

/* What a function for a loss writes to. It is freed when the library says so. */
static int lost(void *user_data, const leasehold_event *event)
{
    atomic_long *calls = user_data;
    const long lease = (long)(leasehold_event_fence(event) % PLACES);

    if (atomic_fetch_add(calls, 1) != 0 || leasehold_event_kind(event) != LEASEHOLD_EVENT_LOST ||
        leasehold_event_lease_id(event) == 0) {
        fprintf(stderr, "a function was called for no loss, or twice\n");
        failures++;
    }
    leasehold_lease_on_lost(open_handles[LEASE][lease], NULL, NULL, NULL, NULL);
    leasehold_lease_is_valid(open_handles[LEASE][(lease + 1) % PLACES]);
    return 0;
}

/* Has none. */
static int ask(void *user_data, const char *host, uint16_t port, const char *user,
               leasehold_credentials *answer)
{
    atomic_long *calls = user_data;

    if (strlen(host) == 0 || (user != NULL && port == 0 && strlen(user) == 0)) {
        fprintf(stderr, "a function was asked for the credentials of no server\n");
        failures++;
    }
    if (atomic_fetch_add(calls, 1) % 2 == 0)
        answer->failure = "there are none";
    return 1;
}

/* ---- calls ------------------------------------------------------------------------------------ */

static void report(const struct function *function, const struct call *call, const char *what)
{
    if (atomic_fetch_add(&failures, 1) < 20)
        fprintf(stderr, "leasehold_%s with %p, which is %s: %s\n", function->name, call->handle,
                leasehold_status_name(call->status), what);
}

/* A status that there is, and that these calls can come to. */
static bool is_plausible(leasehold_status status)
{
    return status >= LEASEHOLD_ERR_PROTOCOL && status <= LEASEHOLD_UNKNOWN &&
           status != LEASEHOLD_ERR_PANIC && status != LEASEHOLD_ERR_FORKED;
}

static bool needs_error(leasehold_status status)
{
    return status < LEASEHOLD_OK || status == LEASEHOLD_LOST || status == LEASEHOLD_UNKNOWN;
}

static void check_error(struct thread *thread, const struct function *function,
                        const struct call *call)
{
    leasehold_error *error = *call->error;

    if ((error != NULL) != needs_error(call->status))
        report(function, call, "an error too many or too few");
    if (error == NULL)
        return;
    if (leasehold_error_status(error) != call->status)
        report(function, call, "the error has another status");
    if (strlen(leasehold_error_message(error)) < strlen(leasehold_error_detail(error)))
        report(function, call, "the error's message is shorter than its detail");
    share(ERROR, error, &thread->chance);
}

/* Nobody else has it yet, so its strings may be read. */
static void check_made(struct thread *thread, const struct function *function,
                       const struct call *call, void *made)
{
    size_t length = 0;

    switch (function->output) {
    case LOCK:
        if (leasehold_lock_name(made, &length)[length] != '\0')
            report(function, call, "the name has no end");
        /* Nobody shall wait for a minute here, nor find a lock taken all the time. */
        leasehold_lock_set_wait_ms(made, (int64_t)below(&thread->chance, 3));
        leasehold_lock_set_ttl_ms(made, 5 + (int64_t)below(&thread->chance, 300));
        break;
    case LEASE:
        if (strlen(leasehold_lease_token(made)) != 32 || leasehold_lease_fence(made) == 0 ||
            leasehold_lease_name(made, &length)[length] != '\0')
            report(function, call, "a lease without its particulars");
        break;
    case EVENT:
        if (leasehold_event_kind(made) == LEASEHOLD_EVENT_NONE ||
            leasehold_event_name(made, &length)[length] != '\0')
            report(function, call, "an event of nothing");
        break;
    case EVENTS:
        if (leasehold_events_descriptor(made) < 0)
            report(function, call, "a subscription without a descriptor");
        break;
    case WAITS:
        if (leasehold_waits_descriptor(made) < 0)
            report(function, call, "a set of waits without a descriptor");
        break;
    case ELECTION:
        if (leasehold_election_name(made, &length)[length] != '\0')
            report(function, call, "the name has no end");
        break;
    case TERM:
        if (leasehold_term_fence(made) == 0)
            report(function, call, "a term without its fence");
        break;
    default:
        break;
    }
}

static void check_output(struct thread *thread, const struct function *function,
                         const struct call *call, uint64_t before)
{
    uint64_t after;
    void *made;

    if (call->output == NULL)
        return;
    memcpy(&after, call->output, sizeof after);
    if (function->result == STATUS && call->status != LEASEHOLD_OK && after != before)
        report(function, call, "an output was written");
    if (strcmp(function->name, "log_socket") == 0 && call->status == LEASEHOLD_OK)
        close(*(const int *)call->output);
    if (function->output >= TYPES || call->status != LEASEHOLD_OK)
        return;
    memcpy(&made, call->output, sizeof made);
    if (((uintptr_t)made & 1) == 0)
        report(function, call, "no handle in the output");
    check_made(thread, function, call, made);
    share(function->output, made, &thread->chance);
}

/* What is said of a handle that is certainly wrong. */
static void check_refusal(const struct function *function, const struct call *call, bool refused)
{
    const bool bad = call->status == LEASEHOLD_ERR_BAD_ARGUMENT && refused;
    /* A term that is gone is lost. */
    const bool is_end =
        strcmp(function->name, "term_end_reason") == 0 || strcmp(function->name, "term_loss") == 0;

    if (function->result == STATUS && call->status != LEASEHOLD_ERR_HANDLE && !bad)
        report(function, call, "a wrong handle was taken for a right one");
    if (function->result == NUMBER && call->returned > 0 && !is_end)
        report(function, call, "a wrong handle gave a value");
    if (function->result == TEXT && *call->text != '\0' &&
        strcmp(function->name, "error_message") != 0)
        report(function, call, "a wrong handle gave a text");
    if (function->output == LENGTH && call->output != NULL && *(const size_t *)call->output != 0)
        report(function, call, "a wrong handle gave a length");
}

static void prepare_log(struct call *call, struct chance *chance)
{
    call->user_data = NULL;
    if (percent(chance, 70)) {
        if (percent(chance, 90))
            call->number = LEASEHOLD_LOG_TRACE;
        call->log = log_record;
        call->user_data = calloc(1, sizeof(struct log_data));
    }
}

/* When a function is set, nobody is in the one before it any more. */
static void after_log(struct thread *thread, struct call *call)
{
    struct log_data *unused = call->user_data;

    if (call->status == LEASEHOLD_OK) {
        unused = thread->log_data;
        thread->log_data = call->user_data;
    }
    free(unused);
}

static void run(struct thread *thread, const struct function *function, void *handle, bool wrong)
{
    /* Room for the largest, whose first member is a handle. */
    uint64_t output[2] = {0xa5a5a5a5a5a5a5a5};
    const uint64_t before = output[0];
    leasehold_error *error = (leasehold_error *)&error;
    struct chance *chance = &thread->chance;
    struct call call = {.handle = handle, .user_data = thread, .text = "", .output = output};
    const bool logs = takes(function, "LOG");
    bool refused;

    if (percent(chance, 50))
        call.interrupt = interrupt;
    if (takes(function, "EVENTS_IN"))
        call.events = shared(EVENTS, chance);
    if (takes(function, "WORK")) {
        /* Standing has no other end where the store is out of reach. */
        call.interrupt = interrupt;
        call.work = percent(chance, 95) ? work_as_leader : NULL;
    }
    if (takes(function, "DROP")) {
        call.change = percent(chance, 80) ? changed : NULL;
        call.lost = percent(chance, 80) ? lost : NULL;
        call.ask = percent(chance, 20) ? ask : NULL;
        call.user_data = calloc(1, sizeof(atomic_long));
        call.drop = free;
    }
    if (takes(function, "A_LOCK"))
        call.lock = shared(LOCK, chance);
    refused = fill_in(&call, function, chance);
    if (percent(chance, 3))
        call.output = NULL;
    refused =
        refused || (call.output == NULL && function->output != LENGTH && function->output != NONE);
    if (percent(chance, 80))
        call.error = &error;
    if (logs)
        prepare_log(&call, chance);

    function->run(&call);
    thread->calls++;

    if (logs)
        after_log(thread, &call);
    if (function->result == STATUS && !is_plausible(call.status))
        report(function, &call, "a status that cannot be");
    if (refused && function->result == STATUS && call.status >= LEASEHOLD_OK)
        report(function, &call, "a bad argument was taken");
    if (wrong)
        check_refusal(function, &call, refused);
    if (function->result == NOTHING && !wrong)
        forget(function->handle, handle);
    check_output(thread, function, &call, before);
    if (call.error != NULL && takes(function, "ERROR_OUT"))
        check_error(thread, function, &call);
    if (call.status == LEASEHOLD_OK)
        thread->succeeded[function - functions]++;
    clear(&call);
}

/* ---- which call comes next -------------------------------------------------------------------- */

/* Called less often: what talks to a store, what unsettles a lock, what ends others' objects. */
static const struct {
    const char *name;
    unsigned weight;
} rare[] = {
    {"client_open", 3},
    {"client_open_env", 2},
    {"client_open_config", 2},
    {"client_close", 1},
    {"client_close_within", 1},
    {"client_free", 3},
    {"client_initialize", 40},
    {"client_reopen_after_fork", 10},
    {"config_from_urls", 30},
    {"client_ping", 10},
    {"client_events", 30},
    {"client_lock", 200},
    {"config_from_url", 30},
    {"config_from_env", 30},
    {"config_free", 30},
    {"lock_set_ttl_ms", 20},
    {"lock_set_wait_ms", 20},
    {"lock_set_attempts", 20},
    {"lock_set_io_timeout_ms", 20},
    {"lock_set_renew", 20},
    {"lock_set_max_hold_ms", 20},
    {"lock_set_backoff_ms", 20},
    {"lock_try_acquire", 150},
    {"lock_acquire", 30},
    {"lock_acquire_within", 30},
    {"lock_acquire_unless", 30},
    {"lock_attach", 20},
    {"lock_inspect", 10},
    {"lock_break", 10},
    {"lock_free", 10},
    {"lease_extend", 30},
    {"lease_extend_for_ms", 30},
    {"lock_take", 30},
    {"lease_end", 30},
    {"lease_release", 30},
    {"lease_let_expire", 10},
    {"lease_let_expire_in_ms", 10},
    {"lease_detach", 10},
    {"lease_free", 30},
    {"lease_abandon", 10},
    {"lease_on_lost", 60},
    {"events_next_within", 60},
    {"waits_open", 10},
    {"waits_free", 10},
    {"waits_start", 60},
    {"waits_start_within", 60},
    {"waits_next_within", 60},
    {"events_free", 10},
    {"event_kind", 30},
    {"event_reason", 30},
    {"event_name", 30},
    {"event_fence", 30},
    {"event_free", 30},
    {"log_set", 20},
    {"log_socket", 5},
    {"lock_set_wait_mode", 20},
    {"config_set_claim_window_ms", 3},
    {"testing_memory_open", 20},
    {"testing_memory_free", 5},
    {"client_election", 30},
    {"election_run_as_leader", 10},
    {"election_stand_within", 30},
    {"election_leader", 10},
    {"election_resign", 30},
    {"election_stop", 3},
    {"election_free", 10},
    {"term_resign", 30},
    {"term_free", 30},
};

static unsigned weights[FUNCTION_COUNT], all_weights;

static void weigh(void)
{
    for (size_t i = 0; i < FUNCTION_COUNT; i++) weights[i] = 100;
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++)
        weights[function_named(rare[i].name) - functions] = rare[i].weight;
    for (size_t i = 0; i < FUNCTION_COUNT; i++) all_weights += weights[i];
}

static const struct function *some_function(struct chance *chance)
{
    unsigned rest = (unsigned)below(chance, all_weights);
    size_t i = 0;

    while (rest >= weights[i]) rest -= weights[i++];
    return &functions[i];
}

/* What there is none of is made first, and of what. */
static const struct function *maker_of(enum type type)
{
    static const char *const makers[TYPES] = {
        "duration_parse",      "config_from_url",     "client_open",
        "client_lock",         "lock_inspect",        "lock_try_acquire",
        "client_events",       "events_next_within",  "waits_open",
        "client_metrics",      "testing_memory_open", "testing_memory_failing",
        "testing_memory_held", "client_election",     "election_stand_within",
    };

    return function_named(makers[type]);
}

static void random_call(struct thread *thread)
{
    struct chance *chance = &thread->chance;
    const struct function *function = some_function(chance);
    void *handle = NULL;

    if (function->handle != NONE && percent(chance, 25)) {
        handle = wrong_handle(function->handle, foreign.handles, chance);
        run(thread, function, handle, true);
        return;
    }
    while (function->handle != NONE && (handle = shared(function->handle, chance)) == NULL)
        function = maker_of(function->handle);
    run(thread, function, handle, false);
}

static void *work(void *argument)
{
    struct thread *thread = argument;

    while (thread->calls < thread->wanted && failures == 0) random_call(thread);
    return NULL;
}

/* ---- from start to end ------------------------------------------------------------------------ */

static size_t entries(const char *folder)
{
    size_t count = 0;
    DIR *open = opendir(folder);

    while (open != NULL && readdir(open) != NULL) count++;
    if (open != NULL)
        closedir(open);
    return count;
}

/* A thread that was joined may be listed for an instant more. */
static bool falls_to(const char *folder, size_t count)
{
    const struct timespec pause = {.tv_nsec = 10000000};

    for (int i = 0; i < 500; i++) {
        if (entries(folder) <= count)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static void need(bool so, const char *what)
{
    if (so)
        return;
    fprintf(stderr, "%s\n", what);
    failures++;
}

/* With enough calls, chance comes to all of them. */
static void check_reach(const struct thread *threads, long calls)
{
    for (size_t i = 0; i < FUNCTION_COUNT; i++) {
        long succeeded = 0;

        for (int t = 0; t < THREADS; t++) succeeded += threads[t].succeeded[i];
        if (calls >= 100000 && succeeded == 0) {
            fprintf(stderr, "leasehold_%s has never succeeded\n", functions[i].name);
            failures++;
        }
    }
}

static void free_all(struct thread *threads)
{
    leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, NULL);
    for (int t = 0; t < THREADS; t++) free(threads[t].log_data);
    free_all_handles();
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
    static struct thread threads[THREADS];
    const size_t threads_before = entries("/proc/self/task");
    const size_t descriptors_before = entries("/proc/self/fd");
    const double started = seconds();
    const char *harm;
    long calls = 0;

    if (count < 6) {
        fprintf(stderr, "usage: random_calls CALLS SEED COPY URL_FOR_COPY URL...\n");
        return 2;
    }
    calls = atol(arguments[1]);
    printf("seed %s\n", arguments[2]);
    fflush(stdout);
    urls = (const char *const *)&arguments[5];
    url_count = (size_t)count - 5;
    setenv("LEASEHOLD_URL", urls[0], 1);
    weigh();
    make_world(&foreign, load_library(arguments[3]), arguments[4], "foreign");

    for (int t = 0; t < THREADS; t++) {
        threads[t].chance = chance_of(strtoull(arguments[2], NULL, 10) * THREADS + (uint64_t)t);
        threads[t].wanted = calls / THREADS;
        need(pthread_create(&threads[t].id, NULL, work, &threads[t]) == 0, "no thread");
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t].id, NULL);

    check_reach(threads, calls);
    free_all(threads);
    need(leasehold_handle_count() == 0, "handles are left");
    harm = end_world(&foreign);
    need(harm == NULL, harm);
    need(falls_to("/proc/self/task", threads_before), "threads are left");
    need(falls_to("/proc/self/fd", descriptors_before), "descriptors are left");
    printf("%ld calls in %.1f s, %d failures\n", calls, seconds() - started, failures);
    return failures == 0 ? 0 : 1;
}
