/* How long a wait takes, and how it ends. */

#include <limits.h>
#include <stdatomic.h>

#include "support/support.h"

/* Two clients; the first one holds "n", and the second one has a lock on it to wait with. */
struct pair {
    leasehold_client *holder, *waiter;
    leasehold_lease *held;
    leasehold_lock *lock;
};

/* So many answers of a client that never waited before, and its first wait has begun: it tries,
 * then it joins the queue, if there is one. */
enum { WAITS = 2 };

static struct pair make_pair(struct store *store)
{
    struct pair pair = {.holder = open_client(store->url), .waiter = open_client(store->url)};
    pair.held = take_name(pair.holder, "n");
    pair.lock = make_lock(pair.waiter, "n");
    return pair;
}

static void free_pair(struct pair pair)
{
    leasehold_lock_free(pair.lock);
    leasehold_lease_free(pair.held);
    leasehold_client_free(pair.holder);
    leasehold_client_free(pair.waiter);
}

static void c10_a_wait_that_runs_out_is_a_timeout(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_lease *lease = UNTOUCHED;

    struct stopwatch watch = stopwatch_start();
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_within(pair.lock, 150, NULL, NULL, &lease, &problem));
    CHECK_AT_LEAST(150, watch);
    CHECK_AT_MOST(150 + 50, watch);

    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(pair.lock, 120));
    watch = stopwatch_start();
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_lock_acquire(pair.lock, &lease, &problem));
    CHECK_AT_LEAST(120, watch);
    CHECK_AT_MOST(120 + 50, watch);
    watch = stopwatch_start();
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_unless(pair.lock, NULL, NULL, &lease, &problem));
    CHECK_AT_LEAST(120, watch);
    CHECK_AT_MOST(120 + 50, watch);

    CHECK(lease == UNTOUCHED);
    CHECK_INT(3, count(pair.waiter, LEASEHOLD_COUNTER_TIMED_OUT));
    free_pair(pair);
}

static void a_wait_of_zero_asks_once(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_lease *lease;
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_within(pair.lock, 0, NULL, NULL, &lease, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(pair.lock, 0));
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_lock_acquire(pair.lock, &lease, &problem));
    CHECK_INT(2, count(pair.waiter, LEASEHOLD_COUNTER_ATTEMPTS));
    free_pair(pair);
}

static void a_wait_asks_as_often_as_its_attempts_say(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_lease *lease;
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_mode(pair.lock, LEASEHOLD_WAIT_MODE_SPIN));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_attempts(pair.lock, 7));
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_lock_acquire_within(pair.lock, LEASEHOLD_FOREVER, NULL,
                                                            NULL, &lease, &problem));
    CHECK_INT(7, count(pair.waiter, LEASEHOLD_COUNTER_ATTEMPTS));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_attempts(pair.lock, 0));
    free_pair(pair);
}

static void a_backoff_says_how_often_a_wait_asks(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_lease *lease;
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_mode(pair.lock, LEASEHOLD_WAIT_MODE_SPIN));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_backoff_ms(pair.lock, 40, 40));
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_within(pair.lock, 300, NULL, NULL, &lease, &problem));
    uint64_t seldom = count(pair.waiter, LEASEHOLD_COUNTER_ATTEMPTS);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_backoff_ms(pair.lock, 1, 1));
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_within(pair.lock, 300, NULL, NULL, &lease, &problem));
    uint64_t often = count(pair.waiter, LEASEHOLD_COUNTER_ATTEMPTS) - seldom;
    if (often <= seldom * 2)
        FAIL("asked %d times, then %d times", (int)seldom, (int)often);
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_backoff_ms(pair.lock, 0, 0));
    free_pair(pair);
}

static void *wait_for_ever(void *with)
{
    leasehold_lease *lease;
    EXPECT(LEASEHOLD_OK,
           leasehold_lock_acquire_within(with, LEASEHOLD_FOREVER, NULL, NULL, &lease, &problem));
    return lease;
}

