/*
 * Loaded, used, closed and unloaded again and again in one process: nothing of the library is left
 * but what it keeps once.
 */

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <leasehold.h>

#include "support/check.h"
#include "support/clock.h"
#include "support/process.h"
#include "support/runner.h"
#include "support/server.h"

/* ---- Counting what is allocated --------------------------------------------------------------- */

static atomic_long blocks;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

static void *counted(void *block)
{
    if (block)
        blocks++;
    return block;
}

void *malloc(size_t size)
{
    return counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return counted(__libc_calloc(count, size));
}

void free(void *block)
{
    if (block)
        blocks--;
    __libc_free(block);
}

void *realloc(void *block, size_t size)
{
    if (!block)
        return malloc(size);
    if (size == 0) {
        free(block);
        return NULL;
    }
    return __libc_realloc(block, size);
}

void *memalign(size_t alignment, size_t size)
{
    return counted(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return counted(__libc_memalign(alignment, size));
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    void *made = counted(__libc_memalign(alignment, size));
    if (!made)
        return 12; /* ENOMEM */
    *block = made;
    return 0;
}

/* ---- The library, by its symbols -------------------------------------------------------------- */

static const char *library;

/* ISO C knows no way from an object pointer to a function. */
static void find(void *handle, const char *name, void *function)
{
    void *found = dlsym(handle, name);
    if (!found)
        FAIL("%s: %s", name, dlerror());
    memcpy(function, &found, sizeof found);
}

#define FUNCTION(type, name, ...)                                                                  \
    type (*name)(__VA_ARGS__);                                                                     \
    find(handle, #name, &name)

static void *load(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        FAIL("%s", dlerror());
    return handle;
}

/* A whole life: one of everything, a lease that is lost, one that is renewed, one left to the end. */
static void use(void *handle, const char *url)
{
    FUNCTION(leasehold_status, leasehold_client_open, const char *, size_t, leasehold_client **,
             leasehold_error **);
    FUNCTION(leasehold_status, leasehold_client_lock, leasehold_client *, const char *, size_t,
             leasehold_lock **, leasehold_error **);
    FUNCTION(leasehold_status, leasehold_client_events, leasehold_client *, leasehold_events **,
             leasehold_error **);
    FUNCTION(leasehold_status, leasehold_lock_set_ttl_ms, leasehold_lock *, int64_t);
    FUNCTION(leasehold_status, leasehold_lock_acquire_within, leasehold_lock *, int64_t,
             leasehold_interrupt_fn, void *, leasehold_lease **, leasehold_error **);
    FUNCTION(leasehold_status, leasehold_lock_inspect, leasehold_lock *, leasehold_lock_state **,
             leasehold_error **);
    FUNCTION(leasehold_status, leasehold_lease_release, leasehold_lease *, leasehold_error **);
    FUNCTION(leasehold_status, leasehold_events_next_within, leasehold_events *, int64_t,
             leasehold_event **, leasehold_error **);
    FUNCTION(void, leasehold_client_free, leasehold_client *);
    FUNCTION(void, leasehold_lock_free, leasehold_lock *);
    FUNCTION(void, leasehold_lease_free, leasehold_lease *);
    FUNCTION(void, leasehold_lock_state_free, leasehold_lock_state *);
    FUNCTION(void, leasehold_events_free, leasehold_events *);
    FUNCTION(void, leasehold_event_free, leasehold_event *);
    FUNCTION(void, leasehold_error_free, leasehold_error *);
    FUNCTION(size_t, leasehold_handle_count, void);

    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *held, *lost;
    leasehold_lock_state *state;
    leasehold_events *events;
    leasehold_event *event;
    leasehold_error *error;
    CHECK_INT(0, leasehold_client_open(url, LEASEHOLD_NUL, &client, NULL));
    CHECK_INT(0, leasehold_client_events(client, &events, NULL));
    CHECK_INT(0, leasehold_client_lock(client, "n", 1, &lock, NULL));
    CHECK_INT(0, leasehold_lock_acquire_within(lock, LIMIT_MS, NULL, NULL, &held, NULL));
    CHECK_INT(LEASEHOLD_TIMEOUT, leasehold_lock_acquire_within(lock, 2, NULL, NULL, &lost, NULL));
    CHECK_INT(0, leasehold_lock_inspect(lock, &state, NULL));
    CHECK_INT(0, leasehold_lease_release(held, NULL));
    CHECK_INT(LEASEHOLD_LOST, leasehold_lease_release(held, &error));
    leasehold_lease_free(held);
    CHECK_INT(0, leasehold_lock_set_ttl_ms(lock, 10));
    CHECK_INT(0, leasehold_lock_acquire_within(lock, LIMIT_MS, NULL, NULL, &lost, NULL));
    CHECK_INT(0, leasehold_events_next_within(events, LIMIT_MS, &event, NULL));
    CHECK_INT(0, leasehold_lock_set_ttl_ms(lock, 30000));
    CHECK_INT(0, leasehold_lock_acquire_within(lock, LIMIT_MS, NULL, NULL, &held, NULL));
    leasehold_client_free(client);
    leasehold_lock_free(lock);
    leasehold_lease_free(held);
    leasehold_lease_free(lost);
    leasehold_lock_state_free(state);
    leasehold_events_free(events);
    leasehold_event_free(event);
    leasehold_error_free(error);
    CHECK_INT(0, leasehold_handle_count());
}

static void one_round(const char *url)
{
    void *handle = load();
    use(handle, url);
    CHECK_INT(0, dlclose(handle));
    /* The thread that a Redis client's pool had ends by itself, a moment after the last handle. */
    EVENTUALLY(thread_count() == 1);
}

/*
 * What the library and glibc keep once, as seen by looking where each block came from:
 *
 *   the hook for panics                                                           1
 *   the witness by which a forked child is known                                  1
 *   for the thread that calls: its copy of the library's thread-local data, what
 *   std tells it by, and what glibc notes of the former's ends                    2 to 4
 *   for each stack that glibc keeps of a thread that ended (two with Redis): its
 *   table of thread-local data, and its copy of the library's                     1 to 4
 *   for the thread that calls, the particulars of its last wait that ran out, and
 *   what std notes of their end                                                   2
 *   the list of the clients of a process, by which a thread that waits for itself
 *   is told from others                                                           3
 *   with Redis, the digest of each script that was used, in two blocks            6
 *   with Redis, the table of parking_lot, which r2d2 uses                         2
 *
 * That makes 23 on Redis and 10 on a file, with glibc 2.36. Another one may keep others; look, then.
 */
#define KEPT_WITH_REDIS 23
#define KEPT_WITH_A_FILE 10

static void nothing_is_left_however_often_it_is_loaded(struct store *store)
{
    int descriptors = descriptor_count();
    load();
    long unused = blocks, after_three = 0;
    for (int round = 1; round <= 100; round++) {
        one_round(store->url);
        CHECK_INT(descriptors, descriptor_count());
        if (round == 3)
            after_three = blocks;
    }
    CHECK_INT(after_three, blocks);
    long kept = blocks - unused, most = store->server ? KEPT_WITH_REDIS : KEPT_WITH_A_FILE;
    if (kept < 0 || kept > most)
        FAIL("%ld blocks are kept; %ld were expected at most", kept, most);
}

int main(int argc, char **argv)
{
    library = getenv("LEASEHOLD_LIBRARY");
    if (!library)
        FAIL("LEASEHOLD_LIBRARY does not say where the library is");
    runner_start(argc, argv);
    ON_EACH_STORE(nothing_is_left_however_often_it_is_loaded);
    return runner_report();
}
