/* What is called when a lease is lost: when, how often, and what it may do. */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

struct told {
    atomic_int called, running, dropped;
    /* What the function waits for, and what it returns. */
    atomic_int go_on, result;
    uint64_t fence;
    int kind, reason;
    char name[32];
    leasehold_lease *lease;
    leasehold_client *client;
};

static int tell(void *with, const leasehold_event *event)
{
    struct told *told = with;
    CHECK_INT(0, told->running++);
    told->kind = leasehold_event_kind(event);
    told->reason = leasehold_event_reason(event);
    told->fence = leasehold_event_fence(event);
    strcpy(told->name, leasehold_event_name(event, NULL));
    CHECK_INT(1, threads_named("leasehold-lost"));
    told->running--;
    told->called++;
    return told->result;
}

static int tell_slowly(void *with, const leasehold_event *event)
{
    struct told *told = with;
    told->running = 1;
    while (!told->go_on) pause_ms(1);
    told->running = 0;
    return tell(with, event);
}

static void drop(void *with)
{
    struct told *told = with;
    CHECK_INT(0, told->running);
    told->dropped++;
}

static void on_lost(leasehold_lease *lease, leasehold_lease_lost_fn function, struct told *told)
{
    EXPECT(LEASEHOLD_OK, leasehold_lease_on_lost(lease, function, told, drop, &problem));
}

static void c9_a_function_is_called_for_its_lease_alone_and_once(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lease *kept = take_name(client, "kept"), *lost = take_to_lose(client, "lost", 300);
    leasehold_lease *back = take_to_lose(client, "back", 300);
    struct told keeps = {0}, loses = {0}, replaced = {0}, takes_back = {0};
    on_lost(kept, tell, &keeps);
    on_lost(lost, tell, &replaced);
    on_lost(lost, tell, &loses);
    on_lost(back, tell, &takes_back);
    CHECK_INT(1, replaced.dropped);
    EXPECT(LEASEHOLD_OK, leasehold_lease_on_lost(back, NULL, NULL, NULL, &problem));
    CHECK_INT(1, takes_back.dropped);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 2);
    EVENTUALLY(loses.dropped == 1);
    CHECK_INT(1, loses.called);
    CHECK_INT(LEASEHOLD_EVENT_LOST, loses.kind);
    CHECK_INT(LEASEHOLD_LOSS_EXPIRED, loses.reason);
    CHECK_INT(leasehold_lease_fence(lost), loses.fence);
    CHECK_TEXT("lost", loses.name);
    /* At once, when it was lost before. */
    for (int i = 2; i < 4; i++) {
        on_lost(lost, tell, &loses);
        EVENTUALLY(loses.dropped == i);
        CHECK_INT(i, loses.called);
    }
    leasehold_lease_free(lost);
    leasehold_lease_free(back);
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(kept, &problem));
    CHECK_INT(1, keeps.dropped);
    /* Data is taken over in any case. */
    EXPECT(LEASEHOLD_LOST, leasehold_lease_on_lost(kept, tell, &keeps, drop, &problem));
    CHECK_INT(2, keeps.dropped);
    EXPECT(LEASEHOLD_OK, leasehold_lease_on_lost(kept, NULL, &keeps, drop, &problem));
    CHECK_INT(3, keeps.dropped);
    leasehold_lease_free(kept);
    EXPECT(LEASEHOLD_ERR_HANDLE, leasehold_lease_on_lost(kept, tell, &keeps, drop, &problem));
    CHECK_INT(4, keeps.dropped);
    kept = take_name(client, "kept");
    on_lost(kept, tell, &keeps);
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_lease_on_lost(kept, tell, &keeps, drop, &problem));
    CHECK_INT(6, keeps.dropped);
    leasehold_lease_free(kept);
    leasehold_client_free(client);
    CHECK_INT(0, keeps.called + replaced.called + takes_back.called);
}

/* What ends a lease, or takes its function back. */
static void *release(void *lease)
{
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    return NULL;
}

static void *end(void *lease)
{
    EXPECT(LEASEHOLD_LOST, leasehold_lease_end(lease, false, &problem));
    return NULL;
}

static void *free_it(void *lease)
{
    leasehold_lease_free(lease);
    return NULL;
}

static void *take_back(void *lease)
{
    EXPECT(LEASEHOLD_OK, leasehold_lease_on_lost(lease, NULL, NULL, NULL, &problem));
    return NULL;
}

