/* What is told of leases, to whom, and on which descriptor. */

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

static bool readable(int descriptor, int wait_ms)
{
    struct pollfd watched = {descriptor, POLLIN, 0};
    int ready = poll(&watched, 1, wait_ms);
    if (ready > 0 && watched.revents != POLLIN)
        FAIL("poll tells %x", (unsigned)watched.revents);
    return ready > 0;
}

static void check_event(leasehold_event *event, int kind, int reason, const char *name,
                        uint64_t fence)
{
    size_t length;
    CHECK_INT(kind, leasehold_event_kind(event));
    CHECK_INT(reason, leasehold_event_reason(event));
    CHECK_TEXT(name, leasehold_event_name(event, &length));
    CHECK_INT(strlen(name), length);
    CHECK_INT(fence, leasehold_event_fence(event));
    leasehold_event_free(event);
}

static void nothing_more(leasehold_events *events)
{
    leasehold_event *event = UNTOUCHED;
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_events_next_within(events, 0, &event, &problem));
    CHECK(event == UNTOUCHED);
}

static void c9_a_lease_that_runs_out_is_told_as_lost(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *one = subscribe(client), *two = subscribe(client);
    leasehold_lease *lease = take_to_lose(client, "n", 100);
    uint64_t fence = leasehold_lease_fence(lease);
    /* Each subscription gets every event, and each event once. */
    leasehold_events *both[] = {one, two};
    for (int i = 0; i < 2; i++) {
        leasehold_event *event = next_event(both[i]);
        CHECK(!leasehold_lease_is_valid(lease));
        check_event(event, LEASEHOLD_EVENT_LOST, LEASEHOLD_LOSS_EXPIRED, "n", fence);
        nothing_more(both[i]);
    }
    /* What was told as lost is not told as released late too; and who comes later hears nothing. */
    leasehold_lease_free(lease);
    nothing_more(one);
    leasehold_events *late = subscribe(client);
    nothing_more(late);
    leasehold_events_free(late);
    leasehold_events_free(one);
    leasehold_events_free(two);
    leasehold_client_free(client);
}

static void c9_a_lease_that_somebody_else_gave_back_is_told_as_not_held(struct store *store)
{
    leasehold_client *client = open_client(store->url), *other = open_client(store->url);
    leasehold_events *events = subscribe(client);
    leasehold_lease *lease = take_name_for(client, "n", 600), *same;
    leasehold_lock *lock = make_lock(other, "n");
    uint64_t fence = leasehold_lease_fence(lease);
    EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, leasehold_lease_token(lease), LEASEHOLD_NUL,
                                               fence, &same, &problem));
    give_back(same);
    /* The next renewal finds out. */
    leasehold_event *event = next_event(events);
    CHECK(!leasehold_lease_is_valid(lease));
    check_event(event, LEASEHOLD_EVENT_LOST, LEASEHOLD_LOSS_NOT_HELD, "n", fence);
    leasehold_lease_free(lease);
    nothing_more(events);
    leasehold_lock_free(lock);
    leasehold_events_free(events);
    leasehold_client_free(client);
    leasehold_client_free(other);
}

static void c9_the_end_of_max_hold_is_told_before_it_comes(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = subscribe(client);
    leasehold_lock *lock = make_lock(client, "n");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 600));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_max_hold_ms(lock, 900));
    leasehold_lease *lease = take(lock);
    uint64_t fence = leasehold_lease_fence(lease);
    leasehold_event *event = next_event(events);
    CHECK(leasehold_lease_is_valid(lease));
    CHECK(leasehold_lease_remaining_ms(lease) <= 200);
    check_event(event, LEASEHOLD_EVENT_AT_RISK, LEASEHOLD_LOSS_NONE, "n", fence);
    event = next_event(events);
    check_event(event, LEASEHOLD_EVENT_LOST, LEASEHOLD_LOSS_MAX_HOLD, "n", fence);
    CHECK(count(client, LEASEHOLD_COUNTER_RENEWED) > 0);
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    leasehold_events_free(events);
    leasehold_client_free(client);
}

