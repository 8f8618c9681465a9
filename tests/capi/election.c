/* Leader election: who leads, what the work is told, and what ends it. */

#include <stdatomic.h>
#include <string.h>

#include "support/support.h"

/* Of a lease that stays held on a busy machine. */
#define TTL_MS 6000

static leasehold_election *candidate(leasehold_client *client, const char *name)
{
    leasehold_election *election;
    EXPECT(LEASEHOLD_OK,
           leasehold_client_election(client, name, LEASEHOLD_NUL, &election, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_election_set_ttl_ms(election, TTL_MS));
    return election;
}

static leasehold_term *elected(leasehold_election *election)
{
    leasehold_term *term;
    EXPECT(LEASEHOLD_OK,
           leasehold_election_stand_within(election, LIMIT_MS, NULL, NULL, &term, &problem));
    CHECK(leasehold_term_is_leader(term));
    return term;
}

/* Work that goes on until its term ends or a test says so. */
struct worker {
    leasehold_election *election;
    atomic_int terms, working, go_on, ends_itself;
    int result, returned;
    leasehold_status status;
    atomic_ullong fence;
    int last_end, last_loss;
    atomic_int elected, ended, dropped;
    /* Work that does not ask whether it still leads. */
    bool is_deaf;
};

static int work(void *data, leasehold_term *term)
{
    struct worker *worker = data;
    worker->fence = leasehold_term_fence(term);
    CHECK_INT(leasehold_election_fence(worker->election), worker->fence);
    /* From here on the test may end the term. */
    worker->terms++;
    worker->working = 1;
    while (worker->is_deaf ? !worker->go_on : leasehold_term_leads_after_ms(term, 10))
        if (worker->ends_itself)
            break;
        else if (worker->is_deaf)
            pause_ms(1);
    worker->last_end = leasehold_term_end_reason(term);
    worker->last_loss = leasehold_term_loss(term);
    worker->working = 0;
    return worker->ends_itself ? worker->result : 0;
}

static void *run(void *data)
{
    struct worker *worker = data;
    leasehold_error *error = NULL;
    worker->status = leasehold_election_run_as_leader(worker->election, work, NULL, worker,
                                                      &worker->returned, &error);
    leasehold_error_free(error);
    return NULL;
}

static void told(void *data, uint64_t fence, int32_t end, int32_t loss)
{
    struct worker *worker = data;
    (void)loss;
    if (end == LEASEHOLD_TERM_LASTS) {
        CHECK_INT(0, worker->working);
        CHECK(fence > worker->fence);
        worker->elected++;
    } else {
        worker->ended++;
    }
}

static void drop(void *data)
{
    struct worker *worker = data;
    worker->dropped++;
}

static void c1_c2_one_leads_and_another_one_follows_with_a_larger_fence(struct store *store)
{
    leasehold_client *first = open_client(store->url), *second = open_client(store->url);
    struct worker one = {.election = candidate(first, "n")},
                  two = {.election = candidate(second, "n")};
    pthread_t thread = begin(run, &one);
    EVENTUALLY(one.working);
    pthread_t other = begin(run, &two);
    EVENTUALLY(leasehold_election_state(two.election) == LEASEHOLD_ELECTION_STANDBY);
    CHECK_INT(LEASEHOLD_ELECTION_LEADING, leasehold_election_state(one.election));
    CHECK(leasehold_election_is_healthy(one.election));
    CHECK(leasehold_election_is_healthy(two.election));
    CHECK_INT(0, leasehold_election_fence(two.election));
    leasehold_lock_state *leader;
    EXPECT(LEASEHOLD_OK, leasehold_election_leader(two.election, &leader, &problem));
    CHECK(leasehold_lock_state_is_held(leader));
    CHECK_INT(one.fence, leasehold_lock_state_fence(leader));
    leasehold_lock_state_free(leader);

    EXPECT(LEASEHOLD_OK, leasehold_election_resign(one.election, &problem));
    EVENTUALLY(two.working);
    CHECK(two.fence > one.fence);
    CHECK_INT(LEASEHOLD_TERM_RESIGNED, one.last_end);
    CHECK_INT(LEASEHOLD_LOSS_NONE, one.last_loss);
    EXPECT(LEASEHOLD_OK, leasehold_election_stop(one.election, &problem));
    finish(thread);
    EXPECT(LEASEHOLD_OK, leasehold_election_stop(two.election, &problem));
    finish(other);
    CHECK_INT(LEASEHOLD_OK, one.status);
    CHECK_INT(LEASEHOLD_OK, two.status);
    CHECK_INT(1, one.terms);
    CHECK(!is_held(first, "n"));
    CHECK_INT(LEASEHOLD_ELECTION_IDLE, leasehold_election_state(two.election));
    leasehold_election_free(one.election);
    leasehold_election_free(two.election);
    leasehold_client_free(first);
    leasehold_client_free(second);
}

static void c2_c14_work_that_ends_by_itself_ends_the_call(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    const int results[] = {0, 7, -1};
    for (int i = 0; i < 3; i++) {
        struct worker worker = {
            .election = candidate(client, "n"), .ends_itself = 1, .result = results[i]};
        worker.returned = 99;
        run(&worker);
        CHECK_INT(LEASEHOLD_OK, worker.status);
        CHECK_INT(results[i], worker.returned);
        CHECK_INT(1, worker.terms);
        CHECK(!is_held(client, "n"));
        leasehold_election_free(worker.election);
    }
    struct worker again = {.election = candidate(client, "n"), .ends_itself = 1};
    CHECK_STATUS(LEASEHOLD_OK, leasehold_election_set_stand_again(again.election, true));
    pthread_t thread = begin(run, &again);
    EVENTUALLY(again.terms == 2);
    leasehold_election_free(again.election);
    finish(thread);
    CHECK_INT(LEASEHOLD_OK, again.status);
    leasehold_client_free(client);
}

static void c9_a_leader_whose_lock_was_broken_stops_and_stands_again(struct store *store)
{
    leasehold_client *client = open_client(store->url), *operator = open_client(store->url);
    struct worker worker = {.election = candidate(client, "n")};
    CHECK_STATUS(LEASEHOLD_OK, leasehold_election_on_change(worker.election, told, &worker, drop));
    pthread_t thread = begin(run, &worker);
    EVENTUALLY(worker.working);
    const uint64_t fence = worker.fence;
    leasehold_lock *lock = make_lock(operator, "n");
    uint64_t broken = 0;
    EXPECT(LEASEHOLD_OK, leasehold_lock_break(lock, fence, "op", LEASEHOLD_NUL, &broken, &problem));
    EVENTUALLY(worker.terms == 2);
    CHECK(worker.fence > fence);
    CHECK_INT(2, worker.elected);
    EVENTUALLY(worker.ended == 1);
    leasehold_election_free(worker.election);
    finish(thread);
    CHECK_INT(LEASEHOLD_OK, worker.status);
    CHECK_INT(LEASEHOLD_TERM_RESIGNED, worker.last_end);
    EVENTUALLY(worker.dropped == 1);
    CHECK_INT(2, worker.ended);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(operator);
}

static void c9_a_term_says_how_its_lease_was_lost(struct store *store)
{
    leasehold_client *client = open_client(store->url), *operator = open_client(store->url);
    leasehold_election *election = candidate(client, "n");
    leasehold_term *term = elected(election);
    leasehold_lock *lock = make_lock(operator, "n");
    uint64_t broken = 0;
    CHECK(leasehold_term_remaining_ms(term) > 0);
    CHECK_INT(LEASEHOLD_TERM_LASTS, leasehold_term_end_reason(term));
    EXPECT(LEASEHOLD_OK, leasehold_lock_break(lock, 0, "op", LEASEHOLD_NUL, &broken, &problem));
    CHECK_INT(leasehold_term_fence(term), broken);
    CHECK(!leasehold_term_leads_after_ms(term, LIMIT_MS));
    EVENTUALLY(leasehold_term_loss(term) == LEASEHOLD_LOSS_BROKEN);
    CHECK_INT(LEASEHOLD_TERM_LOST, leasehold_term_end_reason(term));
    CHECK_INT(0, leasehold_term_remaining_ms(term));
    EXPECT(LEASEHOLD_LOST, leasehold_term_resign(term, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_term_resign(term, &problem));
    leasehold_term_free(term);
    leasehold_lock_free(lock);
    leasehold_election_free(election);
    leasehold_client_free(client);
    leasehold_client_free(operator);
}

/* The lock is lost under work that does not ask: what /healthz would say. */
static void c9_work_that_does_not_stop_is_not_healthy(struct store *store)
{
    leasehold_client *client = open_client(store->url), *operator = open_client(store->url);
    struct worker worker = {.election = candidate(client, "n"), .is_deaf = true};
    pthread_t thread = begin(run, &worker);
    EVENTUALLY(worker.working);
    EXPECT(LEASEHOLD_OK, leasehold_election_resign(worker.election, &problem));
    EVENTUALLY(leasehold_election_state(worker.election) == LEASEHOLD_ELECTION_STOPPING);
    CHECK(leasehold_election_is_healthy(worker.election));
    CHECK(is_held(operator, "n"));
    leasehold_lock *lock = make_lock(operator, "n");
    uint64_t broken = 0;
    EXPECT(LEASEHOLD_OK, leasehold_lock_break(lock, 0, "op", LEASEHOLD_NUL, &broken, &problem));
    EVENTUALLY(leasehold_election_state(worker.election) == LEASEHOLD_ELECTION_OVERDUE);
    CHECK(!leasehold_election_is_healthy(worker.election));
    leasehold_election_free(worker.election);
    CHECK_INT(1, worker.working);
    worker.go_on = 1;
    finish(thread);
    CHECK_INT(LEASEHOLD_OK, worker.status);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(operator);
}

static int at_once(void *asked)
{
    ++*(atomic_int *)asked;
    return 1;
}

static void *stand(void *election)
{
    leasehold_term *term;
    EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_election_stand_within(election, LEASEHOLD_FOREVER, NULL,
                                                                 NULL, &term, &problem));
    CHECK_CONTAINS("the election was freed during the call", said);
    return NULL;
}

static void c14_standing_ends_in_time_and_when_it_is_told_to(struct store *store)
{
    leasehold_client *client = open_client(store->url), *holder = open_client(store->url);
    leasehold_lease *lease = take_name(holder, "n");
    leasehold_election *election = candidate(client, "n");
    leasehold_term *term = UNTOUCHED;
    atomic_int asked = 0;
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_election_stand_within(election, 20, NULL, NULL, &term, &problem));
    EXPECT(LEASEHOLD_INTERRUPTED,
           leasehold_election_stand_within(election, LEASEHOLD_FOREVER, at_once, &asked, &term,
                                           &problem));
    CHECK(asked > 0);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_election_stand_within(election, -1, NULL, NULL, &term, &problem));
    int returned = 99;
    EXPECT(LEASEHOLD_INTERRUPTED,
           leasehold_election_run_as_leader(election, work, at_once, &asked, &returned, &problem));
    CHECK_INT(99, returned);
    CHECK(term == UNTOUCHED);
    pthread_t thread = begin(stand, election);
    EVENTUALLY(leasehold_election_state(election) == LEASEHOLD_ELECTION_STANDBY);
    leasehold_election_free(election);
    finish(thread);
    give_back(lease);
    leasehold_client_free(client);
    leasehold_client_free(holder);
}

