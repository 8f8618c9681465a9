/* Many waits at once without a thread for each: how they are told, and what they leave. */

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/support.h"

/* The threads of one client that ask for all waits: its pool of connections, and two more. */
#define CREW (8 + 2)

static bool readable(leasehold_waits *waits, int wait_ms)
{
    struct pollfd watched = {leasehold_waits_descriptor(waits), POLLIN, 0};
    return poll(&watched, 1, wait_ms) == 1;
}

static leasehold_waits *open_waits(void)
{
    leasehold_waits *waits;
    EXPECT(LEASEHOLD_OK, leasehold_waits_open(&waits, &problem));
    return waits;
}

static void start_wait(leasehold_waits *waits, leasehold_lock *lock, uint64_t id)
{
    EXPECT(LEASEHOLD_OK,
           leasehold_waits_start_within(waits, lock, LEASEHOLD_FOREVER, id, &problem));
}

/* The wait that ends next. */
static uint64_t next_wait(leasehold_waits *waits)
{
    uint64_t id;
    EXPECT(LEASEHOLD_OK, leasehold_waits_next_within(waits, LIMIT_MS, &id, &problem));
    return id;
}

static void nothing_more(leasehold_waits *waits)
{
    uint64_t id = 77;
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_waits_next_within(waits, 0, &id, &problem));
    CHECK_INT(77, id);
}

static leasehold_turn take_wait(leasehold_waits *waits, uint64_t id)
{
    leasehold_turn turn;
    EXPECT(LEASEHOLD_OK, leasehold_waits_take(waits, id, &turn, &problem));
    CHECK(leasehold_lease_is_valid(turn.lease));
    CHECK_INT(turn.fence, leasehold_lease_fence(turn.lease));
    return turn;
}

static void end_turn(leasehold_turn turn)
{
    EXPECT(LEASEHOLD_OK, leasehold_lease_end(turn.lease, true, &problem));
}

static void the_descriptor_is_readable_when_a_wait_has_ended(struct store *store)
{
    leasehold_client *holder = open_client(store->url), *waiter = open_client(store->url);
    leasehold_waits *waits = open_waits();
    leasehold_lock *lock = make_lock(waiter, "n");
    leasehold_lease *held = take_name(holder, "n");
    uint64_t fence = leasehold_lease_fence(held);
    leasehold_turn turn = {UNTOUCHED, 0};

    start_wait(waits, lock, 7);
    leasehold_lock_free(lock); /* The wait goes on. */
    EVENTUALLY(count(waiter, LEASEHOLD_COUNTER_BUSY) > 0);
    CHECK(!readable(waits, 0));
    EXPECT(LEASEHOLD_BUSY, leasehold_waits_take(waits, 7, &turn, &problem));
    CHECK(turn.lease == UNTOUCHED);
    nothing_more(waits);

    give_back(held);
    CHECK(readable(waits, LIMIT_MS));
    CHECK_INT(7, next_wait(waits));
    CHECK(!readable(waits, 0));
    nothing_more(waits);
    turn = take_wait(waits, 7);
    CHECK(turn.fence > fence);
    CHECK_INT(turn.fence, holder_fence(holder, "n"));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_waits_take(waits, 7, &turn, &problem));
    end_turn(turn);

    leasehold_waits_free(waits);
    leasehold_client_free(holder);
    leasehold_client_free(waiter);
}

#define NAMES 600