static void c9_an_outage_is_told_as_a_risk_and_then_as_a_loss(struct store *store)
{
    leasehold_client *client = open_client_with(store->url, 100);
    leasehold_events *events = subscribe(client);
    leasehold_lease *lease = take_name_for(client, "n", 900);
    uint64_t fence = leasehold_lease_fence(lease);
    server_pause(store->server);
    leasehold_event *event = next_event(events);
    CHECK(leasehold_lease_is_valid(lease));
    CHECK(leasehold_lease_remaining_ms(lease) <= 300);
    check_event(event, LEASEHOLD_EVENT_AT_RISK, LEASEHOLD_LOSS_NONE, "n", fence);
    event = next_event(events);
    CHECK(!leasehold_lease_is_valid(lease));
    check_event(event, LEASEHOLD_EVENT_LOST, LEASEHOLD_LOSS_EXPIRED, "n", fence);
    server_resume(store->server);
    nothing_more(events);
    leasehold_lease_free(lease);
    leasehold_events_free(events);
    leasehold_client_free(client);
}

static void a_lease_that_was_gone_when_it_was_freed_is_told_as_released_late(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = subscribe(client);
    leasehold_lease *lease = take_name(client, "n"), *released = take_name(client, "m");
    uint64_t fence = leasehold_lease_fence(lease);
    server_ask(store->server, "DEL n m");
    leasehold_lease_free(lease);
    check_event(next_event(events), LEASEHOLD_EVENT_RELEASED_LATE, LEASEHOLD_LOSS_NONE, "n", fence);
    /* Who is told by a status is not told by an event. */
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(released, &problem));
    leasehold_lease_free(released);
    nothing_more(events);
    CHECK_INT(2, count(client, LEASEHOLD_COUNTER_RELEASED_LATE));
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_LOST));
    leasehold_events_free(events);
    leasehold_client_free(client);
}

static void an_event_stays_when_all_else_is_freed(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = subscribe(client);
    leasehold_lock *lock;
    leasehold_lease *lease;
    size_t length;
    EXPECT(LEASEHOLD_OK, leasehold_client_lock(client, "a\0b", 3, &lock, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 30));
    EXPECT(LEASEHOLD_OK,
           leasehold_lock_acquire_within(lock, LIMIT_MS, NULL, NULL, &lease, &problem));
    uint64_t fence = leasehold_lease_fence(lease);
    leasehold_event *event = next_event(events);
    const char *name = leasehold_event_name(event, NULL);
    leasehold_events_free(events);
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    CHECK(name == leasehold_event_name(event, &length));
    CHECK_INT(3, length);
    CHECK(memcmp(name, "a\0b", 4) == 0);
    CHECK_INT(fence, leasehold_event_fence(event));
    leasehold_event_free(event);
}

/* ---- Waiting ---------------------------------------------------------------------------------- */