static int resign_and_wait(void *data, leasehold_term *term)
{
    leasehold_election *election = data;
    leasehold_term *none = UNTOUCHED;
    /* This thread would wait for itself. */
    EXPECT(
        LEASEHOLD_ERR_WOULD_DEADLOCK,
        leasehold_election_stand_within(election, LEASEHOLD_FOREVER, NULL, NULL, &none, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_term_resign(term, &problem));
    CHECK(!leasehold_term_is_leader(term));
    CHECK_INT(LEASEHOLD_TERM_RESIGNED, leasehold_term_end_reason(term));
    EXPECT(LEASEHOLD_OK, leasehold_election_stop(election, &problem));
    /* It is borrowed, and stays there for the caller of the work. */
    leasehold_term_free(term);
    CHECK_INT(0, leasehold_term_fence(term));
    return 0;
}

static void c14_work_may_resign_and_stop_its_own_election(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_election *election = candidate(client, "n");
    int returned = 99;
    EXPECT(LEASEHOLD_OK, leasehold_election_run_as_leader(election, resign_and_wait, NULL, election,
                                                          &returned, &problem));
    CHECK_INT(0, returned);
    CHECK(!is_held(client, "n"));
    leasehold_term *term;
    EXPECT(LEASEHOLD_INTERRUPTED, leasehold_election_stand_within(election, LEASEHOLD_FOREVER, NULL,
                                                                  NULL, &term, &problem));
    leasehold_election_free(election);
    leasehold_client_free(client);
}

static void bad_arguments_are_said_at_once(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_election *election = UNTOUCHED;
    leasehold_term *term = UNTOUCHED;
    int returned = 99;
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_client_election(client, "", 0, &election, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_client_election(client, "leasehold:x", LEASEHOLD_NUL, &election, &problem));
    CHECK(election == UNTOUCHED);
    election = candidate(client, "n");
    CHECK_TEXT("n", leasehold_election_name(election, NULL));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_election_set_ttl_ms(election, 99));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_election_check(election, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_election_stand_within(election, 0, NULL, NULL, &term, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_election_run_as_leader(election, work, NULL, NULL, &returned, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_election_set_ttl_ms(election, TTL_MS));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_election_set_grace_ms(election, -1));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_election_set_grace_ms(election, 500));
    EXPECT(LEASEHOLD_OK, leasehold_election_check(election, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_election_run_as_leader(election, NULL, NULL, NULL, &returned, &problem));
    CHECK_CONTAINS("the work is NULL", said);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_election_run_as_leader(election, work, NULL, NULL, NULL, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    EXPECT(LEASEHOLD_ERR_CLOSED,
           leasehold_election_stand_within(election, 0, NULL, NULL, &term, &problem));
    CHECK(term == UNTOUCHED);
    CHECK_INT(99, returned);
    leasehold_election_free(election);
    leasehold_client_free(client);
}

struct inherited {
    leasehold_election *election;
    leasehold_term *term;
};

static void try_in_child(void *with)
{
    struct inherited *one = with;
    leasehold_term *term;
    CHECK(!leasehold_term_is_leader(one->term));
    CHECK_INT(LEASEHOLD_TERM_LOST, leasehold_term_end_reason(one->term));
    CHECK_INT(0, leasehold_term_remaining_ms(one->term));
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_term_resign(one->term, &problem));
    EXPECT(LEASEHOLD_ERR_FORKED,
           leasehold_election_stand_within(one->election, 0, NULL, NULL, &term, &problem));
    EXPECT(LEASEHOLD_ERR_FORKED, leasehold_election_stop(one->election, &problem));
    leasehold_term_free(one->term);
    leasehold_election_free(one->election);
}

static void c8_a_child_leads_nothing_of_its_parents(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct inherited one = {.election = candidate(client, "n")};
    one.term = elected(one.election);
    CHECK_INT(0, in_fork(try_in_child, &one));
    CHECK(leasehold_term_is_leader(one.term));
    leasehold_election_free(one.election);
    CHECK(!leasehold_term_is_leader(one.term));
    leasehold_term_free(one.term);
    EVENTUALLY(!is_held(client, "n"));
    leasehold_client_free(client);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(c1_c2_one_leads_and_another_one_follows_with_a_larger_fence);
    ON_EACH_STORE(c2_c14_work_that_ends_by_itself_ends_the_call);
    ON_EACH_STORE(c9_a_leader_whose_lock_was_broken_stops_and_stands_again);
    ON_EACH_STORE(c9_a_term_says_how_its_lease_was_lost);
    ON_EACH_STORE(c9_work_that_does_not_stop_is_not_healthy);
    ON_EACH_STORE(c14_standing_ends_in_time_and_when_it_is_told_to);
    ON_EACH_STORE(c14_work_may_resign_and_stop_its_own_election);
    ON_REDIS(bad_arguments_are_said_at_once);
    ON_REDIS(c8_a_child_leads_nothing_of_its_parents);
    return runner_report();
}
