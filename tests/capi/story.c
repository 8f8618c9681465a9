/* The short story that the header begins with, and what each of its outcomes means. */

#include <stdio.h>
#include <string.h>

#include "support/support.h"

/* A resource that sees to it that only the latest holder writes. */
struct orders {
    uint64_t latest_fence;
    int charged, rejected, refused;
};

static void charge(struct orders *orders, uint64_t fence)
{
    if (fence < orders->latest_fence) {
        orders->refused++;
        return;
    }
    orders->latest_fence = fence;
    orders->charged++;
}

/* As it stands in the header, but for the exit. */
static void sell(struct store *store, struct orders *orders)
{
    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *lease;
    leasehold_error *error = NULL;

    if (leasehold_client_open(store->url, LEASEHOLD_NUL, &client, &error) < 0 ||
        leasehold_client_lock(client, "stock:sku-17", LEASEHOLD_NUL, &lock, &error) < 0)
        FAIL("%s", leasehold_error_message(error));
    leasehold_lock_set_ttl_ms(lock, 10000);
    switch (leasehold_lock_try_acquire(lock, &lease, &error)) {
    case LEASEHOLD_OK:
        charge(orders, leasehold_lease_fence(lease));
        if (leasehold_lease_release(lease, &error) != LEASEHOLD_OK)
            FAIL("%s", leasehold_error_message(error));
        leasehold_lease_free(lease);
        break;
    case LEASEHOLD_BUSY:
        orders->rejected++;
        break;
    default:
        FAIL("%s", leasehold_error_message(error));
    }
    leasehold_error_free(error);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void the_story_of_the_header(struct store *store)
{
    struct orders orders = {0};
    sell(store, &orders);
    sell(store, &orders);
    CHECK_INT(2, orders.charged);

    leasehold_client *other = open_client(store->url);
    leasehold_lease *theirs = take_name(other, "stock:sku-17");
    sell(store, &orders);
    CHECK_INT(1, orders.rejected);
    give_back(theirs);
    sell(store, &orders);
    CHECK_INT(3, orders.charged);
    CHECK_INT(0, orders.refused);
    leasehold_client_free(other);
}

static void c2_the_fence_grows_from_turn_to_turn_and_a_late_write_is_refused(struct store *store)
{
    struct orders orders = {0};
    leasehold_client *clients[2] = {open_client(store->url), open_client(store->url)};
    uint64_t before = 0;
    for (int turn = 0; turn < 20; turn++) {
        leasehold_lease *lease = take_name(clients[turn % 2], "n");
        uint64_t fence = leasehold_lease_fence(lease);
        CHECK(fence > before && fence < UINT64_C(1) << 53);
        charge(&orders, fence);
        give_back(lease);
        charge(&orders, before);
        before = fence;
    }
    CHECK_INT(20, orders.charged);
    CHECK_INT(20, orders.refused);
    leasehold_client_free(clients[0]);
    leasehold_client_free(clients[1]);
}

static void c1_nobody_else_gets_a_lock_that_is_held(struct store *store)
{
    leasehold_client *one = open_client(store->url), *two = open_client(store->url);
    leasehold_lock *lock = make_lock(two, "n");
    leasehold_lease *held = take_name(one, "n"), *lease = UNTOUCHED;
    for (int i = 0; i < 5; i++)
        EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(lock, &lease, &problem));
    /* Nor does who has it. */
    leasehold_lock *own = make_lock(one, "n");
    EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(own, &lease, &problem));
    CHECK(lease == UNTOUCHED && leasehold_lease_is_valid(held));
    CHECK_INT(5, count(two, LEASEHOLD_COUNTER_BUSY));
    give_back(held);
    EXPECT(LEASEHOLD_OK, leasehold_lock_try_acquire(lock, &lease, &problem));
    give_back(lease);
    leasehold_lock_free(own);
    leasehold_lock_free(lock);
    leasehold_client_free(one);
    leasehold_client_free(two);
}

static void c5_a_release_tells_whether_the_lease_was_held_to_the_end(struct store *store)
{
    leasehold_client *client = open_client(store->url), *other = open_client(store->url);
    leasehold_lease *lease = take_name(client, "n");
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(lease, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));

    /* The second one has not touched the lease of the next holder. */
    leasehold_lease *theirs = take_name(other, "n");
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    leasehold_lease_free(lease);
    CHECK_INT(leasehold_lease_fence(theirs), holder_fence(client, "n"));
    give_back(theirs);

    /* One that ran out. */
    leasehold_lease *late = take_to_lose(client, "late", 30);
    /* In the store, too: that is a little later, by what clocks may drift. */
    EVENTUALLY(!leasehold_lease_is_valid(late) && holder_fence(client, "late") == 0);
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(late, &problem));
    leasehold_lease_free(late);
    leasehold_client_free(client);
    leasehold_client_free(other);
}

static void c5_a_lease_whose_key_was_deleted_is_not_held(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lease *released = take_name(client, "a"), *extended = take_name(client, "b");
    CHECK_TEXT("2", server_ask(store->server, "DEL a b"));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(released, &problem));
    CHECK(leasehold_lease_is_valid(extended));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(extended, &problem));
    CHECK(!leasehold_lease_is_valid(extended));
    CHECK_INT(0, leasehold_lease_remaining_ms(extended));
    leasehold_lease_free(released);
    leasehold_lease_free(extended);
    leasehold_client_free(client);
}

static void freeing_a_lease_releases_it(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    for (int i = 0; i < 10; i++) {
        leasehold_lease *lease = take_name(client, "n");
        CHECK(is_held(client, "n"));
        leasehold_lease_free(lease);
        CHECK(!is_held(client, "n"));
    }
    CHECK_INT(10, count(client, LEASEHOLD_COUNTER_GRANTED));
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_RELEASED_LATE));
    leasehold_client_free(client);
}

/* One turn after the other, from many threads and clients: no write is lost. */
struct counter {
    const char *url;
    long value; /* not atomic: the lock is what keeps it whole */
};

static void *add_many(void *with)
{
    struct counter *counter = with;
    leasehold_client *client = open_client(counter->url);
    leasehold_lock *lock = make_lock(client, "n");
    for (int i = 0; i < 40; i++) {
        leasehold_lease *lease = take(lock);
        long value = *(volatile long *)&counter->value;
        sched_yield();
        *(volatile long *)&counter->value = value + 1;
        give_back(lease);
    }
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    return NULL;
}

static void c1_turns_of_many_threads_do_not_overlap(struct store *store)
{
    struct counter counter = {store->url, 0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = begin(add_many, &counter);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    CHECK_INT(160, counter.value);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(the_story_of_the_header);
    ON_EACH_STORE(c1_nobody_else_gets_a_lock_that_is_held);
    ON_EACH_STORE(c1_turns_of_many_threads_do_not_overlap);
    ON_EACH_STORE(c2_the_fence_grows_from_turn_to_turn_and_a_late_write_is_refused);
    ON_EACH_STORE(c5_a_release_tells_whether_the_lease_was_held_to_the_end);
    ON_REDIS(c5_a_lease_whose_key_was_deleted_is_not_held);
    ON_EACH_STORE(freeing_a_lease_releases_it);
    return runner_report();
}
