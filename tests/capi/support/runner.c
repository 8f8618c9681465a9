#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <leasehold.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "process.h"
#include "server.h"

/* A test that has not ended by then hangs: each wait in it has a shorter limit. */
#define TEST_LIMIT_MS (3 * LIMIT_MS)
/*
 * A machine that lets a pause of 5 ms become this is too busy to judge what came late: a request is
 * several such steps in two processes, one after the other.
 */
#define STALL_US 8000
#define TRIES 20
#define TRYING_US INT64_C(60000000)

static char root[128];
static const char *wanted = "";
static int passed, failed;

/* ---- The machine ------------------------------------------------------------------------------ */

/* Threads that sleep a little again and again: when one comes late, so may any other. */
struct metronome {
    atomic_bool over;
    pthread_t threads[3];
};

static void *beat(void *with)
{
    struct metronome *metronome = with;
    int64_t longest = 0, last = now_us();
    while (!metronome->over) {
        pause_ms(5);
        int64_t now = now_us();
        if (now - last > longest)
            longest = now - last;
        last = now;
    }
    return (void *)(intptr_t)longest;
}

static void metronome_start(struct metronome *metronome)
{
    metronome->over = false;
    for (int i = 0; i < 3; i++) metronome->threads[i] = begin(beat, metronome);
}

static int64_t metronome_longest_gap(struct metronome *metronome)
{
    int64_t longest = 0;
    metronome->over = true;
    for (int i = 0; i < 3; i++) {
        int64_t gap = (intptr_t)finish(metronome->threads[i]);
        if (gap > longest)
            longest = gap;
    }
    return longest;
}

/* ---- One test --------------------------------------------------------------------------------- */

struct test {
    const char *name;
    void (*alone)(void);
    void (*with_store)(struct store *);
    bool on_redis;
};

/* A program that loads the library itself has none of its functions. */
#pragma weak leasehold_handle_count

/* What a test that frees all of its handles leaves: nothing. */
static void check_nothing_is_left(int descriptors)
{
    if (leasehold_handle_count)
        CHECK_INT(0, leasehold_handle_count());
    /* The last thread of a client that was freed ends by itself, a moment later. */
    EVENTUALLY(thread_count() == 1);
    CHECK_INT(descriptors, descriptor_count());
}

static _Noreturn void play(const struct test *test, int reasons)
{
    struct store store = {0};
    end_with_parent();
    alarm(0); /* its runner sees to it */
    tell_failures_to(reasons);
    if (test->with_store && test->on_redis) {
        store.server = server_start(NULL);
        snprintf(store.url, sizeof store.url, "%s", store.server->url);
    } else if (test->with_store) {
        char folder[200];
        new_folder(folder, sizeof folder);
        snprintf(store.url, sizeof store.url, "sqlite://%s/locks.db", folder);
    }
    int descriptors = descriptor_count();
    if (test->with_store)
        test->with_store(&store);
    else
        test->alone();
    check_nothing_is_left(descriptors);
    if (store.server)
        server_end(store.server);
    _exit(0);
}

/* True if it passed; otherwise `reason` says why not. */
static bool attempt(const struct test *test, char *reason, size_t room, int64_t *longest_gap)
{
    int ends[2], status;
    struct metronome metronome;
    CHECK_INT(0, pipe2(ends, O_CLOEXEC | O_NONBLOCK));
    pid_t pid = fork();
    if (pid == 0)
        play(test, ends[1]);
    close(ends[1]);
    metronome_start(&metronome);
    int64_t end = now_us() + TEST_LIMIT_MS * INT64_C(1000);
    bool hung = false;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (!hung && now_us() > end) {
            hung = true;
            kill(pid, SIGKILL);
        }
        pause_ms(1);
    }
    *longest_gap = metronome_longest_gap(&metronome);
    ssize_t length = read(ends[0], reason, room - 1);
    close(ends[0]);
    reason[length > 0 ? length : 0] = 0;
    reason[strcspn(reason, "\n")] = 0;
    if (hung)
        snprintf(reason, room, "it hung");
    else if (WIFSIGNALED(status))
        snprintf(reason, room, "it was ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0 && !reason[0])
        snprintf(reason, room, "it exited with %d", WEXITSTATUS(status));
    return !hung && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void run(const struct test *test, enum judged judged)
{
    char name[200], reason[2048];
    const char *where = test->with_store ? test->on_redis ? " on Redis" : " on a file" : "";
    snprintf(name, sizeof name, "%s%s", test->name, where);
    if (!strstr(name, wanted))
        return;
    int64_t start = now_us();
    for (int tries = 1;; tries++) {
        int64_t gap;
        if (attempt(test, reason, sizeof reason, &gap)) {
            passed++;
            printf("ok %s\n", name);
            return;
        }
        if (judged == ANY_TIME || gap <= STALL_US || tries == TRIES)
            break;
        if (now_us() - start > TRYING_US)
            break;
        printf("# %s: the machine stood still for %d us; once more (%s)\n", name, (int)gap, reason);
    }
    failed++;
    printf("not ok %s: %s\n", name, reason);
}

void run_test(const char *name, void (*test)(void), enum judged judged)
{
    run(&(struct test){.name = name, .alone = test}, judged);
}

void run_on_redis(const char *name, void (*test)(struct store *), enum judged judged)
{
    run(&(struct test){.name = name, .with_store = test, .on_redis = true}, judged);
}

void run_on_file(const char *name, void (*test)(struct store *), enum judged judged)
{
    run(&(struct test){.name = name, .with_store = test}, judged);
}

/* ---- All of them ------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void runner_start(int argc, char **argv)
{
    const char *parent = getenv("TMPDIR");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        wanted = argv[1];
    snprintf(root, sizeof root, "%.100s/leasehold-XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(root))
        FAIL("%s: %s", root, strerror(errno));
    /* The user's own store and URL stay out of the tests. */
    setenv("XDG_STATE_HOME", root, 1);
    setenv("LEASEHOLD_CONF", "/dev/null", 1);
    unsetenv("LEASEHOLD_URL");
}

int runner_report(void)
{
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}

void new_folder(char *path, size_t room)
{
    snprintf(path, room, "%s/XXXXXX", root);
    if (!mkdtemp(path))
        FAIL("%s: %s", path, strerror(errno));
}
