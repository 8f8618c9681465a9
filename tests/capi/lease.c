/* What a lease says of itself, how it goes on, and how it ends. */

#include <string.h>

#include "support/support.h"

static void c3_a_lease_says_how_long_it_may_be_relied_on(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 5000));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, false));
    leasehold_lease *lease = take(lock);
    int64_t first = leasehold_lease_remaining_ms(lease);
    /* Less drift: a hundredth, and 2 ms. */
    if (first <= 0 || first > 5000 - 52)
        FAIL("%lld ms remain", (long long)first);
    CHECK(leasehold_lease_is_valid(lease));
    EVENTUALLY(leasehold_lease_remaining_ms(lease) < first);
    give_back(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void a_lease_tells_its_fence_token_and_name_until_it_is_freed(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lease *lease = take_name(client, "the name");
    uint64_t fence = leasehold_lease_fence(lease);
    const char *token = leasehold_lease_token(lease);
    size_t length = 0;
    const char *name = leasehold_lease_name(lease, &length);
    CHECK_INT(fence, holder_fence(client, "the name"));
    CHECK_INT(32, strlen(token));
    CHECK_INT(32, strspn(token, "0123456789abcdef"));
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(lease, &problem));
    leasehold_client_free(client);
    CHECK_INT(fence, leasehold_lease_fence(lease));
    CHECK(token == leasehold_lease_token(lease) && name == leasehold_lease_name(lease, NULL));
    CHECK_TEXT("the name", name);
    CHECK_INT(8, length);
    CHECK_INT(0, leasehold_lease_remaining_ms(lease));
    CHECK(!leasehold_lease_is_valid(lease));
    leasehold_lease_free(lease);
}

static void a_turn_is_two_calls(struct store *store)
{
    leasehold_client *client = open_client(store->url), *other = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    size_t handles = leasehold_handle_count();
    uint64_t before = 0;
    for (int waits = 0; waits <= 1; waits++) {
        leasehold_turn turn;
        EXPECT(LEASEHOLD_OK, leasehold_lock_take(lock, NULL, NULL, &turn, &problem));
        CHECK(turn.fence > before && leasehold_lease_is_valid(turn.lease));
        CHECK_INT(turn.fence, leasehold_lease_fence(turn.lease));
        CHECK_INT(turn.fence, holder_fence(other, "n"));
        EXPECT(LEASEHOLD_OK, leasehold_lease_end(turn.lease, waits, &problem));
        CHECK_INT(handles, leasehold_handle_count());
        EXPECT(LEASEHOLD_ERR_HANDLE, leasehold_lease_end(turn.lease, waits, &problem));
        EVENTUALLY(!is_held(other, "n"));
        before = turn.fence;
    }
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_RELEASED_LATE));
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(other);
}

static void c3_the_end_of_a_turn_says_what_is_known_then(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_turn turn;
    for (int waits = 0; waits <= 1; waits++) {
        /* Over by the clock alone: the store is asked. */
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 300));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, false));
        EXPECT(LEASEHOLD_OK, leasehold_lock_take(lock, NULL, NULL, &turn, &problem));
        EVENTUALLY(!leasehold_lease_is_valid(turn.lease) && !is_held(client, "n"));
        EXPECT(LEASEHOLD_LOST, leasehold_lease_end(turn.lease, waits, &problem));
        CHECK_CONTAINS("'n'", said);
        /* Ended by another call. */
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 20000));
        EXPECT(LEASEHOLD_OK, leasehold_lock_take(lock, NULL, NULL, &turn, &problem));
        EXPECT(LEASEHOLD_OK, leasehold_lease_release(turn.lease, &problem));
        EXPECT(LEASEHOLD_LOST, leasehold_lease_end(turn.lease, waits, &problem));
    }
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

/* The store knows nothing of the lock any more, though the lease may still be relied on. */
static void a_key_that_was_deleted_is_told_by_the_answer_or_by_an_event(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_events *events = subscribe(client);
    leasehold_turn turn;
    EXPECT(LEASEHOLD_OK, leasehold_lock_take(lock, NULL, NULL, &turn, &problem));
    server_ask(store->server, "FLUSHALL");
    EXPECT(LEASEHOLD_LOST, leasehold_lease_end(turn.lease, true, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lock_take(lock, NULL, NULL, &turn, &problem));
    server_ask(store->server, "FLUSHALL");
    EXPECT(LEASEHOLD_OK, leasehold_lease_end(turn.lease, false, &problem));
    leasehold_event *event = next_event(events);
    CHECK_INT(LEASEHOLD_EVENT_RELEASED_LATE, leasehold_event_kind(event));
    CHECK_INT(turn.fence, leasehold_event_fence(event));
    leasehold_event_free(event);
    leasehold_events_free(events);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void c9_a_lease_is_renewed_until_it_is_released(struct store *store)
{
    leasehold_client *client = open_client(store->url), *other = open_client(store->url);
    leasehold_lease *lease = take_name_for(client, "n", 600);
    /* More than three of its ttls. */
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_RENEWED) >= 7 || !leasehold_lease_is_valid(lease));
    CHECK(leasehold_lease_is_valid(lease) && is_held(other, "n"));
    give_back(lease);
    uint64_t renewed = count(client, LEASEHOLD_COUNTER_RENEWED);
    pause_ms(450);
    CHECK_INT(renewed, count(client, LEASEHOLD_COUNTER_RENEWED));
    leasehold_client_free(client);
    leasehold_client_free(other);
}

