/* Forks within the functions that the library calls. */

#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

/* ---- Within a function to interrupt with ------------------------------------------------------ */

struct asked {
    leasehold_client *client;
    leasehold_lock *lock;
    int answer; /* of the child, which goes on as if nothing had happened */
    bool asked, is_child;
    pid_t pid;
};

static int fork_once(void *with)
{
    struct asked *asked = with;
    if (asked->asked)
        return 1;
    asked->asked = true;
    asked->pid = fork();
    if (asked->pid != 0)
        return 0;
    asked->is_child = true;
    end_with_parent();
    CHECK_STATUS(LEASEHOLD_ERR_FORKED, leasehold_client_ping(asked->client, NULL));
    leasehold_lock_free(asked->lock);
    return asked->answer;
}

/* Other threads of the parent, which wait and give up. */
struct crowd {
    leasehold_lock *lock;
    atomic_bool over;
};

static void *wait_and_give_up(void *with)
{
    struct crowd *crowd = with;
    leasehold_lease *lease;
    while (!crowd->over)
        EXPECT(LEASEHOLD_TIMEOUT,
               leasehold_lock_acquire_within(crowd->lock, 3, NULL, NULL, &lease, &problem));
    return NULL;
}

static void c8_a_child_that_is_forked_during_a_wait_does_not_go_on_waiting(struct store *store)
{
    leasehold_client *holder = open_client(store->url), *client = open_client(store->url);
    leasehold_lease *held = take_name(holder, "n"), *lease = UNTOUCHED;
    leasehold_lock *lock = make_lock(client, "n");
    struct crowd crowd = {lock, false};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = begin(wait_and_give_up, &crowd);
    for (int round = 0; round < 15; round++) {
        struct asked asked = {.client = client, .lock = lock, .answer = round % 2};
        leasehold_status status = leasehold_lock_acquire_within(lock, LEASEHOLD_FOREVER, fork_once,
                                                                &asked, &lease, &problem);
        if (asked.is_child) {
            expect(__FILE__, __LINE__, "acquire", false, LEASEHOLD_ERR_FORKED, status);
            CHECK(lease == UNTOUCHED);
            _exit(0);
        }
        CHECK_INT(0, exit_code_of(asked.pid));
        expect(__FILE__, __LINE__, "acquire", false, LEASEHOLD_INTERRUPTED, status);
    }
    crowd.over = true;
    for (int i = 0; i < 3; i++) finish(threads[i]);
    CHECK(leasehold_lease_is_valid(held));
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(held, &problem));
    give_back(take(lock));
    leasehold_lease_free(held);
    leasehold_lock_free(lock);
    leasehold_client_free(holder);
    leasehold_client_free(client);
}

/* ---- Within the log function ------------------------------------------------------------------ */

struct told {
    const char *url;
    bool on_file;
    leasehold_client *client;
    leasehold_lease *lease;
    atomic_int exit_code;
};

static void use_it_in_a_child(void *with)
{
    struct told *told = with;
    CHECK_INT(0, leasehold_handle_count());
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_lease_extend(told->lease, &problem));
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_client_close(told->client, &problem));
    leasehold_lease_free(told->lease);
    leasehold_client_free(told->client);
    if (!told->on_file) {
        leasehold_client *client = open_client(told->url);
        give_back(take_name(client, "child's own"));
        leasehold_client_free(client);
    }
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    CHECK_INT(0, leasehold_handle_count());
}

static void fork_when_told(void *with, leasehold_log_level level, const char *message)
{
    struct told *told = with;
    (void)level, (void)message;
    told->exit_code = in_fork(use_it_in_a_child, told);
}

static void c8_the_log_function_may_fork(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct told told = {store->url, !store->server, client, take_name_for(client, "n", 3000), -1};
    EXPECT(LEASEHOLD_OK, leasehold_log_set(fork_when_told, &told, LEASEHOLD_LOG_WARN, &problem));
    for (int round = 0; round < 20; round++) {
        /* On the thread in the background, while it looks after leases, */
        told.exit_code = -1;
        leasehold_lease *lost = take_to_lose(client, "lost", 10);
        EVENTUALLY(told.exit_code != -1);
        CHECK_INT(0, told.exit_code);
        leasehold_lease_free(lost);
        /* and on one that calls. */
        told.exit_code = -1;
        leasehold_lock *lock = make_lock(client, "nobody's");
        EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, "0123456789abcdef0123456789abcdef", 32, 1,
                                                   &lost, &problem));
        EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lost, &problem));
        CHECK_INT(0, told.exit_code);
        leasehold_lease_free(lost);
        leasehold_lock_free(lock);
    }
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    uint64_t renewed = count(client, LEASEHOLD_COUNTER_RENEWED);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_RENEWED) > renewed ||
               !leasehold_lease_is_valid(told.lease));
    CHECK(leasehold_lease_is_valid(told.lease));
    give_back(told.lease);
    leasehold_client_free(client);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(c8_a_child_that_is_forked_during_a_wait_does_not_go_on_waiting);
    ON_EACH_STORE(c8_the_log_function_may_fork);
    return runner_report();
}