static void a_waiter_gets_the_lock_that_is_released(struct store *store)
{
    const leasehold_wait_mode modes[] = {LEASEHOLD_WAIT_MODE_AUTO, LEASEHOLD_WAIT_MODE_SPIN};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct pair pair = make_pair(store);
        uint64_t fence = leasehold_lease_fence(pair.held);
        CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_mode(pair.lock, modes[i]));
        pthread_t waiter = begin(wait_for_ever, pair.lock);
        EVENTUALLY(count(pair.waiter, LEASEHOLD_COUNTER_BUSY) >= WAITS);
        EXPECT(LEASEHOLD_OK, leasehold_lease_release(pair.held, &problem));
        leasehold_lease *lease = finish(waiter);
        CHECK(leasehold_lease_fence(lease) > fence && leasehold_lease_is_valid(lease));
        give_back(lease);
        free_pair(pair);
    }
}

static void c13_waiting_for_ones_own_lock_for_ever_is_refused(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *held = take(lock), *lease = UNTOUCHED;
    EXPECT(LEASEHOLD_ERR_WOULD_DEADLOCK,
           leasehold_lock_acquire_within(lock, LEASEHOLD_FOREVER, NULL, NULL, &lease, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(lock, LEASEHOLD_FOREVER));
    EXPECT(LEASEHOLD_ERR_WOULD_DEADLOCK, leasehold_lock_acquire(lock, &lease, &problem));
    CHECK(lease == UNTOUCHED && leasehold_lease_is_valid(held));
    /* With a limit it is an ordinary wait, and so it is in another thread. */
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_within(lock, 20, NULL, NULL, &lease, &problem));
    uint64_t busy = count(client, LEASEHOLD_COUNTER_BUSY);
    pthread_t waiter = begin(wait_for_ever, lock);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_BUSY) > busy);
    give_back(held);
    give_back(finish(waiter));
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void c7_a_wait_outlasts_an_outage_and_ends_in_time_all_the_same(struct store *store)
{
    leasehold_client *client = open_client_with(store->url, 200);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *lease = UNTOUCHED;
    /* So that it is known to be there. */
    give_back(take(lock));
    server_pause(store->server);
    struct stopwatch watch = stopwatch_start();
    CHECK(leasehold_lock_acquire_within(lock, 50, NULL, NULL, &lease, NULL) != LEASEHOLD_OK);
    CHECK_AT_MOST(200 + 50, watch);
    watch = stopwatch_start();
    CHECK(leasehold_lock_acquire_within(lock, 500, NULL, NULL, &lease, NULL) != LEASEHOLD_OK);
    CHECK_AT_LEAST(400, watch);
    CHECK_AT_MOST(500 + 50, watch);
    CHECK(lease == UNTOUCHED);
    uint64_t attempts = count(client, LEASEHOLD_COUNTER_ATTEMPTS);
    pthread_t waiter = begin(wait_for_ever, lock);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_ATTEMPTS) > attempts + 2);
    server_resume(store->server);
    give_back(finish(waiter));
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

/* ---- Interrupts ------------------------------------------------------------------------------- */

struct asked {
    pthread_t thread;
    int times, stop_after, answer;
    int64_t last_us, longest_gap_us;
};

static int ask(void *with)
{
    struct asked *asked = with;
    int64_t now = now_us();
    CHECK(pthread_equal(asked->thread, pthread_self()));
    if (now - asked->last_us > asked->longest_gap_us)
        asked->longest_gap_us = now - asked->last_us;
    asked->last_us = now;
    return ++asked->times < asked->stop_after ? 0 : asked->answer;
}