static void without_renewal_the_ttl_is_the_limit(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 300));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, false));
    leasehold_lease *lease = take(lock);
    EVENTUALLY(!leasehold_lease_is_valid(lease));
    EVENTUALLY(!is_held(client, "n"));
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_RENEWED));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void an_extension_counts_from_now_and_never_makes_a_lease_shorter(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 20000));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, false));
    leasehold_lease *lease = take(lock);
    int64_t before = leasehold_lease_remaining_ms(lease);
    EVENTUALLY(leasehold_lease_remaining_ms(lease) < before - 20);
    int64_t later = leasehold_lease_remaining_ms(lease);
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend(lease, &problem));
    CHECK(leasehold_lease_remaining_ms(lease) > later);

    EXPECT(LEASEHOLD_OK, leasehold_lease_extend_for_ms(lease, 90000, &problem));
    CHECK(leasehold_lease_remaining_ms(lease) > 60000);
    CHECK(holder_ttl(client, "n") > 60000);
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend_for_ms(lease, 1000, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend(lease, &problem));
    CHECK(leasehold_lease_remaining_ms(lease) > 60000);
    CHECK(holder_ttl(client, "n") > 60000);

    /* What can be no ttl changes nothing. */
    const int64_t bad[] = {-1, INT64_MIN, 0, 2, 366 * INT64_C(86400000) + 1, LEASEHOLD_FOREVER};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lease_extend_for_ms(lease, bad[i], &problem));
    CHECK(leasehold_lease_remaining_ms(lease) > 60000);
    give_back(lease);
    EXPECT(LEASEHOLD_ERR_HANDLE, leasehold_lease_extend(lease, &problem));
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void c9_max_hold_is_how_long_a_renewed_lease_is_kept(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 3000));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_max_hold_ms(lock, 400));
    leasehold_lease *lease = take(lock);
    CHECK(leasehold_lease_remaining_ms(lease) <= 400);
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend_for_ms(lease, 60000, &problem));
    CHECK(leasehold_lease_remaining_ms(lease) <= 400);
    EVENTUALLY(!leasehold_lease_is_valid(lease));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    leasehold_lease_free(lease);

    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_max_hold_ms(lock, LEASEHOLD_FOREVER));
    lease = take(lock);
    CHECK(leasehold_lease_remaining_ms(lease) > 400);
    give_back(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

/* ---- Other ends than a release ---------------------------------------------------------------- */

static void a_lease_that_is_let_expire_keeps_the_lock_taken_for_its_ttl(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 600));
    leasehold_lease *lease = take(lock), *next;
    EXPECT(LEASEHOLD_OK, leasehold_lease_let_expire(lease, &problem));
    CHECK(!leasehold_lease_is_valid(lease));
    CHECK_INT(0, leasehold_lease_remaining_ms(lease));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_let_expire(lease, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
    leasehold_lease_free(lease);
    /* Neither of these gave it back, and nobody renews it. */
    EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(lock, &next, &problem));
    EVENTUALLY(!is_held(client, "n"));
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void a_lease_that_is_abandoned_keeps_the_lock_taken_for_its_ttl(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    size_t handles = leasehold_handle_count();
    leasehold_lease *lease = take_name_for(client, "n", 600);
    leasehold_lease_abandon(lease);
    CHECK_INT(handles, leasehold_handle_count());
    CHECK(is_held(client, "n"));
    leasehold_lease_abandon(lease);
    leasehold_lease_abandon(NULL);
    /* Nobody renews it. */
    EVENTUALLY(!is_held(client, "n"));
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_LOST));
    leasehold_client_free(client);
}

