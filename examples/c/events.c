/*
 * Work in a loop that polls, and hear in it when a lease is lost.
 *
 * Two leases are lost: one has been held for as long as its lock allows, and another program releases
 * the other one. `make && ./events` uses the store that LEASEHOLD_URL names, or else a
 * file of yours.
 */
#define _POSIX_C_SOURCE 200809L /* clocks, also for a compiler that is told -std=c11 */

#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <leasehold.h>

/* Ends the program if a step does not go as the comments say. */
static void need(bool so, const char *what, leasehold_error *error)
{
    if (so)
        return;
    fprintf(stderr, "events: %s: %s\n", what, leasehold_error_message(error));
    leasehold_error_free(error);
    exit(1);
}

/* A job works while it holds its lease. */
struct job {
    const char *what;
    char name[64];
    leasehold_lease *lease;
    int lost_because; /* LEASEHOLD_LOSS_NONE while it is not lost */
};

static void start(struct job *job, const char *what, leasehold_client *client, int64_t most_ms)
{
    leasehold_error *error = NULL;
    leasehold_lock *lock;

    memset(job, 0, sizeof *job);
    job->what = what;
    /* A name of its own for each run. */
    snprintf(job->name, sizeof job->name, "%s:%ld-%ld", what, (long)getpid(), (long)time(NULL));
    leasehold_status status =
        leasehold_client_lock(client, job->name, LEASEHOLD_NUL, &lock, &error);
    need(status == LEASEHOLD_OK, "make a lock", error);
    leasehold_lock_set_ttl_ms(lock, 10000);
    leasehold_lock_set_max_hold_ms(lock, most_ms);
    status = leasehold_lock_try_acquire(lock, &job->lease, &error);
    need(status == LEASEHOLD_OK, "take a lock that nobody else knows", error);
    /* The lease does not need it any more. */
    leasehold_lock_free(lock);
    printf("The %s begins, with fence %" PRIu64 ".\n", what, leasehold_lease_fence(job->lease));
}

/* Another process that knows the token, such as a tool that cleans up. */
static void take_away(struct job *job)
{
    leasehold_error *error = NULL;
    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *theirs;

    leasehold_status status = leasehold_client_open_env(&client, &error);
    need(status == LEASEHOLD_OK, "open a client", error);
    status = leasehold_client_lock(client, job->name, LEASEHOLD_NUL, &lock, &error);
    need(status == LEASEHOLD_OK, "make a lock", error);
    status = leasehold_lock_attach(lock, leasehold_lease_token(job->lease), LEASEHOLD_NUL,
                                   leasehold_lease_fence(job->lease), &theirs, &error);
    need(status == LEASEHOLD_OK, "go on with a lease from its token", error);
    status = leasehold_lease_release(theirs, &error);
    need(status == LEASEHOLD_OK, "take the lock away", error);
    leasehold_lease_free(theirs);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    printf("Somebody takes the lock of the %s away.\n", job->what);
}

/* Reads all events. Then the descriptor is no longer readable. */
static void read_events(leasehold_events *events, struct job *jobs, size_t count)
{
    leasehold_error *error = NULL;
    leasehold_event *event;
    leasehold_status status;

    while ((status = leasehold_events_next_within(events, 0, &event, &error)) == LEASEHOLD_OK) {
        /* Name and fence identify the lease. */
        for (size_t i = 0; i < count; i++) {
            struct job *job = &jobs[i];
            if (leasehold_event_fence(event) != leasehold_lease_fence(job->lease) ||
                strcmp(leasehold_event_name(event, NULL), job->name) != 0)
                continue;
            switch (leasehold_event_kind(event)) {
            case LEASEHOLD_EVENT_AT_RISK:
                printf("The %s had better finish: %" PRId64 " ms are left.\n", job->what,
                       leasehold_lease_remaining_ms(job->lease));
                break;
            case LEASEHOLD_EVENT_LOST:
                job->lost_because = leasehold_event_reason(event);
                need(!leasehold_lease_is_valid(job->lease), "have the lease say it itself", NULL);
                printf("The %s has lost its lease.\n", job->what);
                break;
            }
        }
        leasehold_event_free(event);
    }
    need(status == LEASEHOLD_TIMEOUT, "read events", error);
}

/* A release reports that the lease was lost. */
static void stop(struct job *job)
{
    leasehold_error *error = NULL;
    leasehold_status status = leasehold_lease_release(job->lease, &error);

    need(status == LEASEHOLD_LOST, "learn that the lease was over", error);
    printf("The %s asks to release it, and is told: %s\n", job->what,
           leasehold_error_message(error));
    leasehold_error_free(error);
    leasehold_lease_free(job->lease);
}

int main(void)
{
    leasehold_error *error = NULL;
    leasehold_client *client;
    leasehold_events *events;
    struct job jobs[2];
    struct job *report = &jobs[0], *reindex = &jobs[1];

    leasehold_status status = leasehold_client_open_env(&client, &error);
    need(status == LEASEHOLD_OK, "open a client", error);
    printf("The locks are kept in %s.\n", leasehold_client_store(client));
    /* It gets events from now on, so it is made before the leases. */
    status = leasehold_client_events(client, &events, &error);
    need(status == LEASEHOLD_OK, "subscribe to events", error);
    start(report, "report", client, 1500);
    start(reindex, "reindex", client, LEASEHOLD_FOREVER);

    /* The other work of this loop: a step each 200 ms. */
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec each = {{0, 200000000}, {0, 200000000}};
    need(timer >= 0 && timerfd_settime(timer, 0, &each, NULL) == 0, "start a timer", NULL);

    struct pollfd watched[] = {
        {.fd = timer, .events = POLLIN},
        {.fd = leasehold_events_descriptor(events), .events = POLLIN},
    };
    unsigned steps = 0;
    while (!report->lost_because || !reindex->lost_because) {
        need(poll(watched, 2, 5000) > 0, "have something to do within 5 s", NULL);
        if (watched[0].revents) {
            uint64_t ticks;
            need(read(timer, &ticks, sizeof ticks) == sizeof ticks, "read the timer", NULL);
            need(++steps < 50, "lose both leases within 50 steps", NULL);
            printf("Step %u: %" PRId64 " ms for the report, %" PRId64 " ms for the reindex.\n",
                   steps, leasehold_lease_remaining_ms(report->lease),
                   leasehold_lease_remaining_ms(reindex->lease));
            if (steps == 4)
                take_away(reindex);
        }
        if (watched[1].revents)
            read_events(events, jobs, 2);
    }
    need(report->lost_because == LEASEHOLD_LOSS_MAX_HOLD, "see the report end at its limit", NULL);
    need(reindex->lost_because == LEASEHOLD_LOSS_NOT_HELD, "see the reindex taken away", NULL);
    stop(report);
    stop(reindex);

    close(timer);
    leasehold_events_free(events);
    leasehold_client_free(client);
    return 0;
}
