/* One handle in the hands of several threads. */

#include <stdatomic.h>
#include <stdlib.h>

#include "support/support.h"

#define ROUNDS 150

/* What two threads do to one lease at the same moment, and what came of it. */
struct race {
    leasehold_lease *lease;
    pthread_barrier_t start;
    int spin; /* how long the second one lets the first one run */
    leasehold_status first, second;
};

typedef leasehold_status lease_call(leasehold_lease *lease);

static leasehold_status release(leasehold_lease *lease)
{
    return leasehold_lease_release(lease, NULL);
}

static leasehold_status extend(leasehold_lease *lease)
{
    return leasehold_lease_extend(lease, NULL);
}

static leasehold_status let_expire(leasehold_lease *lease)
{
    return leasehold_lease_let_expire_in_ms(lease, 5, NULL);
}

static leasehold_status detach(leasehold_lease *lease)
{
    return leasehold_lease_detach(lease, NULL);
}

static leasehold_status free_it(leasehold_lease *lease)
{
    leasehold_lease_free(lease);
    return LEASEHOLD_OK;
}

static lease_call *first_call, *second_call;

static void *run_first(void *with)
{
    struct race *race = with;
    pthread_barrier_wait(&race->start);
    race->first = first_call(race->lease);
    return NULL;
}

static void *run_second(void *with)
{
    struct race *race = with;
    pthread_barrier_wait(&race->start);
    for (volatile int i = 0; i < race->spin; i++) continue;
    race->second = second_call(race->lease);
    return NULL;
}

static void run_race(struct race *race, leasehold_client *client, int round)
{
    race->lease = take_name(client, "n");
    race->spin = round % 50 * 100;
    CHECK_INT(0, pthread_barrier_init(&race->start, NULL, 2));
    pthread_t one = begin(run_first, race), two = begin(run_second, race);
    finish(one);
    finish(two);
    pthread_barrier_destroy(&race->start);
}

static void *release_there(void *lease)
{
    give_back(lease);
    return NULL;
}

static void a_lease_may_be_released_by_another_thread_than_took_it(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    for (int i = 0; i < 20; i++) finish(begin(release_there, take_name(client, "n")));
    CHECK(!is_held(client, "n"));
    leasehold_client_free(client);
}

static void a_release_that_meets_an_extension_is_the_last_word(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    first_call = release, second_call = extend;
    for (int round = 0; round < ROUNDS; round++) {
        struct race race;
        run_race(&race, client, round);
        CHECK_STATUS(LEASEHOLD_OK, race.first);
        CHECK(race.second == LEASEHOLD_OK || race.second == LEASEHOLD_LOST);
        CHECK(!leasehold_lease_is_valid(race.lease));
        /* Nothing that came later has taken it again. */
        CHECK(!is_held(client, "n"));
        leasehold_lease_free(race.lease);
    }
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_LOST));
    leasehold_client_free(client);
}

static void of_two_releases_at_once_one_finds_it_held(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    first_call = release, second_call = release;
    for (int round = 0; round < ROUNDS; round++) {
        struct race race;
        run_race(&race, client, round);
        CHECK_INT(LEASEHOLD_OK + LEASEHOLD_LOST, race.first + race.second);
        CHECK(race.first == LEASEHOLD_OK || race.second == LEASEHOLD_OK);
        leasehold_lease_free(race.lease);
    }
    leasehold_client_free(client);
}

static void one_of_two_different_ends_comes_first(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    lease_call *others[] = {let_expire, detach};
    for (int i = 0; i < 2; i++) {
        first_call = release, second_call = others[i];
        for (int round = 0; round < ROUNDS / 3; round++) {
            struct race race;
            run_race(&race, client, round);
            CHECK_INT(LEASEHOLD_OK + LEASEHOLD_LOST, race.first + race.second);
            if (race.second == LEASEHOLD_OK && i == 1) {
                CHECK(is_held(client, "n"));
                leasehold_lock *lock = make_lock(client, "n");
                leasehold_lease *again;
                EXPECT(LEASEHOLD_OK,
                       leasehold_lock_attach(lock, leasehold_lease_token(race.lease), 32,
                                             leasehold_lease_fence(race.lease), &again, &problem));
                give_back(again);
                leasehold_lock_free(lock);
            }
            EVENTUALLY(!is_held(client, "n"));
            leasehold_lease_free(race.lease);
        }
    }
    leasehold_client_free(client);
}