static void the_descriptor_is_readable_exactly_while_events_wait(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = subscribe(client), *unread = subscribe(client);
    int descriptor = leasehold_events_descriptor(events), other[2];
    CHECK(descriptor >= 0 && descriptor != leasehold_events_descriptor(unread));
    CHECK_INT(descriptor, leasehold_events_descriptor(events));
    CHECK(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    CHECK(!readable(descriptor, 0));

    leasehold_lease *one = take_to_lose(client, "one", 50), *two = take_to_lose(client, "two", 50);
    CHECK(readable(descriptor, LIMIT_MS));
    leasehold_event_free(next_event(events));
    CHECK(readable(descriptor, LIMIT_MS));
    leasehold_event_free(next_event(events));
    CHECK(!readable(descriptor, 0));
    /* Again and again. */
    for (int i = 0; i < 20; i++) {
        leasehold_lease *again = take_to_lose(client, "again", 20);
        CHECK(readable(descriptor, LIMIT_MS));
        leasehold_event_free(next_event(events));
        CHECK(!readable(descriptor, 0));
        leasehold_lease_free(again);
    }

    /* Beside another descriptor. */
    CHECK_INT(0, pipe(other));
    CHECK_INT(1, write(other[1], "x", 1));
    struct pollfd watched[] = {{descriptor, POLLIN, 0}, {other[0], POLLIN, 0}};
    CHECK_INT(1, poll(watched, 2, LIMIT_MS));
    CHECK_INT(0, watched[0].revents);
    CHECK_INT(POLLIN, watched[1].revents);

    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    CHECK_INT(2, poll(watched, 2, LIMIT_MS));
    CHECK_INT(POLLIN, watched[0].revents);
    close(other[0]);
    close(other[1]);
    leasehold_lease_free(one);
    leasehold_lease_free(two);
    leasehold_events_free(events);
    leasehold_events_free(unread);
    CHECK_INT(-1, fcntl(descriptor, F_GETFD));
    leasehold_client_free(client);
}

static void next_waits_as_long_as_it_is_told(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = subscribe(client);
    leasehold_event *event = UNTOUCHED;
    const int64_t waits[] = {0, 1, 150, 250};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        struct stopwatch watch = stopwatch_start();
        EXPECT(LEASEHOLD_TIMEOUT, leasehold_events_next_within(events, waits[i], &event, &problem));
        CHECK_AT_LEAST(waits[i], watch);
        CHECK_AT_MOST(waits[i] + 50, watch);
    }
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_events_next_within(events, -1, &event, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_events_next_within(events, INT64_MIN, &event, &problem));
    CHECK(event == UNTOUCHED);
    leasehold_lease *lease = take_to_lose(client, "n", 50);
    EXPECT(LEASEHOLD_OK, leasehold_events_next_within(events, LEASEHOLD_FOREVER, &event, &problem));
    leasehold_event_free(event);
    leasehold_lease_free(lease);
    leasehold_events_free(events);
    leasehold_client_free(client);
}

struct reader {
    leasehold_events *events;
    _Atomic int waiting, read;
};

static void *read_until_closed(void *with)
{
    struct reader *reader = with;
    leasehold_event *event = UNTOUCHED;
    reader->waiting++;
    for (;;) {
        leasehold_status status =
            leasehold_events_next_within(reader->events, LEASEHOLD_FOREVER, &event, &problem);
        if (status != LEASEHOLD_OK) {
            expect(__FILE__, __LINE__, "next", false, LEASEHOLD_ERR_CLOSED, status);
            return NULL;
        }
        reader->read++;
        leasehold_event_free(event);
    }
}

static void readers_that_wait_at_once_share_the_events(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct reader reader = {subscribe(client), 0, 0};
    pthread_t threads[3];
    leasehold_lease *leases[12];
    for (int i = 0; i < 3; i++) threads[i] = begin(read_until_closed, &reader);
    for (int i = 0; i < 12; i++) leases[i] = take_to_lose(client, (char[]){(char)('a' + i), 0}, 60);
    EVENTUALLY(reader.read == 12);
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    for (int i = 0; i < 3; i++) finish(threads[i]);
    CHECK_INT(12, reader.read);
    for (int i = 0; i < 12; i++) leasehold_lease_free(leases[i]);
    leasehold_events_free(reader.events);
    leasehold_client_free(client);
}