static void hundreds_of_waits_need_no_thread_of_their_own(struct store *store)
{
    leasehold_client *holder = open_client(store->url), *waiter = open_client(store->url);
    leasehold_waits *waits = open_waits();
    static leasehold_lease *held[NAMES];
    leasehold_turn turn;
    char name[16];
    /* In a file, each of them asks again and again. */
    const int names = store->server ? NAMES : NAMES / 10;
    const uint64_t of_one_name = (uint64_t)names / 3;

    leasehold_lease *one = take_name(holder, "one");
    leasehold_lock *lock = make_lock(waiter, "one");
    for (int i = 0; i < names; i++) {
        snprintf(name, sizeof name, "n:%d", i);
        held[i] = take_name(holder, name);
    }
    int threads = thread_count();
    for (uint64_t i = 0; i < of_one_name; i++) start_wait(waits, lock, i);
    leasehold_lock_free(lock);
    for (uint64_t i = 0; i < (uint64_t)names; i++) {
        snprintf(name, sizeof name, "n:%d", (int)i);
        lock = make_lock(waiter, name);
        start_wait(waits, lock, of_one_name + i);
        leasehold_lock_free(lock);
    }
    EVENTUALLY(count(waiter, LEASEHOLD_COUNTER_ATTEMPTS) > (uint64_t)names);
    if (thread_count() > threads + CREW)
        FAIL("%d threads more", thread_count() - threads);
    nothing_more(waits);

    /* In the order of coming. */
    give_back(one);
    uint64_t fence = 0;
    for (uint64_t i = 0; i < of_one_name; i++) {
        CHECK_INT(i, next_wait(waits));
        turn = take_wait(waits, i);
        CHECK(turn.fence > fence);
        fence = turn.fence;
        end_turn(turn);
    }
    for (int i = 0; i < names; i++) give_back(held[i]);
    for (int i = 0; i < names; i++) end_turn(take_wait(waits, next_wait(waits)));
    nothing_more(waits);
    CHECK(thread_count() <= threads + CREW);

    leasehold_waits_free(waits);
    leasehold_client_free(holder);
    leasehold_client_free(waiter);
}

static void a_wait_comes_to_what_a_thread_would_have_been_told(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_waits *waits = open_waits();
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *held = take_name(client, "n");
    leasehold_turn turn = {UNTOUCHED, 0};

    EXPECT(LEASEHOLD_OK, leasehold_waits_start_within(waits, lock, 50, 1, &problem));
    CHECK_INT(1, next_wait(waits));
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_waits_take(waits, 1, &turn, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(lock, 0));
    EXPECT(LEASEHOLD_OK, leasehold_waits_start(waits, lock, 1, &problem));
    CHECK_INT(1, next_wait(waits));
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_waits_take(waits, 1, &turn, &problem));
    /* Options that do not go together. */
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 50));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, true));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_waits_start(waits, lock, 2, &problem));
    CHECK_CONTAINS("renew", said);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 1000));

    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_waits_start_within(waits, lock, -1, 3, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_waits_next_within(waits, -1, &(uint64_t){0}, &problem));
    start_wait(waits, lock, 3);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_waits_start(waits, lock, 3, &problem));
    CHECK_CONTAINS("3", said);
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    CHECK_INT(3, next_wait(waits));
    EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_waits_take(waits, 3, &turn, &problem));
    EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_waits_start(waits, lock, 4, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_waits_take(waits, 5, &turn, &problem));
    CHECK_CONTAINS("5", said);
    CHECK(turn.lease == UNTOUCHED);

    leasehold_lease_free(held);
    leasehold_lock_free(lock);
    leasehold_waits_free(waits);
    leasehold_client_free(client);
}

static void c10_a_wait_that_is_stopped_leaves_no_lock_behind(struct store *store)
{
    leasehold_client *holder = open_client(store->url), *waiter = open_client(store->url);
    leasehold_waits *waits = open_waits();
    leasehold_lock *lock = make_lock(waiter, "n");
    leasehold_lease *held = take_name(holder, "n");

    start_wait(waits, lock, 1);
    start_wait(waits, lock, 2);
    EVENTUALLY(count(waiter, LEASEHOLD_COUNTER_BUSY) > 0);
    for (int again = 0; again < 2; again++)
        EXPECT(LEASEHOLD_OK, leasehold_waits_stop(waits, 1, &problem));
    give_back(held);
    /* It stood first. */
    CHECK_INT(2, next_wait(waits));
    end_turn(take_wait(waits, 2));

    /* One that has got the lock, told or not. */
    for (int told = 0; told < 2; told++) {
        start_wait(waits, lock, 3);
        CHECK(readable(waits, LIMIT_MS));
        CHECK(is_held(holder, "n"));
        if (told)
            CHECK_INT(3, next_wait(waits));
        EXPECT(LEASEHOLD_OK, leasehold_waits_stop(waits, 3, &problem));
        EVENTUALLY(!is_held(holder, "n"));
        nothing_more(waits);
        CHECK(!readable(waits, 0));
    }
    /* At any moment. */
    for (int i = 0; i < 50; i++) {
        start_wait(waits, lock, 4);
        if (i > 20)
            pause_ms(i % 3);
        EXPECT(LEASEHOLD_OK, leasehold_waits_stop(waits, 4, &problem));
        leasehold_lease *next = take_name(holder, "n");
        CHECK_INT(leasehold_lease_fence(next), holder_fence(holder, "n"));
        give_back(next);
    }
    leasehold_lock_free(lock);
    leasehold_waits_free(waits);
    leasehold_client_free(holder);
    leasehold_client_free(waiter);
}