static void a_lease_can_be_let_expire_at_another_time(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lease *sooner = take_name_for(client, "sooner", 60000);
    leasehold_lease *later = take_name_for(client, "later", 300);

    /* What can be no ttl ends nothing: the lease goes on and is renewed. */
    const int64_t bad[] = {-1, INT64_MIN, 0, 2, 366 * INT64_C(86400000) + 1, LEASEHOLD_FOREVER};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
               leasehold_lease_let_expire_in_ms(later, bad[i], &problem));
    CHECK(leasehold_lease_is_valid(later));
    uint64_t renewed = count(client, LEASEHOLD_COUNTER_RENEWED);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_RENEWED) > renewed);

    EXPECT(LEASEHOLD_OK, leasehold_lease_let_expire_in_ms(later, 60000, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lease_let_expire_in_ms(sooner, 300, &problem));
    CHECK(!leasehold_lease_is_valid(sooner) && !leasehold_lease_is_valid(later));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_let_expire_in_ms(sooner, 300, &problem));
    CHECK(holder_ttl(client, "later") > 30000);
    EVENTUALLY(!is_held(client, "sooner"));
    CHECK(is_held(client, "later"));
    leasehold_lease_free(sooner);
    leasehold_lease_free(later);
    CHECK(is_held(client, "later"));
    leasehold_client_free(client);
}

static void a_lease_can_be_handed_on_to_another_client(struct store *store)
{
    leasehold_client *here = open_client(store->url), *there = open_client(store->url);
    leasehold_lock *lock = make_lock(there, "n");
    leasehold_lease *taken = take_name(here, "n"), *handed = UNTOUCHED;
    uint64_t fence = leasehold_lease_fence(taken);
    EXPECT(LEASEHOLD_OK, leasehold_lease_detach(taken, &problem));
    CHECK(!leasehold_lease_is_valid(taken) && is_held(here, "n"));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_detach(taken, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(taken, &problem));

    /* Token and fence stay until it is freed. */
    EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, leasehold_lease_token(taken), LEASEHOLD_NUL,
                                               leasehold_lease_fence(taken), &handed, &problem));
    CHECK(strcmp(leasehold_lease_token(taken), leasehold_lease_token(handed)) != 0);
    CHECK_INT(fence, leasehold_lease_fence(handed));
    leasehold_lease_free(taken);
    CHECK(is_held(here, "n"));
    CHECK(!leasehold_lease_is_valid(handed));
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend(handed, &problem));
    CHECK(leasehold_lease_is_valid(handed));
    give_back(handed);
    CHECK(!is_held(here, "n"));
    leasehold_lock_free(lock);
    leasehold_client_free(here);
    leasehold_client_free(there);
}

static void only_a_token_and_a_fence_can_be_attached(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *lease = UNTOUCHED;
    const char *token = "0123456789abcdef0123456789abcdef";
    const char *bad[] = {"", "0123", "0123456789abcdef0123456789abcdeg",
                         "0123456789abcdef0123456789abcdef0",
                         "0123456789abcdef0123456789abcde\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
               leasehold_lock_attach(lock, bad[i], LEASEHOLD_NUL, 1, &lease, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_attach(lock, token, 31, 1, &lease, &problem));
    const uint64_t fences[] = {0, UINT64_C(1) << 53, UINT64_MAX};
    for (size_t i = 0; i < sizeof fences / sizeof *fences; i++)
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
               leasehold_lock_attach(lock, token, 32, fences[i], &lease, &problem));
    CHECK(lease == UNTOUCHED);
    /* One that nobody holds is found out when the store is asked. */
    EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, token, 32, 1, &lease, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

/* ---- A server that does not answer ------------------------------------------------------------ */

#define IO_TIMEOUT_MS 300

static void c6_a_take_without_an_answer_is_unknown_and_nothing_is_held(struct store *store)
{
    leasehold_client *client = open_client_with(store->url, IO_TIMEOUT_MS);
    leasehold_client *onlooker = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *lease = UNTOUCHED;
    EXPECT(LEASEHOLD_OK, leasehold_client_ping(client, &problem));
    server_pause(store->server);
    struct stopwatch watch = stopwatch_start();
    EXPECT(LEASEHOLD_UNKNOWN, leasehold_lock_try_acquire(lock, &lease, &problem));
    CHECK_AT_MOST(IO_TIMEOUT_MS + 50, watch);
    CHECK(lease == UNTOUCHED);
    CHECK_INT(1, count(client, LEASEHOLD_COUNTER_UNKNOWN));
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_GRANTED));
    /* The server takes the lock now, and it is given back long before its ttl has passed. */
    server_resume(store->server);
    EVENTUALLY(!is_held(onlooker, "n"));
    EXPECT(LEASEHOLD_OK, leasehold_lock_try_acquire(lock, &lease, &problem));
    give_back(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(onlooker);
}