static void c14_a_subscription_ends_when_its_client_is_closed(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *full = subscribe(client), *idle = subscribe(client);
    struct reader reader = {subscribe(client), 0, 0};
    leasehold_lease *lease = take_to_lose(client, "n", 30);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 1);
    pthread_t thread = begin(read_until_closed, &reader);
    EVENTUALLY(reader.read == 1);
    struct stopwatch watch = stopwatch_start();
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    finish(thread);
    CHECK_AT_MOST(200, watch);
    /* What was told can still be read. */
    leasehold_event *event = UNTOUCHED;
    leasehold_event_free(next_event(full));
    leasehold_event_free(next_event(idle));
    for (int i = 0; i < 2; i++) {
        EXPECT(LEASEHOLD_ERR_CLOSED,
               leasehold_events_next_within(full, LIMIT_MS, &event, &problem));
        EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_events_next_within(idle, 0, &event, &problem));
    }
    leasehold_events *more = UNTOUCHED;
    EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_client_events(client, &more, &problem));
    CHECK(event == UNTOUCHED && more == UNTOUCHED);
    leasehold_lease_free(lease);
    leasehold_events_free(full);
    leasehold_events_free(idle);
    leasehold_events_free(reader.events);
    leasehold_client_free(client);
}

static void c14_a_subscription_that_is_freed_lets_its_readers_go(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct reader reader = {subscribe(client), 0, 0};
    pthread_t threads[3];
    int descriptors = descriptor_count();
    for (int i = 0; i < 3; i++) threads[i] = begin(read_until_closed, &reader);
    EVENTUALLY(reader.waiting == 3);
    pause_ms(20); /* to be in the wait, most likely; before it would do as well */
    struct stopwatch watch = stopwatch_start();
    leasehold_events_free(reader.events);
    for (int i = 0; i < 3; i++) finish(threads[i]);
    CHECK_AT_MOST(200, watch);
    CHECK(descriptor_count() < descriptors);
    leasehold_client_free(client);
}

#define MANY 1100

static void c9_a_slow_reader_misses_risks_and_counts_them_but_never_a_loss(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = subscribe(client);
    static leasehold_lease *leases[MANY];
    leasehold_lock *lock;
    char name[16];
    CHECK_INT(0, leasehold_events_dropped(events));
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "n:%d", i);
        lock = make_lock(client, name);
        /* It runs out long before it would be renewed, but is one that is: so both are told. */
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 60000));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_max_hold_ms(lock, 150));
        leases[i] = take(lock);
        leasehold_lock_free(lock);
    }
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == MANY);
    int lost = 0, at_risk = 0;
    leasehold_event *event;
    while (leasehold_events_next_within(events, 0, &event, NULL) == LEASEHOLD_OK) {
        int kind = leasehold_event_kind(event);
        lost += kind == LEASEHOLD_EVENT_LOST;
        at_risk += kind == LEASEHOLD_EVENT_AT_RISK;
        leasehold_event_free(event);
    }
    CHECK_INT(MANY, lost);
    CHECK(leasehold_events_dropped(events) > 0);
    CHECK(at_risk + leasehold_events_dropped(events) <= MANY);
    for (int i = 0; i < MANY; i++) leasehold_lease_free(leases[i]);
    leasehold_events_free(events);
    leasehold_client_free(client);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE_IN_TIME(c9_a_lease_that_runs_out_is_told_as_lost);
    ON_EACH_STORE_IN_TIME(c9_a_lease_that_somebody_else_gave_back_is_told_as_not_held);
    ON_EACH_STORE_IN_TIME(c9_the_end_of_max_hold_is_told_before_it_comes);
    ON_REDIS_IN_TIME(c9_an_outage_is_told_as_a_risk_and_then_as_a_loss);
    ON_REDIS(a_lease_that_was_gone_when_it_was_freed_is_told_as_released_late);
    ON_EACH_STORE(an_event_stays_when_all_else_is_freed);
    ON_EACH_STORE(the_descriptor_is_readable_exactly_while_events_wait);
    ON_EACH_STORE_IN_TIME(next_waits_as_long_as_it_is_told);
    ON_EACH_STORE(readers_that_wait_at_once_share_the_events);
    ON_EACH_STORE_IN_TIME(c14_a_subscription_ends_when_its_client_is_closed);
    ON_EACH_STORE_IN_TIME(c14_a_subscription_that_is_freed_lets_its_readers_go);
    ON_EACH_STORE(c9_a_slow_reader_misses_risks_and_counts_them_but_never_a_loss);
    return runner_report();
}