/* The thread that is about to be told, or 0. */
static atomic_int reader_task;

static void *be_told_for_ever(void *waits)
{
    uint64_t id;
    reader_task = gettid();
    EXPECT(LEASEHOLD_ERR_CLOSED,
           leasehold_waits_next_within(waits, LEASEHOLD_FOREVER, &id, &problem));
    return NULL;
}

static void c14_a_set_that_is_freed_stops_its_waits_and_lets_readers_go(struct store *store)
{
    leasehold_client *holder = open_client(store->url), *waiter = open_client(store->url);
    leasehold_waits *waits = open_waits();
    leasehold_lock *lock = make_lock(waiter, "n"), *free = make_lock(waiter, "free");
    leasehold_lease *held = take_name(holder, "n");
    int descriptor = leasehold_waits_descriptor(waits);
    struct stat before, now;
    CHECK_INT(0, fstat(descriptor, &before));

    pthread_t reader = begin(be_told_for_ever, waits);
    for (uint64_t i = 0; i < 10; i++) start_wait(waits, lock, i);
    EVENTUALLY(count(waiter, LEASEHOLD_COUNTER_BUSY) > 0);
    /* One that comes to a set only after its end is told of a wrong handle. */
    EVENTUALLY(reader_task != 0 && is_asleep(reader_task));
    leasehold_waits_free(waits);
    finish(reader);
    /* Its number may be a connection's by now. */
    EVENTUALLY(fstat(descriptor, &now) != 0 || now.st_ino != before.st_ino);
    give_back(held);
    end_turn((leasehold_turn){take_name(holder, "n"), 0});

    /* With a lease that nobody has taken. */
    waits = open_waits();
    start_wait(waits, free, 1);
    CHECK(readable(waits, LIMIT_MS));
    leasehold_waits_free(waits);
    EVENTUALLY(!is_held(holder, "free"));
    leasehold_lock_free(lock);
    leasehold_lock_free(free);
    leasehold_client_free(holder);
    leasehold_client_free(waiter);
}

static void next_waits_as_long_as_it_is_told(void)
{
    leasehold_waits *waits = open_waits();
    uint64_t id;
    const int64_t spans[] = {0, 1, 150};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        struct stopwatch watch = stopwatch_start();
        EXPECT(LEASEHOLD_TIMEOUT, leasehold_waits_next_within(waits, spans[i], &id, &problem));
        CHECK_AT_LEAST(spans[i], watch);
        CHECK_AT_MOST(spans[i] + 50, watch);
    }
    leasehold_waits_free(waits);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(the_descriptor_is_readable_when_a_wait_has_ended);
    ON_EACH_STORE(hundreds_of_waits_need_no_thread_of_their_own);
    ON_EACH_STORE(a_wait_comes_to_what_a_thread_would_have_been_told);
    ON_EACH_STORE(c10_a_wait_that_is_stopped_leaves_no_lock_behind);
    ON_EACH_STORE(c14_a_set_that_is_freed_stops_its_waits_and_lets_readers_go);
    TEST_IN_TIME(next_waits_as_long_as_it_is_told);
    return runner_report();
}
