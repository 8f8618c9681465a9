/* A store for tests: each control, with the client that it happens to and another one. */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "support/support.h"

#define HOUR_MS 3600000

static leasehold_testing_memory *make_memory(void)
{
    leasehold_testing_memory *memory;
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_open(NULL, 0, &memory, &problem));
    return memory;
}

static leasehold_client *client_of(leasehold_testing_memory *memory)
{
    return open_client(leasehold_testing_memory_url(memory));
}

/* One that gives up soon. */
static leasehold_client *hasty_client_of(leasehold_testing_memory *memory)
{
    return open_client_with(leasehold_testing_memory_url(memory), 60);
}

static void lose(leasehold_testing_memory *memory, const char *name)
{
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_lose(memory, name, LEASEHOLD_NUL, &problem));
}

static leasehold_testing_effect *make_busy(leasehold_testing_memory *memory, const char *name)
{
    leasehold_testing_effect *busy;
    EXPECT(LEASEHOLD_OK,
           leasehold_testing_memory_busy(memory, name, LEASEHOLD_NUL, &busy, &problem));
    return busy;
}

static leasehold_testing_effect *fail(leasehold_testing_memory *memory, leasehold_status status)
{
    leasehold_testing_effect *failing;
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_failing(memory, status, &failing, &problem));
    return failing;
}

static void fail_once(leasehold_testing_memory *memory, leasehold_status status)
{
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_fail_next(memory, status, &problem));
}

static void advance(leasehold_testing_memory *memory, int64_t by_ms)
{
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_advance_ms(memory, by_ms, &problem));
}

/* Tries once, and releases what it gets. */
static leasehold_status try(leasehold_client *client, const char *name)
{
    leasehold_lock *lock = make_lock(client, name);
    leasehold_lease *lease = NULL;
    leasehold_status status = leasehold_lock_try_acquire(lock, &lease, NULL);
    if (status == LEASEHOLD_OK)
        leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    return status;
}

/* ---- The store -------------------------------------------------------------------------------- */

static void each_store_is_its_own_and_its_clients_exclude_each_other(void)
{
    leasehold_testing_memory *memory = make_memory(), *apart = make_memory();
    CHECK(strncmp("memory:testing-", leasehold_testing_memory_url(memory), 15) == 0);
    leasehold_client *one = client_of(memory), *other = client_of(memory);
    leasehold_client *elsewhere = client_of(apart);
    leasehold_lease *lease = take_name(one, "a");
    CHECK_STATUS(LEASEHOLD_BUSY, try(other, "a"));
    CHECK_STATUS(LEASEHOLD_OK, try(elsewhere, "a"));
    give_back(lease);
    CHECK_STATUS(LEASEHOLD_OK, try(other, "a"));
    leasehold_client_free(one);
    leasehold_client_free(other);
    leasehold_client_free(elsewhere);
    leasehold_testing_memory_free(memory);
    leasehold_testing_memory_free(apart);
}

static atomic_int inside, most, turns;

/* A client of its own, which contends for the lock. */
static void *contend(void *memory)
{
    leasehold_client *client = client_of(memory);
    leasehold_lock *lock = make_lock(client, "shared");
    for (int i = 0; i < 50; i++) {
        leasehold_lease *lease = take(lock);
        int now = atomic_fetch_add(&inside, 1) + 1;
        if (now > atomic_load(&most))
            atomic_store(&most, now);
        atomic_fetch_add(&turns, 1);
        atomic_fetch_sub(&inside, 1);
        give_back(lease);
    }
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    return NULL;
}

static void clients_of_several_threads_are_never_inside_at_once(void)
{
    leasehold_testing_memory *memory = make_memory();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = begin(contend, memory);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    CHECK_INT(1, most);
    CHECK_INT(200, turns);
    leasehold_testing_memory_free(memory);
}

