/*
 * What it costs to cross from C into the library, in calls that ask no store: nanoseconds, medians
 * of short blocks that take turns.
 *
 * usage: crossing [ROW]
 *
 * With the number of a row it runs a single block of that one, for a tool that counts instructions:
 * valgrind --tool=callgrind --toggle-collect='block*' ./crossing 3
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <leasehold.h>

#define CALLS 1000
#define BLOCKS 501

#define NAME "stock:sku-17"
#define TOKEN "0123456789abcdef0123456789abcdef"

static leasehold_client *client;
static leasehold_config *config;
static leasehold_lock *lock;
static leasehold_lease *lease;

/* ---- what is called --------------------------------------------------------------------------- */

static bool nothing(void)
{
    return leasehold_abi_version() == LEASEHOLD_ABI_VERSION;
}

static bool boundary(void)
{
    return leasehold_status_is_retriable(LEASEHOLD_ERR_UNAVAILABLE);
}

static bool fence(void)
{
    return leasehold_lease_fence(lease) == 7;
}

static bool is_valid(void)
{
    return !leasehold_lease_is_valid(lease);
}

static bool one_string(void)
{
    int64_t ms;

    return leasehold_duration_parse("10s", 3, &ms, NULL) == LEASEHOLD_OK;
}

static bool one_string_kept(void)
{
    return leasehold_config_set_prefix(config, NAME, sizeof NAME - 1) == LEASEHOLD_OK;
}

static bool new_lock(void)
{
    leasehold_lock *made;

    if (leasehold_client_lock(client, NAME, sizeof NAME - 1, &made, NULL) != LEASEHOLD_OK)
        return false;
    leasehold_lock_free(made);
    return true;
}

/* Detached, as freeing a lease that is held would ask the store. */
static bool new_lease(void)
{
    leasehold_lease *made;

    if (leasehold_lock_attach(lock, TOKEN, sizeof TOKEN - 1, 7, &made, NULL) != LEASEHOLD_OK)
        return false;
    leasehold_lease_abandon(made);
    leasehold_lease_free(made);
    return true;
}

/* Two byte strings go in, a name and a token. */
static bool new_lock_and_lease(void)
{
    leasehold_lock *made;
    leasehold_lease *taken;

    if (leasehold_client_lock(client, NAME, sizeof NAME - 1, &made, NULL) != LEASEHOLD_OK)
        return false;
    if (leasehold_lock_attach(made, TOKEN, sizeof TOKEN - 1, 7, &taken, NULL) != LEASEHOLD_OK)
        return false;
    leasehold_lease_abandon(taken);
    leasehold_lease_free(taken);
    leasehold_lock_free(made);
    return true;
}

static bool refused(void)
{
    leasehold_lock *made;
    leasehold_error *error;

    leasehold_client_lock(NULL, NAME, sizeof NAME - 1, &made, &error);
    leasehold_error_free(error);
    return true;
}

/* ---- how long it takes ------------------------------------------------------------------------ */

static const struct row {
    const char *what;
    int crossings;
    bool (*run)(void);
} rows[] = {
    {"nothing: abi_version", 1, nothing},
#define BOUNDARY 1
    {"the boundary: status_is_retriable", 1, boundary},
#define HANDLE 2
    {"a handle: lease_fence", 1, fence},
    {"a handle and the clock: lease_is_valid", 1, is_valid},
#define STRING 4
    {"a byte string: duration_parse", 1, one_string},
    {"a handle and a byte string that is kept: config_set_prefix", 1, one_string_kept},
    {"a wrong handle, and the error for it", 2, refused},
    {"a lock of a name, and free", 2, new_lock},
    {"a lease of a token, and abandon", 3, new_lease},
    {"a lock of a name, a lease of a token, and all of that ended", 5, new_lock_and_lease},
};
#define ROWS (int)(sizeof rows / sizeof *rows)

static void need(bool so, const char *what)
{
    if (so)
        return;
    fprintf(stderr, "crossing: this does not work: %s\n", what);
    exit(1);
}

/* Nanoseconds for each of CALLS. */
static __attribute__((noinline)) double block(const struct row *row)
{
    struct timespec before, after;
    bool worked = true;

    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int i = 0; i < CALLS; i++) worked &= row->run();
    clock_gettime(CLOCK_MONOTONIC, &after);
    need(worked, row->what);
    return ((double)(after.tv_sec - before.tv_sec) * 1e9 +
            (double)(after.tv_nsec - before.tv_nsec)) /
           CALLS;
}

static int by_size(const void *left, const void *right)
{
    const double *l = left, *r = right;

    return (*l > *r) - (*l < *r);
}

static void measure_all(void)
{
    static double samples[ROWS][BLOCKS];
    double medians[ROWS];

    for (int turn = 0; turn < BLOCKS; turn++)
        for (int row = 0; row < ROWS; row++) samples[row][turn] = block(&rows[row]);
    printf("%-62s%10s%12s\n", "", "ns", "a crossing");
    for (int row = 0; row < ROWS; row++) {
        qsort(samples[row], BLOCKS, sizeof **samples, by_size);
        medians[row] = samples[row][BLOCKS / 2];
        printf("%-62s%10.1f%12.1f\n", rows[row].what, medians[row],
               medians[row] / rows[row].crossings);
    }
    /* No function takes just that. Parsing the durations is in it, so it costs less than this. */
    const double two = medians[HANDLE] + 2 * (medians[STRING] - medians[BOUNDARY]);
    printf("\nat most for a handle and two byte strings, by the rows above: %.1f ns\n", two);
}

int main(int count, char **arguments)
{
    leasehold_status status;

    /* No store is asked, so that there need not be one. */
    status = leasehold_config_from_url("redis://127.0.0.1", LEASEHOLD_NUL, &config, NULL);
    need(status == LEASEHOLD_OK, "read a URL");
    status = leasehold_client_open("redis://127.0.0.1", LEASEHOLD_NUL, &client, NULL);
    need(status == LEASEHOLD_OK, "open a client");
    status = leasehold_client_lock(client, NAME, LEASEHOLD_NUL, &lock, NULL);
    need(status == LEASEHOLD_OK, "make a lock");
    status = leasehold_lock_attach(lock, TOKEN, LEASEHOLD_NUL, 7, &lease, NULL);
    need(status == LEASEHOLD_OK, "make a lease");
    if (count > 1 && atoi(arguments[1]) >= 0 && atoi(arguments[1]) < ROWS)
        block(&rows[atoi(arguments[1])]);
    else
        measure_all();
    leasehold_lease_abandon(lease);
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_config_free(config);
    return 0;
}
