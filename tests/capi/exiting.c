/* A process that just ends: no hang, its own exit code, and its locks left to their ttl. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/support.h"

/* What a process has in its hands when it ends. */
struct hands {
    const char *url;
    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *lease;
    leasehold_events *events;
    char name[16], other[16]; /* of their own: what was held before is held for a while yet */
    void (*end)(struct hands *);
};

static struct hands hands;

static void *wait_for_it(void *with)
{
    leasehold_lease *lease;
    (void)with;
    leasehold_lock_acquire_within(hands.lock, LEASEHOLD_FOREVER, NULL, NULL, &lease, NULL);
    return NULL;
}

static void *wait_for_events(void *with)
{
    leasehold_event *event;
    (void)with;
    leasehold_events_next_within(hands.events, LEASEHOLD_FOREVER, &event, NULL);
    return NULL;
}

static void *extend_on_and_on(void *with)
{
    (void)with;
    while (leasehold_lease_extend(hands.lease, NULL) == LEASEHOLD_OK) continue;
    return NULL;
}

static void *take_on_and_on(void *with)
{
    leasehold_lock *lock = make_lock(hands.client, hands.other);
    leasehold_lease *lease;
    (void)with;
    while (leasehold_lock_acquire(lock, &lease, NULL) == LEASEHOLD_OK) leasehold_lease_free(lease);
    return NULL;
}

static void *(*const works[])(void *) = {wait_for_it, wait_for_events, extend_on_and_on,
                                         take_on_and_on};

static void live_and_end(void *url)
{
    hands.url = url;
    hands.client = open_client(url);
    hands.lock = make_lock(hands.client, hands.name);
    hands.events = subscribe(hands.client);
    hands.lease = take_name_for(hands.client, hands.name, 1000);
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) begin(works[i], NULL);
    EVENTUALLY(count(hands.client, LEASEHOLD_COUNTER_GRANTED) > 3);
    hands.end(&hands);
    FAIL("it goes on");
}

static void call_exit(struct hands *with)
{
    (void)with;
    exit(7);
}

static void call_underscore_exit(struct hands *with)
{
    (void)with;
    _exit(7);
}

static void call_quick_exit(struct hands *with)
{
    (void)with;
    quick_exit(7);
}

static int exit_within(void *with)
{
    (void)with;
    exit(7);
}

static void exit_while_asked(struct hands *with)
{
    leasehold_lease *lease;
    leasehold_lock_acquire_unless(with->lock, exit_within, NULL, &lease, NULL);
}

static void exit_when_told(void *with, leasehold_log_level level, const char *message)
{
    (void)with, (void)level, (void)message;
    exit(7);
}

static void exit_on_the_thread_in_the_background(struct hands *with)
{
    CHECK_STATUS(LEASEHOLD_OK, leasehold_log_set(exit_when_told, NULL, LEASEHOLD_LOG_WARN, NULL));
    take_to_lose(with->client, "lost", 10);
    pause();
}

static void free_all(void)
{
    leasehold_lock_free(hands.lock);
    leasehold_client_free(hands.client);
    leasehold_lease_free(hands.lease);
    leasehold_events_free(hands.events);
}

static void free_at_exit(struct hands *with)
{
    (void)with;
    atexit(free_all);
    exit(7);
}

static void ends(struct store *store, void (*end)(struct hands *), int rounds)
{
    static int ended;
    hands.end = end;
    for (int i = 0; i < rounds; i++) {
        snprintf(hands.name, sizeof hands.name, "n:%d", ended);
        snprintf(hands.other, sizeof hands.other, "other:%d", ended++);
        CHECK_INT(7, in_fork(live_and_end, store->url));
    }
}

static void c14_a_process_may_end_at_any_moment(struct store *store)
{
    ends(store, call_exit, 15);
    ends(store, call_underscore_exit, 3);
    ends(store, call_quick_exit, 3);
    ends(store, exit_while_asked, 3);
    ends(store, exit_on_the_thread_in_the_background, 3);
    ends(store, free_at_exit, 3);
}

static void c14_what_was_held_is_free_by_its_ttl(struct store *store)
{
    ends(store, call_exit, 1);
    leasehold_client *client = open_client(store->url);
    leasehold_lock_state *state;
    leasehold_lock *lock = make_lock(client, "n:0");
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    CHECK(leasehold_lock_state_is_held(state));
    uint64_t fence = leasehold_lock_state_fence(state);
    EVENTUALLY(!is_held(client, "n:0"));
    leasehold_lease *lease = take(lock);
    CHECK(leasehold_lease_fence(lease) > fence);
    give_back(lease);
    leasehold_lock_state_free(state);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static struct server *silent;

static void exit_from_a_silent_server(struct hands *with)
{
    (void)with;
    server_pause(silent);
    pause_ms(20); /* for the others to have requests under way */
    exit(7);
}

static void c14_a_server_that_is_silent_holds_nobody_up(struct store *store)
{
    /* io_timeout is 10 s. */
    struct stopwatch watch = stopwatch_start();
    silent = store->server;
    ends(store, exit_from_a_silent_server, 1);
    CHECK_AT_MOST(1000, watch);
    server_resume(store->server);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(c14_a_process_may_end_at_any_moment);
    ON_EACH_STORE_IN_TIME(c14_what_was_held_is_free_by_its_ttl);
    ON_REDIS_IN_TIME(c14_a_server_that_is_silent_holds_nobody_up);
    return runner_report();
}