static void the_interrupt_function_is_asked_every_100_ms_on_the_calling_thread(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_lease *lease = UNTOUCHED;
    struct asked asked = {pthread_self(), 0, 6, 1, now_us(), 0};
    struct stopwatch watch = stopwatch_start();
    EXPECT(LEASEHOLD_INTERRUPTED, leasehold_lock_acquire_within(pair.lock, LEASEHOLD_FOREVER, ask,
                                                                &asked, &lease, &problem));
    CHECK_INT(6, asked.times);
    CHECK_AT_MOST(6 * 100 + 50, watch);
    if (asked.longest_gap_us > 130000)
        FAIL("not asked for %lld us", (long long)asked.longest_gap_us);
    CHECK(lease == UNTOUCHED);
    /* Nothing is held: who held it gives it to the next one. */
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(pair.held, &problem));
    EVENTUALLY(!is_held(pair.holder, "n"));
    free_pair(pair);
}

static void every_answer_but_zero_interrupts(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_lease *lease;
    const int answers[] = {1, -1, 256, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct asked asked = {pthread_self(), 0, 1, answers[i], now_us(), 0};
        EXPECT(LEASEHOLD_INTERRUPTED,
               leasehold_lock_acquire_within(pair.lock, 60000, ask, &asked, &lease, &problem));
        CHECK_INT(1, asked.times);
    }
    free_pair(pair);
}

static void *interrupt_at_once(void *lock)
{
    leasehold_lease *lease;
    struct asked asked = {pthread_self(), 0, 3, 1, now_us(), 0};
    EXPECT(LEASEHOLD_INTERRUPTED,
           leasehold_lock_acquire_within(lock, LEASEHOLD_FOREVER, ask, &asked, &lease, &problem));
    return NULL;
}

static void c10_an_interrupted_waiter_holds_nobody_up(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_client *third = open_client(store->url);
    leasehold_lock *lock = make_lock(third, "n");
    pthread_t first = begin(interrupt_at_once, pair.lock);
    EVENTUALLY(count(pair.waiter, LEASEHOLD_COUNTER_BUSY) >= WAITS);
    pthread_t second = begin(wait_for_ever, lock);
    EVENTUALLY(count(third, LEASEHOLD_COUNTER_BUSY) >= WAITS);
    finish(first);
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(pair.held, &problem));
    struct stopwatch watch = stopwatch_start();
    leasehold_lease *lease = finish(second);
    CHECK_AT_MOST(200, watch);
    give_back(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(third);
    free_pair(pair);
}

struct slow {
    leasehold_lease *held; /* released within, unless NULL */
    int times;
};

static int take_long(void *with)
{
    struct slow *slow = with;
    slow->times++;
    pause_ms(300);
    if (slow->held)
        EXPECT(LEASEHOLD_OK, leasehold_lease_release(slow->held, &problem));
    slow->held = NULL;
    return 0;
}

static void an_interrupt_function_may_take_long(struct store *store)
{
    struct pair pair = make_pair(store);
    leasehold_lease *lease;
    struct slow slow = {NULL, 0};
    struct stopwatch watch = stopwatch_start();
    EXPECT(LEASEHOLD_TIMEOUT,
           leasehold_lock_acquire_within(pair.lock, 100, take_long, &slow, &lease, &problem));
    CHECK_AT_LEAST(300, watch);
    CHECK(slow.times >= 1);
    /* It also waits for a lock that becomes free meanwhile. */
    slow = (struct slow){pair.held, 0};
    EXPECT(LEASEHOLD_OK, leasehold_lock_acquire_within(pair.lock, LEASEHOLD_FOREVER, take_long,
                                                       &slow, &lease, &problem));
    give_back(lease);
    free_pair(pair);
}

/* ---- What an interrupt function may do -------------------------------------------------------- */

struct within {
    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *other;
    int times;
};

static int take_another_lock(void *with)
{
    struct within *within = with;
    give_back(take_name(within->client, "another"));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(within->lock, 20000));
    /* The same lock too, and with the same function within itself. */
    leasehold_lease *lease;
    EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(within->lock, &lease, &problem));
    if (++within->times > 3)
        return 1;
    EXPECT(LEASEHOLD_INTERRUPTED,
           leasehold_lock_acquire_within(within->lock, LEASEHOLD_FOREVER, take_another_lock, within,
                                         &lease, &problem));
    return 1;
}

