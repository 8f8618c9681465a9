/* Forks while SQLite waits for a disk that is slow. */

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/support.h"

static atomic_int slow_ms;
static atomic_bool in_write;

/*
 * SQLite calls one of them, while it has the file locked. (The sync comes behind that, and keeps no fork
 * waiting.) The linker puts them in the place of the C library's for all of this process. The first write
 * of a transaction is slow.
 */
ssize_t pwrite(int file, const void *bytes, size_t count, off_t at)
{
    if (slow_ms > 0 && !atomic_exchange(&in_write, true))
        pause_ms(slow_ms);
    return syscall(SYS_pwrite64, file, bytes, count, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at)
{
    return pwrite(file, bytes, count, at);
}

struct both {
    leasehold_lock *mine, *of_child;
};

static void *take_slowly(void *with)
{
    give_back(take(((struct both *)with)->mine));
    return NULL;
}

static void child_that_goes_on(void *with)
{
    slow_ms = 0;
    give_back(take(((struct both *)with)->of_child));
}

static void child_that_is_refused(void *with)
{
    leasehold_lease *lease;
    slow_ms = 0;
    EXPECT(LEASEHOLD_ERR_STORAGE,
           leasehold_lock_try_acquire(((struct both *)with)->of_child, &lease, &problem));
}

/* Says how long it took. */
static int64_t fork_during_a_write(struct both *both, int ms, void (*child)(void *))
{
    slow_ms = ms;
    in_write = false;
    pthread_t taker = begin(take_slowly, both);
    EVENTUALLY(in_write);
    int64_t start = now_us();
    CHECK_INT(0, in_fork(child, both));
    int64_t took = (now_us() - start) / 1000;
    slow_ms = 0;
    finish(taker);
    return took;
}

static void c8_a_fork_waits_for_a_slow_disk_and_not_for_ever(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    EXPECT(LEASEHOLD_OK, leasehold_client_reopen_after_fork(client, &problem));
    struct both both = {make_lock(client, "n"), make_lock(client, "m")};
    take_slowly(&both);
    fork_during_a_write(&both, 300, child_that_goes_on);
    int64_t took = fork_during_a_write(&both, 8000, child_that_is_refused);
    CHECK(took >= 1900 && took < 7000);
    /* Another child is whole. */
    CHECK_INT(0, in_fork(child_that_goes_on, &both));
    leasehold_lock_free(both.mine);
    leasehold_lock_free(both.of_child);
    leasehold_client_free(client);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_FILE(c8_a_fork_waits_for_a_slow_disk_and_not_for_ever);
    return runner_report();
}