static void a_store_that_has_a_name_is_found_by_it(void)
{
    leasehold_testing_memory *memory, *again;
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_open("50 %?", 5, &memory, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_open("50 %?", LEASEHOLD_NUL, &again, &problem));
    CHECK_TEXT("memory:50%20%25%3F", leasehold_testing_memory_url(memory));
    leasehold_testing_effect *busy = make_busy(memory, "a");
    leasehold_client *client = client_of(again);
    CHECK_STATUS(LEASEHOLD_BUSY, try(client, "a"));
    leasehold_client_free(client);
    leasehold_testing_effect_free(busy);
    leasehold_testing_memory_free(memory);
    leasehold_testing_memory_free(again);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_testing_memory_open("\xff", 1, &memory, &problem));
    CHECK_CONTAINS("the name is not UTF-8", said);
}

static void what_is_held_is_listed_in_order(void)
{
    leasehold_testing_memory *memory = make_memory();
    leasehold_client *client = client_of(memory);
    leasehold_testing_names *names;
    leasehold_lease *lease = take_name(client, "b");
    leasehold_testing_effect *busy;
    size_t length;
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_busy(memory, "a\0\xff", 3, &busy, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_held(memory, &names, &problem));
    CHECK_INT(2, leasehold_testing_names_count(names));
    const char *first = leasehold_testing_names_get(names, 0, &length);
    CHECK_INT(3, length);
    CHECK(memcmp(first, "a\0\xff", 4) == 0);
    CHECK_TEXT("b", leasehold_testing_names_get(names, 1, NULL));
    CHECK_TEXT("", leasehold_testing_names_get(names, 2, &length));
    CHECK_INT(0, length);
    leasehold_testing_names_free(names);
    give_back(lease);
    leasehold_testing_effect_free(busy);
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_held(memory, &names, &problem));
    CHECK_INT(0, leasehold_testing_names_count(names));
    leasehold_testing_names_free(names);
    leasehold_client_free(client);
    leasehold_testing_memory_free(memory);
}

/* ---- The controls ----------------------------------------------------------------------------- */

static void a_lost_lease_is_told_at_once_and_the_lock_is_anothers(void)
{
    leasehold_testing_memory *memory = make_memory();
    leasehold_client *one = client_of(memory), *other = client_of(memory);
    leasehold_events *events = subscribe(one);
    leasehold_lease *lease = take_name(one, "a"), *kept = take_name(one, "b");
    lose(memory, "a");
    CHECK(!leasehold_lease_is_valid(lease) && leasehold_lease_is_valid(kept));
    leasehold_event *event = next_event(events);
    CHECK_INT(LEASEHOLD_EVENT_LOST, leasehold_event_kind(event));
    CHECK_INT(LEASEHOLD_LOSS_NOT_HELD, leasehold_event_reason(event));
    leasehold_lease *next = take_name(other, "a");
    CHECK(leasehold_lease_fence(next) > leasehold_lease_fence(lease));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    CHECK(leasehold_lease_is_valid(next));
    give_back(next);
    give_back(kept);
    leasehold_lease_free(lease);
    leasehold_event_free(event);
    leasehold_events_free(events);
    leasehold_client_free(one);
    leasehold_client_free(other);
    leasehold_testing_memory_free(memory);
}

static void *take_and_give_back(void *client)
{
    give_back(take_name(client, "a"));
    return NULL;
}

static void a_busy_lock_is_held_until_it_is_freed(void)
{
    leasehold_testing_memory *memory = make_memory();
    leasehold_client *client = client_of(memory);
    leasehold_testing_effect *busy = make_busy(memory, "a");
    CHECK_STATUS(LEASEHOLD_BUSY, try(client, "a"));
    advance(memory, 1000 * (int64_t)HOUR_MS);
    CHECK_STATUS(LEASEHOLD_BUSY, try(client, "a"));
    pthread_t waiter = begin(take_and_give_back, client);
    leasehold_testing_effect_free(busy);
    finish(waiter);
    CHECK_STATUS(LEASEHOLD_OK, try(client, "a"));
    leasehold_client_free(client);
    leasehold_testing_memory_free(memory);
}