static int free_another_lease(void *with)
{
    struct within *within = with;
    leasehold_lease_free(within->other);
    CHECK(!is_held(within->client, "other"));
    return 1;
}

static int free_the_lock(void *with)
{
    struct within *within = with;
    within->times++;
    leasehold_lock_free(within->lock);
    return 0;
}

static int free_the_lock_and_stop(void *with)
{
    free_the_lock(with);
    return 1;
}

static int close_the_client(void *with)
{
    struct within *within = with;
    within->times++;
    EXPECT(LEASEHOLD_OK, leasehold_client_close(within->client, &problem));
    return 0;
}

static int free_the_client(void *with)
{
    struct within *within = with;
    within->times++;
    leasehold_client_free(within->client);
    return 0;
}

static void wait_with(struct within *within, leasehold_status expected, leasehold_interrupt_fn ask)
{
    leasehold_lease *lease = UNTOUCHED;
    EXPECT(expected, leasehold_lock_acquire_within(within->lock, LEASEHOLD_FOREVER, ask, within,
                                                   &lease, &problem));
    CHECK(lease == UNTOUCHED);
}

static void an_interrupt_function_may_call_the_library(struct store *store)
{
    struct pair pair = make_pair(store);
    struct within within = {pair.waiter, pair.lock, NULL, 0};
    wait_with(&within, LEASEHOLD_INTERRUPTED, take_another_lock);
    CHECK_INT(4, within.times);

    within.other = take_name(pair.waiter, "other");
    wait_with(&within, LEASEHOLD_INTERRUPTED, free_another_lease);

    const leasehold_interrupt_fn frees[] = {free_the_lock, free_the_lock_and_stop};
    for (int i = 0; i < 2; i++) {
        within = (struct within){pair.waiter, make_lock(pair.waiter, "n"), NULL, 0};
        wait_with(&within, LEASEHOLD_ERR_CLOSED, frees[i]);
        CHECK_INT(1, within.times);
    }

    const leasehold_interrupt_fn ends[] = {close_the_client, free_the_client};
    for (int i = 0; i < 2; i++) {
        leasehold_client *client = open_client(store->url);
        within = (struct within){client, make_lock(client, "n"), NULL, 0};
        wait_with(&within, LEASEHOLD_ERR_CLOSED, ends[i]);
        CHECK_INT(1, within.times);
        leasehold_lock_free(within.lock);
        leasehold_client_free(client);
    }
    CHECK(leasehold_lease_is_valid(pair.held));
    free_pair(pair);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE_IN_TIME(c10_a_wait_that_runs_out_is_a_timeout);
    ON_EACH_STORE(a_wait_of_zero_asks_once);
    ON_EACH_STORE(a_wait_asks_as_often_as_its_attempts_say);
    ON_EACH_STORE_IN_TIME(a_backoff_says_how_often_a_wait_asks);
    ON_EACH_STORE(a_waiter_gets_the_lock_that_is_released);
    ON_EACH_STORE(c13_waiting_for_ones_own_lock_for_ever_is_refused);
    ON_REDIS_IN_TIME(c7_a_wait_outlasts_an_outage_and_ends_in_time_all_the_same);
    ON_EACH_STORE_IN_TIME(the_interrupt_function_is_asked_every_100_ms_on_the_calling_thread);
    ON_EACH_STORE(every_answer_but_zero_interrupts);
    ON_EACH_STORE_IN_TIME(c10_an_interrupted_waiter_holds_nobody_up);
    ON_EACH_STORE(an_interrupt_function_may_take_long);
    ON_EACH_STORE(an_interrupt_function_may_call_the_library);
    return runner_report();
}
