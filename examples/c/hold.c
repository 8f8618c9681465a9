/*
 * The short story: acquire a lock, send its fence to the resource, and release it.
 *
 * `make && ./hold` uses the store that LEASEHOLD_URL names, or else a file of yours.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <leasehold.h>

/* The resource that the lock protects. It remembers the largest fence that it has seen, and rejects a
 * smaller one. A resource needs nothing more. */
struct till {
    uint64_t largest_fence;
    unsigned charged;
};

static bool charge(struct till *till, unsigned amount, uint64_t fence)
{
    if (fence < till->largest_fence)
        return false;
    till->largest_fence = fence;
    till->charged += amount;
    return true;
}

/* Ends the program if a step does not go as the story says. */
static void need(bool so, const char *what, leasehold_error *error)
{
    if (so)
        return;
    fprintf(stderr, "hold: %s: %s\n", what, leasehold_error_message(error));
    leasehold_error_free(error);
    exit(1);
}

int main(void)
{
    leasehold_client *client, *other_client;
    leasehold_lock *stock, *elsewhere;
    leasehold_lease *first, *second;
    leasehold_error *error = NULL;
    leasehold_status status;
    struct till till = {0, 0};

    status = leasehold_client_open_env(&client, &error);
    need(status == LEASEHOLD_OK, "open a client", error);
    printf("The locks are kept in %s.\n", leasehold_client_store(client));

    /* A name of its own for each run; yours would be just "stock:sku-17". */
    char name[64];
    snprintf(name, sizeof name, "stock:sku-17:%ld-%ld", (long)getpid(), (long)time(NULL));
    status = leasehold_client_lock(client, name, LEASEHOLD_NUL, &stock, &error);
    need(status == LEASEHOLD_OK, "make a lock", error);
    leasehold_lock_set_ttl_ms(stock, 10000);

    /* Without waiting for a holder. If another client holds it, that is no error: LEASEHOLD_BUSY. */
    status = leasehold_lock_try_acquire(stock, &first, &error);
    need(status == LEASEHOLD_OK, "take a lock that nobody else knows", error);
    uint64_t old_fence = leasehold_lease_fence(first);
    printf("%s was free and is ours, with fence %" PRIu64 ".\n", name, old_fence);
    printf("For the next %" PRId64 " ms that may be relied on.\n",
           leasehold_lease_remaining_ms(first));
    need(charge(&till, 20, old_fence), "charge with the latest fence", NULL);

    /* Another client, as another process would have it. */
    status = leasehold_client_open_env(&other_client, &error);
    need(status == LEASEHOLD_OK, "open another client", error);
    status = leasehold_client_lock(other_client, name, LEASEHOLD_NUL, &elsewhere, &error);
    need(status == LEASEHOLD_OK, "make a lock for the other client", error);

    status = leasehold_lock_try_acquire(elsewhere, &second, &error);
    need(status == LEASEHOLD_BUSY, "be told that the lock is taken", error);
    printf("Somebody else tries, and is told at once that it is taken.\n");

    leasehold_lock_set_wait_ms(elsewhere, 300);
    status = leasehold_lock_acquire(elsewhere, &second, &error);
    need(status == LEASEHOLD_TIMEOUT, "be told that the wait ran out", error);
    printf("The second one waits for 300 ms, and is told: %s.\n", leasehold_status_message(status));

    /* LEASEHOLD_OK: we held the lock to the end. */
    status = leasehold_lease_release(first, &error);
    need(status == LEASEHOLD_OK, "release what we hold", error);
    leasehold_lease_free(first);

    leasehold_lock_set_wait_ms(elsewhere, 5000);
    status = leasehold_lock_acquire(elsewhere, &second, &error);
    need(status == LEASEHOLD_OK, "take the lock once it is free", error);
    uint64_t new_fence = leasehold_lease_fence(second);
    printf("We give it back; the second one takes it, with the larger fence %" PRIu64 ".\n",
           new_fence);
    need(new_fence > old_fence, "get a larger fence", NULL);
    need(charge(&till, 10, new_fence), "charge with the latest fence", NULL);

    need(!charge(&till, 20, old_fence), "refuse an old fence", NULL);
    need(till.charged == 30, "charge each amount once", NULL);
    printf("A charge of ours that was on its way all the time is refused: %" PRIu64
           " is smaller.\n",
           old_fence);

    /* Freeing releases too, but does not report the outcome. */
    leasehold_lease_free(second);
    leasehold_lock_state *state;
    status = leasehold_lock_inspect(stock, &state, &error);
    need(status == LEASEHOLD_OK, "look who has the lock", error);
    need(!leasehold_lock_state_is_held(state), "find the lock free", NULL);
    leasehold_lock_state_free(state);
    printf("The second lease is freed, and the lock is free.\n");

    leasehold_lock_free(elsewhere);
    leasehold_client_free(other_client);
    leasehold_lock_free(stock);
    leasehold_client_free(client);
    return 0;
}