static void c14_who_ends_a_lease_waits_for_the_function_that_is_running(struct store *store)
{
    void *(*const ways[])(void *) = {release, end, free_it, take_back};
    leasehold_client *client = open_client(store->url);
    for (int i = 0; i < 4; i++) {
        leasehold_lease *lease = take_to_lose(client, "n", 30);
        struct told told = {0};
        on_lost(lease, tell_slowly, &told);
        EVENTUALLY(told.running);
        pthread_t ending = begin(ways[i], lease);
        pause_ms(50);
        CHECK_INT(1, told.running);
        told.go_on = 1;
        finish(ending);
        /* Now its data can go: what comes later would find it gone. */
        CHECK_INT(1, told.called);
        CHECK_INT(1, told.dropped);
        memset(&told, 0xff, sizeof told);
        leasehold_lease_free(lease);
    }
    leasehold_client_free(client);
}

/* Losses and releases at once: whatever comes first, nothing is called after the release. */
static void c14_nothing_is_called_after_a_release(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    for (int i = 0; i < 60; i++) {
        leasehold_lease *lease = take_to_lose(client, "n", 30);
        struct told *told = calloc(1, sizeof *told);
        on_lost(lease, tell, told);
        int64_t left_us = leasehold_lease_remaining_ms(lease) * 1000 - i % 30 * 200;
        for (int64_t end = now_us() + left_us; now_us() < end;) pause_ms(0);
        leasehold_lease_free(lease);
        CHECK_INT(1, told->dropped);
        CHECK(told->called <= 1);
        free(told);
    }
    leasehold_client_free(client);
}

static int end_everything(void *with, const leasehold_event *event)
{
    struct told *told = with;
    leasehold_lease *another = take_name(told->client, "another");
    (void)event;
    EXPECT(LEASEHOLD_OK, leasehold_lease_on_lost(another, tell, told, NULL, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lease_on_lost(told->lease, tell, told, NULL, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lease_on_lost(told->lease, NULL, NULL, NULL, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(told->lease, &problem));
    leasehold_lease_free(told->lease);
    give_back(another);
    EXPECT(LEASEHOLD_OK, leasehold_client_close(told->client, &problem));
    leasehold_client_free(told->client);
    told->go_on = 1;
    return 0;
}

static void c14_a_function_may_end_its_lease_and_close_its_client(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct told told = {.lease = take_to_lose(client, "n", 300), .client = client};
    on_lost(told.lease, end_everything, &told);
    EVENTUALLY(told.go_on && told.dropped);
    CHECK_INT(0, told.called);
}

static void c9_a_slow_function_holds_up_no_renewal(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lease *lost = take_to_lose(client, "lost", 30),
                    *held = take_name_for(client, "held", 900);
    struct told told = {0};
    on_lost(lost, tell_slowly, &told);
    EVENTUALLY(told.running);
    uint64_t renewed = count(client, LEASEHOLD_COUNTER_RENEWED);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_RENEWED) > renewed + 4);
    CHECK(leasehold_lease_is_valid(held));
    told.go_on = 1;
    leasehold_lease_free(lost);
    give_back(held);
    leasehold_client_free(client);
}

static atomic_int failures;

static void count_failures(void *with, leasehold_log_level level, const char *message)
{
    (void)with, (void)level;
    if (strcmp(message, "on-lost-failed lock=failing") == 0)
        failures++;
}

static void a_function_that_fails_is_logged(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lease *lease = take_to_lose(client, "failing", 30);
    struct told told = {.result = -7};
    EXPECT(LEASEHOLD_OK, leasehold_log_set(count_failures, NULL, LEASEHOLD_LOG_ERROR, &problem));
    on_lost(lease, tell, &told);
    EVENTUALLY(failures == 1);
    told.result = 0;
    on_lost(lease, tell, &told);
    EVENTUALLY(told.called == 2);
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    leasehold_lease_free(lease);
    leasehold_client_free(client);
    CHECK_INT(1, failures);
}

static void try_in_child(void *with)
{
    struct told *told = with;
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_lease_on_lost(told->lease, tell, told, drop, &problem));
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_lease_on_lost(told->lease, NULL, NULL, NULL, &problem));
    leasehold_lease_free(told->lease);
    leasehold_client_free(told->client);
    pause_ms(100);
    CHECK_INT(0, told->called);
    CHECK_INT(1, told->dropped); /* what was never registered */
}

