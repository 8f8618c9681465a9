/* A plain program, run under valgrind: no error, and nothing that is lost. */

#include <string.h>

#include "support/support.h"

static void *wait_and_release(void *lock)
{
    give_back(take(lock));
    return NULL;
}

static void *read_an_event(void *events)
{
    leasehold_event_free(next_event(events));
    return NULL;
}

static int stop(void *times)
{
    return ++*(int *)times == 2;
}

static void hear(void *with, leasehold_log_level level, const char *message)
{
    (void)level;
    *(size_t *)with += strlen(message);
}

static void turns(leasehold_client *client)
{
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *lease, *second;
    int asked = 0;
    EXPECT(LEASEHOLD_OK, leasehold_lock_try_acquire(lock, &lease, &problem));
    EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(lock, &second, &problem));
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_within(lock, 5, NULL, NULL, &second, &problem));
    EXPECT(LEASEHOLD_INTERRUPTED,
           leasehold_lock_acquire_unless(lock, stop, &asked, &second, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend(lease, &problem));
    pthread_t waiter = begin(wait_and_release, lock);
    CHECK(strlen(leasehold_lease_token(lease)) == 32 && is_held(client, "n"));
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(lease, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    finish(waiter);
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
}

static void losses(leasehold_client *client)
{
    leasehold_events *events = subscribe(client);
    leasehold_lease *lost = take_to_lose(client, "lost", 300);
    pthread_t reader = begin(read_an_event, events);
    finish(reader);
    leasehold_events_free(events);
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lost, &problem));
    leasehold_lease_free(lost);
}

static void a_plain_program(struct store *store)
{
    leasehold_client *client = open_client(store->url), *wrong;
    size_t logged = 0;
    EXPECT(LEASEHOLD_OK, leasehold_log_set(hear, &logged, LEASEHOLD_LOG_TRACE, &problem));
    turns(client);
    losses(client);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_client_open("redis://:99999", LEASEHOLD_NUL, &wrong, &problem));
    leasehold_lease *held = take_name(client, "held"), *freed = take_name(client, "freed");
    leasehold_lease_free(freed);
    CHECK(count(client, LEASEHOLD_COUNTER_LOST) == 1);
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    leasehold_lease_free(held);
    leasehold_client_free(client);
    leasehold_client_free(client);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(a_plain_program);
    return runner_report();
}
