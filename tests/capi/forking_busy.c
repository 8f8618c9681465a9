/* Forks in the middle of everything: no child hangs, and the parent loses nothing. */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

#define FORKS 200
#define TOKEN "0123456789abcdef0123456789abcdef"

/* What the threads of the parent work on, all of them at once, while it forks. */
struct busy {
    const char *url;
    bool on_file;
    leasehold_client *client;
    leasehold_lock *lock, *taken;
    leasehold_lease *held;
    leasehold_events *events;
    atomic_bool over;
    atomic_long turns;
};

static void *take_and_release(void *with)
{
    struct busy *busy = with;
    while (!busy->over) {
        give_back(take(busy->lock));
        busy->turns++;
    }
    return NULL;
}

static int go_on(void *with)
{
    (void)with;
    return 0;
}

static void *wait_in_vain(void *with)
{
    struct busy *busy = with;
    leasehold_lease *lease;
    while (!busy->over)
        EXPECT(LEASEHOLD_TIMEOUT,
               leasehold_lock_acquire_within(busy->taken, 5, go_on, NULL, &lease, &problem));
    return NULL;
}

static void *extend(void *with)
{
    struct busy *busy = with;
    while (!busy->over) EXPECT(LEASEHOLD_OK, leasehold_lease_extend(busy->held, &problem));
    return NULL;
}

static void *lose_and_read(void *with)
{
    struct busy *busy = with;
    while (!busy->over) {
        leasehold_lease *lease = take_to_lose(busy->client, "lost", 10);
        uint64_t fence = leasehold_lease_fence(lease), told;
        do {
            /* Others lose leases too. */
            leasehold_event *event = next_event(busy->events);
            told = leasehold_event_fence(event);
            leasehold_event_free(event);
        } while (told != fence);
        CHECK(!leasehold_lease_is_valid(lease));
        leasehold_lease_free(lease);
    }
    return NULL;
}

/* Two of them, so that they meet in the lock. */
static void *set(void *with)
{
    struct busy *busy = with;
    while (!busy->over) {
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(busy->lock, LIMIT_MS));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(busy->lock, 20000));
    }
    return NULL;
}

static void *make_and_free(void *with)
{
    struct busy *busy = with;
    leasehold_config *config;
    leasehold_error *error;
    while (!busy->over) {
        EXPECT(LEASEHOLD_OK,
               leasehold_config_from_url(busy->url, LEASEHOLD_NUL, &config, &problem));
        CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping(NULL, &error));
        leasehold_error_free(error);
        leasehold_config_free(config);
        CHECK(leasehold_handle_count() > 0);
    }
    return NULL;
}

static void hear(void *with, leasehold_log_level level, const char *message)
{
    (void)level;
    CHECK(strlen(message) > 0);
    (*(atomic_long *)with)++;
}

static void *log_and_set(void *with)
{
    struct busy *busy = with;
    static atomic_long heard;
    while (!busy->over) {
        leasehold_lease *lease;
        EXPECT(LEASEHOLD_OK, leasehold_log_set(hear, &heard, LEASEHOLD_LOG_TRACE, &problem));
        EXPECT(LEASEHOLD_OK, leasehold_lock_attach(busy->lock, TOKEN, 32, 1, &lease, &problem));
        EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
        leasehold_lease_free(lease);
        EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    }
    return NULL;
}

static void *open_and_close(void *with)
{
    struct busy *busy = with;
    while (!busy->over) {
        leasehold_client *client = open_client(busy->url);
        leasehold_events *events = subscribe(client);
        leasehold_lease *lease = take_name(client, "opened");
        EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
        leasehold_lease_free(lease);
        leasehold_events_free(events);
        leasehold_client_free(client);
    }
    return NULL;
}

static void *(*const works[])(void *) = {
    take_and_release, take_and_release, wait_in_vain, wait_in_vain,
    extend,           lose_and_read,    set,          set,
    make_and_free,    make_and_free,    log_and_set,  open_and_close};
#define WORKS (sizeof works / sizeof *works)

static void misuse(struct busy *busy)
{
    const leasehold_status forked = LEASEHOLD_ERR_FORKED;
    leasehold_lease *lease;
    leasehold_event *event;
    uint64_t counted;
    EXPECT(forked, leasehold_lock_acquire(busy->lock, &lease, &problem));
    EXPECT(forked, leasehold_lock_acquire_within(busy->taken, 10, go_on, NULL, &lease, &problem));
    CHECK_STATUS(forked, leasehold_lock_set_ttl_ms(busy->lock, 20000));
    EXPECT(forked, leasehold_lease_extend(busy->held, &problem));
    EXPECT(forked, leasehold_lease_release(busy->held, &problem));
    CHECK(!leasehold_lease_is_valid(busy->held));
    EXPECT(forked, leasehold_events_next_within(busy->events, LEASEHOLD_FOREVER, &event, &problem));
    EXPECT(forked, leasehold_client_counter(busy->client, 1, &counted, &problem));
    EXPECT(forked, leasehold_client_ping(busy->client, &problem));
    EXPECT(forked, leasehold_client_close(busy->client, &problem));
    leasehold_lease_free(busy->held);
    leasehold_events_free(busy->events);
    leasehold_lock_free(busy->lock);
    leasehold_lock_free(busy->taken);
    leasehold_client_free(busy->client);
}