static void c8_a_child_never_calls_what_its_parent_has_registered(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct told told = {.lease = take_to_lose(client, "n", 300), .client = client};
    on_lost(told.lease, tell, &told);
    CHECK_INT(0, in_fork(try_in_child, &told));
    EVENTUALLY(told.dropped == 1);
    CHECK_INT(1, told.called);
    leasehold_lease_free(told.lease);
    leasehold_client_free(client);
}

/* For languages on top of C: the number is known before the loss is read of, or told again after it. */
static void c9_a_lease_that_is_watched_is_named_by_its_number(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = subscribe(client);
    leasehold_lease *one = take_to_lose(client, "n", 300), *other = take_to_lose(client, "m", 300);
    uint64_t id = 0, other_id = 0, again = 0;
    EXPECT(LEASEHOLD_OK, leasehold_lease_watch(one, events, &id, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lease_watch(other, events, &other_id, &problem));
    CHECK(id != 0 && other_id != 0 && id != other_id);
    for (int i = 0; i < 2; i++) {
        leasehold_event *event = next_event(events);
        bool is_one = leasehold_event_fence(event) == leasehold_lease_fence(one);
        CHECK_INT(is_one ? id : other_id, leasehold_event_lease_id(event));
        leasehold_event_free(event);
    }
    EXPECT(LEASEHOLD_OK, leasehold_lease_watch(one, events, &again, &problem));
    CHECK_INT(id, again);
    leasehold_event *event = next_event(events), *none = UNTOUCHED;
    CHECK_INT(id, leasehold_event_lease_id(event));
    CHECK_INT(LEASEHOLD_LOSS_EXPIRED, leasehold_event_reason(event));
    leasehold_event_free(event);
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_events_next_within(events, 0, &none, &problem));
    CHECK_INT(0, leasehold_event_lease_id(NULL));
    EXPECT(LEASEHOLD_ERR_HANDLE, leasehold_lease_watch(one, NULL, &again, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lease_watch(one, events, NULL, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(one, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_watch(one, events, &again, &problem));
    CHECK_INT(id, again);
    leasehold_lease_free(one);
    leasehold_lease_free(other);
    leasehold_events_free(events);
    leasehold_client_free(client);
}

static void c9_who_broke_a_lock_is_told(struct store *store)
{
    leasehold_client *client = open_client(store->url), *operator = open_client(store->url);
    leasehold_events *events = subscribe(client);
    leasehold_lease *lease = take_name_for(client, "n", 6000);
    leasehold_lock *lock = make_lock(operator, "n");
    uint64_t broken = 0, fence = leasehold_lease_fence(lease);
    const char *by = "root@web-3", *start = "broken by an operator (root@web-3) at 20";

    EXPECT(LEASEHOLD_BUSY,
           leasehold_lock_break(lock, fence + 1, by, LEASEHOLD_NUL, &broken, &problem));
    CHECK(is_held(operator, "n"));
    EXPECT(LEASEHOLD_OK, leasehold_lock_break(lock, fence, by, LEASEHOLD_NUL, &broken, &problem));
    CHECK_INT(fence, broken);
    EXPECT(LEASEHOLD_LOST, leasehold_lock_break(lock, 0, by, LEASEHOLD_NUL, &broken, &problem));
    leasehold_event *event = next_event(events);
    CHECK_INT(LEASEHOLD_LOSS_BROKEN, leasehold_event_reason(event));
    CHECK(strncmp(start, leasehold_event_detail(event), strlen(start)) == 0);
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    leasehold_event_free(event);
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    leasehold_events_free(events);
    leasehold_client_free(client);
    leasehold_client_free(operator);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(c9_a_function_is_called_for_its_lease_alone_and_once);
    ON_EACH_STORE(c14_who_ends_a_lease_waits_for_the_function_that_is_running);
    ON_EACH_STORE(c14_nothing_is_called_after_a_release);
    ON_EACH_STORE(c14_a_function_may_end_its_lease_and_close_its_client);
    ON_EACH_STORE(c9_a_slow_function_holds_up_no_renewal);
    ON_REDIS(a_function_that_fails_is_logged);
    ON_REDIS(c8_a_child_never_calls_what_its_parent_has_registered);
    ON_EACH_STORE(c9_a_lease_that_is_watched_is_named_by_its_number);
    ON_EACH_STORE(c9_who_broke_a_lock_is_told);
    return runner_report();
}