static void c6_a_release_without_an_answer_is_unknown_and_is_made_up_for(struct store *store)
{
    leasehold_client *client = open_client_with(store->url, IO_TIMEOUT_MS);
    leasehold_client *onlooker = open_client(store->url);
    leasehold_lease *lease = take_name(client, "n"), *extended = take_name(client, "extended");
    leasehold_lease *left = take_name(client, "left");
    server_pause(store->server);
    struct stopwatch watch = stopwatch_start();
    EXPECT(LEASEHOLD_UNKNOWN, leasehold_lease_extend(extended, &problem));
    CHECK_AT_MOST(IO_TIMEOUT_MS + 50, watch);
    CHECK(leasehold_lease_is_valid(extended));
    watch = stopwatch_start();
    EXPECT(LEASEHOLD_UNKNOWN, leasehold_lease_release(lease, &problem));
    CHECK_AT_MOST(IO_TIMEOUT_MS + 50, watch);
    CHECK(!leasehold_lease_is_valid(lease));
    leasehold_status status = leasehold_lease_let_expire_in_ms(left, 60000, &problem);
    CHECK(status == LEASEHOLD_UNKNOWN || status == LEASEHOLD_ERR_NO_ANSWER);
    leasehold_error_free(problem);
    CHECK(!leasehold_lease_is_valid(left));
    server_resume(store->server);
    EVENTUALLY(!is_held(onlooker, "n"));
    CHECK(is_held(onlooker, "left"));
    give_back(extended);
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    leasehold_lease_free(lease);
    leasehold_lease_free(left);
    leasehold_client_free(client);
    leasehold_client_free(onlooker);
}

static int stop_if(void *flag)
{
    return *(volatile int *)flag;
}

static void c7_a_request_under_way_is_not_interrupted_and_ends_by_io_timeout(struct store *store)
{
    leasehold_client *client = open_client_with(store->url, IO_TIMEOUT_MS);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *lease;
    int stop = 1;
    /* Known to be there: a wait outlasts its outage. */
    give_back(take(lock));
    server_pause(store->server);
    struct stopwatch watch = stopwatch_start();
    EXPECT(LEASEHOLD_INTERRUPTED, leasehold_lock_acquire_within(lock, LEASEHOLD_FOREVER, stop_if,
                                                                &stop, &lease, &problem));
    CHECK_AT_LEAST(IO_TIMEOUT_MS - 50, watch);
    CHECK_AT_MOST(IO_TIMEOUT_MS + 50, watch);
    /* Also where there is no connection yet: then nothing was asked. */
    leasehold_client *stranger = open_client_with(store->url, IO_TIMEOUT_MS);
    watch = stopwatch_start();
    EXPECT_MENDED(LEASEHOLD_ERR_NO_ANSWER, leasehold_client_ping(stranger, &problem));
    CHECK_AT_MOST(IO_TIMEOUT_MS + 50, watch);
    server_resume(store->server);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(stranger);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE_IN_TIME(c3_a_lease_says_how_long_it_may_be_relied_on);
    ON_EACH_STORE(a_lease_tells_its_fence_token_and_name_until_it_is_freed);
    ON_EACH_STORE(a_turn_is_two_calls);
    ON_EACH_STORE_IN_TIME(c3_the_end_of_a_turn_says_what_is_known_then);
    ON_REDIS(a_key_that_was_deleted_is_told_by_the_answer_or_by_an_event);
    ON_EACH_STORE_IN_TIME(c9_a_lease_is_renewed_until_it_is_released);
    ON_EACH_STORE_IN_TIME(without_renewal_the_ttl_is_the_limit);
    ON_EACH_STORE_IN_TIME(an_extension_counts_from_now_and_never_makes_a_lease_shorter);
    ON_EACH_STORE_IN_TIME(c9_max_hold_is_how_long_a_renewed_lease_is_kept);
    ON_EACH_STORE_IN_TIME(a_lease_that_is_let_expire_keeps_the_lock_taken_for_its_ttl);
    ON_EACH_STORE_IN_TIME(a_lease_that_is_abandoned_keeps_the_lock_taken_for_its_ttl);
    ON_EACH_STORE_IN_TIME(a_lease_can_be_let_expire_at_another_time);
    ON_EACH_STORE(a_lease_can_be_handed_on_to_another_client);
    ON_EACH_STORE(only_a_token_and_a_fence_can_be_attached);
    ON_REDIS_IN_TIME(c6_a_take_without_an_answer_is_unknown_and_nothing_is_held);
    ON_REDIS_IN_TIME(c6_a_release_without_an_answer_is_unknown_and_is_made_up_for);
    ON_REDIS_IN_TIME(c7_a_request_under_way_is_not_interrupted_and_ends_by_io_timeout);
    return runner_report();
}