static void one_request_fails_and_then_all_until_that_is_freed(void)
{
    leasehold_testing_memory *memory = make_memory();
    leasehold_client *client = hasty_client_of(memory);
    fail_once(memory, LEASEHOLD_ERR_PERMISSION);
    fail_once(memory, LEASEHOLD_ERR_AUTH);
    CHECK_STATUS(LEASEHOLD_ERR_PERMISSION, try(client, "a"));
    EXPECT(LEASEHOLD_ERR_AUTH, leasehold_client_ping(client, &problem));
    CHECK_STATUS(LEASEHOLD_OK, try(client, "a"));

    static const leasehold_status statuses[] = {
        LEASEHOLD_UNKNOWN,           LEASEHOLD_ERR_REFUSED,
        LEASEHOLD_ERR_NO_ANSWER,     LEASEHOLD_ERR_AUTH,
        LEASEHOLD_ERR_TLS,           LEASEHOLD_ERR_PERMISSION,
        LEASEHOLD_ERR_WRONG_TYPE,    LEASEHOLD_ERR_READ_ONLY,
        LEASEHOLD_ERR_OUT_OF_MEMORY, LEASEHOLD_ERR_UNAVAILABLE,
        LEASEHOLD_ERR_EXHAUSTED,     LEASEHOLD_ERR_STORAGE,
        LEASEHOLD_ERR_PROTOCOL,      LEASEHOLD_ERR_NOT_REPLICATED,
        LEASEHOLD_ERR_NO_QUORUM,     LEASEHOLD_ERR_DISK_FULL,
    };
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        leasehold_testing_effect *failing = fail(memory, statuses[i]);
        CHECK_STATUS(statuses[i], try(client, "a"));
        leasehold_testing_effect_free(failing);
        EVENTUALLY(try(client, "a") == LEASEHOLD_OK);
    }
    leasehold_client_free(client);
    leasehold_testing_memory_free(memory);
}

static void a_paused_store_answers_nobody_until_it_is_resumed(void)
{
    leasehold_testing_memory *memory = make_memory();
    leasehold_client *hasty = hasty_client_of(memory);
    for (int freed = 0; freed < 2; freed++) {
        EXPECT(LEASEHOLD_OK, leasehold_testing_memory_pause(memory, &problem));
        EXPECT(LEASEHOLD_ERR_NO_ANSWER, leasehold_client_ping(hasty, &problem));
        CHECK_CONTAINS("the test has paused the store", said);
        if (freed)
            leasehold_testing_memory_free(memory);
        else
            EXPECT(LEASEHOLD_OK, leasehold_testing_memory_resume(memory, &problem));
        EXPECT(LEASEHOLD_OK, leasehold_client_ping(hasty, &problem));
    }
    leasehold_client_free(hasty);
}

static void leases_end_as_the_clock_of_the_store_goes_on(void)
{
    leasehold_testing_memory *memory = make_memory();
    leasehold_client *client = client_of(memory), *other = client_of(memory);
    leasehold_lease *nearer = take_name_for(client, "short", HOUR_MS / 60);
    leasehold_lease *longer = take_name_for(client, "long", HOUR_MS);
    advance(memory, HOUR_MS / 2);
    CHECK(!leasehold_lease_is_valid(nearer) && leasehold_lease_is_valid(longer));
    CHECK_STATUS(LEASEHOLD_OK, try(other, "short"));
    CHECK_STATUS(LEASEHOLD_BUSY, try(other, "long"));
    give_back(longer);
    leasehold_lease_free(nearer);
    leasehold_client_free(client);
    leasehold_client_free(other);
    leasehold_testing_memory_free(memory);
}

/* ---- Mistakes of the test --------------------------------------------------------------------- */