static void child(void *with)
{
    struct busy *busy = with;
    atomic_long heard = 0;
    CHECK_INT(0, leasehold_handle_count());
    misuse(busy);
    if (!busy->on_file) {
        leasehold_client *client = open_client(busy->url);
        leasehold_lock *lock = make_lock(client, "child's own");
        leasehold_lease *lease, *second;
        /* Told to the parent's function with what it was set with, or to none. */
        EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, TOKEN, 32, 1, &lease, &problem));
        EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
        leasehold_lease_free(lease);
        EXPECT(LEASEHOLD_OK, leasehold_log_set(hear, &heard, LEASEHOLD_LOG_WARN, &problem));
        lease = take(lock);
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 10000));
        EXPECT(LEASEHOLD_TIMEOUT,
               leasehold_lock_acquire_within(lock, 2, go_on, NULL, &second, &problem));
        give_back(lease);
        EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, TOKEN, 32, 1, &lease, &problem));
        EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
        CHECK_INT(1, heard);
        leasehold_lease_free(lease);
        leasehold_lock_free(lock);
        leasehold_client_free(client);
    }
    EXPECT(LEASEHOLD_OK, leasehold_log_set(hear, &heard, LEASEHOLD_LOG_WARN, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    misuse(busy);
    CHECK_INT(0, leasehold_handle_count());
}

/* With a client that reopens, and its locks. */
static void child_that_goes_on(void *with)
{
    struct busy *busy = with;
    leasehold_lease *lease;
    CHECK_INT(0, leasehold_handle_count());
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_lease_extend(busy->held, &problem));
    CHECK_INT(0, count(busy->client, LEASEHOLD_COUNTER_GRANTED));
    EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(busy->taken, &lease, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(busy->lock, 10000));
    CHECK_TEXT("n", leasehold_lock_name(busy->lock, NULL));
    give_back(take(busy->lock));
    leasehold_lock_free(busy->lock);
    leasehold_lock_free(busy->taken);
    leasehold_lock_free(busy->lock);
    leasehold_client_free(busy->client);
    CHECK_INT(0, leasehold_handle_count());
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_lock_try_acquire(busy->lock, &lease, &problem));
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_client_ping(busy->client, &problem));
}

static void fork_in_the_middle(struct store *store, bool reopens)
{
    struct busy busy = {.url = store->url, .on_file = !store->server};
    pthread_t threads[WORKS];
    busy.client = open_client(store->url);
    if (reopens)
        EXPECT(LEASEHOLD_OK, leasehold_client_reopen_after_fork(busy.client, &problem));
    busy.events = subscribe(busy.client);
    busy.lock = make_lock(busy.client, "n");
    busy.taken = make_lock(busy.client, "taken");
    busy.held = take_name(busy.client, "taken");
    /* One that nobody but the background thread looks after. */
    leasehold_lease *renewed = take_name_for(busy.client, "renewed", 3000);
    uint64_t before = count(busy.client, LEASEHOLD_COUNTER_RENEWED);
    for (size_t i = 0; i < WORKS; i++) threads[i] = begin(works[i], &busy);
    for (int i = 0; i < FORKS; i++)
        CHECK_INT(0, in_fork(reopens ? child_that_goes_on : child, &busy));
    EVENTUALLY(count(busy.client, LEASEHOLD_COUNTER_RENEWED) > before);
    CHECK(busy.turns > 0);
    busy.over = true;
    for (size_t i = 0; i < WORKS; i++) finish(threads[i]);

    CHECK(leasehold_lease_is_valid(renewed) && leasehold_lease_is_valid(busy.held));
    give_back(renewed);
    give_back(busy.held);
    leasehold_events_free(busy.events);
    leasehold_lock_free(busy.lock);
    leasehold_lock_free(busy.taken);
    leasehold_client_free(busy.client);
}

static void c8_forks_in_the_middle_of_everything(struct store *store)
{
    fork_in_the_middle(store, false);
}

static void c8_children_go_on_in_the_middle_of_everything(struct store *store)
{
    fork_in_the_middle(store, true);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    /* A turn that was handed over ends soon unless the background thread is there in time to claim it. */
    ON_EACH_STORE_IN_TIME(c8_forks_in_the_middle_of_everything);
    ON_EACH_STORE_IN_TIME(c8_children_go_on_in_the_middle_of_everything);
    return runner_report();
}
