/*
 * Fenced cycles from C, for `cargo bench -- cycle --also c=benches/c/cycle`: that runs them in turn with its own
 * cycle and with the bare limit.
 *
 * usage: cycle NAME, with LEASEHOLD_URL in the environment
 *
 * Reads lines. For each number it takes the lock and gives it back so many times, and writes one
 * line with what each of them took, in nanoseconds. Ends at the end of its input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <leasehold.h>

static _Noreturn void die(const char *what, leasehold_error *error)
{
    fprintf(stderr, "cycle: %s: %s\n", what, leasehold_error_message(error));
    exit(1);
}

static long long now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* What a program does: it takes the lock, hands the fence to the resource, and gives it back. */
static void cycle(leasehold_lock *lock)
{
    leasehold_error *error = NULL;
    leasehold_lease *lease;

    if (leasehold_lock_try_acquire(lock, &lease, &error) != LEASEHOLD_OK)
        die("take the lock, which nobody else knows of", error);
    if (leasehold_lease_fence(lease) == 0)
        die("have a fence", NULL);
    if (leasehold_lease_release(lease, &error) != LEASEHOLD_OK)
        die("give the lock back", error);
    leasehold_lease_free(lease);
}

int main(int count, char **arguments)
{
    leasehold_error *error = NULL;
    leasehold_client *client;
    leasehold_lock *lock;
    char line[32];

    if (count != 2) {
        fprintf(stderr, "usage: cycle NAME\n");
        return 64;
    }
    if (leasehold_client_open_env(&client, &error) != LEASEHOLD_OK)
        die("open the store", error);
    if (leasehold_client_lock(client, arguments[1], LEASEHOLD_NUL, &lock, &error) != LEASEHOLD_OK)
        die("make the lock", error);
    while (fgets(line, sizeof line, stdin) != NULL) {
        for (long left = atol(line); left > 0; left--) {
            const long long before = now();

            cycle(lock);
            printf("%lld ", now() - before);
        }
        putchar('\n');
        fflush(stdout);
    }
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    return 0;
}