static void a_mistaken_control_says_what_is_held(void)
{
    leasehold_testing_memory *memory = make_memory();
    leasehold_testing_effect *busy = make_busy(memory, "orders:24"), *more = UNTOUCHED;
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_testing_memory_lose(memory, "orders:42", LEASEHOLD_NUL, &problem));
    CHECK_CONTAINS("lose('orders:42'): no client holds this lock; locks held in memory:testing-",
                   said);
    CHECK_CONTAINS(": 'orders:24'", said);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_testing_memory_busy(memory, "orders:24", LEASEHOLD_NUL, &more, &problem));
    CHECK_CONTAINS("busy('orders:24'): this lock is held already; ", said);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_testing_memory_advance_ms(memory, -1, &problem));
    CHECK_CONTAINS("the time is -1 ms", said);

    static const leasehold_status none[] = {
        LEASEHOLD_OK,
        LEASEHOLD_BUSY,
        LEASEHOLD_TIMEOUT,
        LEASEHOLD_INTERRUPTED,
        LEASEHOLD_LOST,
        LEASEHOLD_ERR_BAD_ARGUMENT,
        LEASEHOLD_ERR_HANDLE,
        LEASEHOLD_ERR_CLOSED,
        LEASEHOLD_ERR_FORKED,
        LEASEHOLD_ERR_SEALED,
        LEASEHOLD_ERR_PANIC,
        LEASEHOLD_ERR_WOULD_DEADLOCK,
        -1000,
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
               leasehold_testing_memory_fail_next(memory, none[i], &problem));
        CHECK_CONTAINS("no store gives th", said);
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
               leasehold_testing_memory_failing(memory, none[i], &more, &problem));
    }
    CHECK(more == UNTOUCHED);
    leasehold_client *client = client_of(memory);
    EXPECT(LEASEHOLD_OK, leasehold_client_ping(client, &problem));
    leasehold_client_free(client);
    leasehold_testing_effect_free(busy);
    leasehold_testing_memory_free(memory);
}

static void a_forked_child_has_none_of_it(void)
{
    leasehold_testing_memory *memory = make_memory(), *own = UNTOUCHED;
    leasehold_testing_effect *busy = make_busy(memory, "a"), *failing = UNTOUCHED;
    leasehold_testing_names *names, *more = UNTOUCHED;
    EXPECT(LEASEHOLD_OK, leasehold_testing_memory_held(memory, &names, &problem));
    pid_t child = fork();
    if (child == 0) {
        const leasehold_status forked = LEASEHOLD_ERR_FORKED;
        size_t length = 77;
        EXPECT(LEASEHOLD_ERR_STORAGE, leasehold_testing_memory_open(NULL, 0, &own, &problem));
        CHECK_TEXT("", leasehold_testing_memory_url(memory));
        EXPECT(forked, leasehold_testing_memory_lose(memory, "a", 1, &problem));
        EXPECT(forked, leasehold_testing_memory_busy(memory, "b", 1, &busy, &problem));
        EXPECT(forked, leasehold_testing_memory_fail_next(memory, LEASEHOLD_ERR_AUTH, &problem));
        EXPECT(forked,
               leasehold_testing_memory_failing(memory, LEASEHOLD_ERR_AUTH, &failing, &problem));
        EXPECT(forked, leasehold_testing_memory_pause(memory, &problem));
        EXPECT(forked, leasehold_testing_memory_resume(memory, &problem));
        EXPECT(forked, leasehold_testing_memory_advance_ms(memory, 1, &problem));
        EXPECT(forked, leasehold_testing_memory_held(memory, &more, &problem));
        CHECK_INT(0, leasehold_testing_names_count(names));
        CHECK_TEXT("", leasehold_testing_names_get(names, 0, &length));
        CHECK_INT(0, length);
        leasehold_testing_names_free(names);
        leasehold_testing_effect_free(busy);
        leasehold_testing_memory_free(memory);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    leasehold_client *client = client_of(memory);
    CHECK_STATUS(LEASEHOLD_BUSY, try(client, "a"));
    leasehold_client_free(client);
    leasehold_testing_names_free(names);
    leasehold_testing_effect_free(busy);
    leasehold_testing_memory_free(memory);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    TEST(each_store_is_its_own_and_its_clients_exclude_each_other);
    TEST(clients_of_several_threads_are_never_inside_at_once);
    TEST(a_store_that_has_a_name_is_found_by_it);
    TEST(what_is_held_is_listed_in_order);
    TEST(a_lost_lease_is_told_at_once_and_the_lock_is_anothers);
    TEST(a_busy_lock_is_held_until_it_is_freed);
    TEST(one_request_fails_and_then_all_until_that_is_freed);
    TEST(a_paused_store_answers_nobody_until_it_is_resumed);
    TEST(leases_end_as_the_clock_of_the_store_goes_on);
    TEST(a_mistaken_control_says_what_is_held);
    TEST(a_forked_child_has_none_of_it);
    return runner_report();
}