static void freeing_a_lease_that_another_thread_uses_releases_it(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    lease_call *others[] = {extend, release};
    for (int i = 0; i < 2; i++) {
        first_call = free_it, second_call = others[i];
        for (int round = 0; round < ROUNDS / 2; round++) {
            struct race race;
            run_race(&race, client, round);
            if (race.second != LEASEHOLD_OK && race.second != LEASEHOLD_LOST)
                CHECK_STATUS(LEASEHOLD_ERR_HANDLE, race.second);
            CHECK(!is_held(client, "n"));
            CHECK_STATUS(LEASEHOLD_ERR_HANDLE, release(race.lease));
        }
    }
    leasehold_client_free(client);
}

/* ---- Locks ------------------------------------------------------------------------------------ */

struct shared {
    leasehold_client *client;
    leasehold_lock *lock;
    atomic_bool over;
    atomic_int turns, inside;
};

static void *take_turns(void *with)
{
    struct shared *shared = with;
    while (!shared->over) {
        leasehold_lease *lease = take(shared->lock);
        CHECK_INT(0, shared->inside++);
        shared->inside--;
        give_back(lease);
        shared->turns++;
    }
    return NULL;
}

/* Options that all suit. */
static void *set_on_and_on(void *with)
{
    struct shared *shared = with;
    for (int i = 0; !shared->over; i++) {
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(shared->lock, 20000 + i % 7));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(shared->lock, LIMIT_MS + i % 7));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(shared->lock, i % 2));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_max_hold_ms(shared->lock, 30000));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_mode(shared->lock, i % 2));
    }
    return NULL;
}

static void one_lock_may_be_used_and_changed_by_many_threads(struct store *store)
{
    struct shared shared = {.client = open_client(store->url)};
    pthread_t threads[5];
    shared.lock = make_lock(shared.client, "n");
    for (int i = 0; i < 5; i++) threads[i] = begin(i < 3 ? take_turns : set_on_and_on, &shared);
    EVENTUALLY(shared.turns >= 100);
    shared.over = true;
    for (int i = 0; i < 5; i++) finish(threads[i]);
    leasehold_lock_free(shared.lock);
    leasehold_client_free(shared.client);
}

/* Until the lock is gone: whatever was taken is given back. */
static void *take_until_freed(void *with)
{
    struct shared *shared = with;
    leasehold_lease *lease;
    for (;;) {
        leasehold_status status = leasehold_lock_acquire(shared->lock, &lease, NULL);
        if (status == LEASEHOLD_ERR_HANDLE || status == LEASEHOLD_ERR_CLOSED)
            return NULL;
        CHECK_STATUS(LEASEHOLD_OK, status);
        /* Closing the client may have been faster. */
        status = leasehold_lease_release(lease, NULL);
        CHECK(status == LEASEHOLD_OK || status == LEASEHOLD_ERR_CLOSED);
        leasehold_lease_free(lease);
        shared->turns++;
    }
}

static void a_lock_may_be_freed_while_others_take_it(struct store *store)
{
    struct shared shared = {.client = open_client(store->url)};
    for (int round = 0; round < 20; round++) {
        pthread_t threads[3];
        shared.lock = make_lock(shared.client, "n");
        shared.turns = 0;
        for (int i = 0; i < 3; i++) threads[i] = begin(take_until_freed, &shared);
        EVENTUALLY(shared.turns > round % 5);
        leasehold_lock_free(shared.lock);
        for (int i = 0; i < 3; i++) finish(threads[i]);
    }
    CHECK(!is_held(shared.client, "n"));
    leasehold_client_free(shared.client);
}

static void a_client_may_be_freed_while_others_use_it(struct store *store)
{
    leasehold_client *onlooker = open_client(store->url);
    for (int round = 0; round < 20; round++) {
        struct shared shared = {.client = open_client(store->url)};
        pthread_t threads[3];
        shared.lock = make_lock(shared.client, "n");
        for (int i = 0; i < 3; i++) threads[i] = begin(take_until_freed, &shared);
        EVENTUALLY(shared.turns > round % 5);
        leasehold_client_free(shared.client);
        for (int i = 0; i < 3; i++) finish(threads[i]);
        leasehold_lock_free(shared.lock);
        EVENTUALLY(!is_held(onlooker, "n"));
    }
    leasehold_client_free(onlooker);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(a_lease_may_be_released_by_another_thread_than_took_it);
    ON_EACH_STORE(a_release_that_meets_an_extension_is_the_last_word);
    ON_EACH_STORE(of_two_releases_at_once_one_finds_it_held);
    ON_EACH_STORE(one_of_two_different_ends_comes_first);
    ON_EACH_STORE(freeing_a_lease_that_another_thread_uses_releases_it);
    ON_EACH_STORE(one_lock_may_be_used_and_changed_by_many_threads);
    ON_EACH_STORE(a_lock_may_be_freed_while_others_take_it);
    ON_EACH_STORE(a_client_may_be_freed_while_others_use_it);
    return runner_report();
}
