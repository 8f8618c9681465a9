/*
 * One leader among the processes that run this: a scheduler that does its steps on one node. If that
 * node stops, another one leads and begins at step 1, with a larger fence.
 *
 * `make && ./leader node-1 100` uses the store that LEASEHOLD_URL names, or else a file of yours. Start
 * it in two shells and stop the one that leads: the other one goes on, with a larger fence.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <leasehold.h>

/* Between two steps. The work wakes before that if its term ends. */
#define STEP_MS 100

struct scheduler {
    const char *node;
    long steps;
};

static volatile sig_atomic_t asked_to_end;

static void end(int signal)
{
    (void)signal;
    asked_to_end = 1;
}

/* Ends the standing. The work asks by itself. */
static int is_over(void *unused)
{
    (void)unused;
    return asked_to_end;
}

static int schedule(void *data, leasehold_term *term)
{
    const struct scheduler *scheduler = data;
    const uint64_t fence = leasehold_term_fence(term);
    long done = 0;

    while (done < scheduler->steps && leasehold_term_leads_after_ms(term, STEP_MS)) {
        if (asked_to_end)
            return 1;
        /* A real step writes with the fence, and the database rejects a smaller one. */
        printf("step %ld, fence %" PRIu64 "\n", ++done, fence);
    }
    return 0;
}

static void report(void *node, uint64_t fence, int32_t end, int32_t loss)
{
    if (end == LEASEHOLD_TERM_LASTS)
        printf("%s leads, fence %" PRIu64 "\n", (const char *)node, fence);
    else
        printf("%s leads no longer: reason %d, loss %d\n", (const char *)node, end, loss);
}

static void need(leasehold_status status, const char *what, leasehold_error *error)
{
    if (status == LEASEHOLD_OK)
        return;
    fprintf(stderr, "leader: %s: %s\n", what, leasehold_error_message(error));
    leasehold_error_free(error);
    exit(1);
}

int main(int argc, char **argv)
{
    char *node = argc > 1 ? argv[1] : "node";
    struct scheduler scheduler = {node, argc > 2 ? atol(argv[2]) : 10};
    leasehold_client *client;
    leasehold_election *election;
    leasehold_error *error = NULL;
    leasehold_status status;
    int returned = 0;

    signal(SIGTERM, end);
    status = leasehold_client_open_env(&client, &error);
    need(status, "open a client", error);
    status = leasehold_client_election(client, "scheduler", LEASEHOLD_NUL, &election, &error);
    need(status, "stand for election", error);
    leasehold_election_set_ttl_ms(election, 15000);
    leasehold_election_on_change(election, report, node, NULL);

    /* Returns when the work has done all steps; after a loss it stands again. */
    status = leasehold_election_run_as_leader(election, schedule, is_over, &scheduler, &returned,
                                              &error);
    if (status != LEASEHOLD_INTERRUPTED)
        need(status, "lead", error);

    leasehold_election_free(election);
    leasehold_client_free(client);
    return 0;
}
