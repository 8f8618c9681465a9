/* Ends while others are in the midst of something, in any order, and what is left afterwards. */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

/* ---- While others wait ------------------------------------------------------------------------ */

/* Calls that wait: all of them return LEASEHOLD_ERR_CLOSED, sooner or later. */
struct waiting {
    leasehold_lock *lock;
    leasehold_events *events;
    atomic_int under_way;
};

static void *wait_plainly(void *with)
{
    struct waiting *waiting = with;
    leasehold_lease *lease = UNTOUCHED;
    waiting->under_way++;
    EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_lock_acquire(waiting->lock, &lease, &problem));
    CHECK(lease == UNTOUCHED);
    return NULL;
}

static int go_on(void *with)
{
    (void)with;
    return 0;
}

static void *wait_and_ask(void *with)
{
    struct waiting *waiting = with;
    leasehold_lease *lease = UNTOUCHED;
    waiting->under_way++;
    EXPECT(LEASEHOLD_ERR_CLOSED,
           leasehold_lock_acquire_unless(waiting->lock, go_on, NULL, &lease, &problem));
    CHECK(lease == UNTOUCHED);
    return NULL;
}

static void *wait_for_ever(void *with)
{
    struct waiting *waiting = with;
    leasehold_lease *lease = UNTOUCHED;
    waiting->under_way++;
    EXPECT(LEASEHOLD_ERR_CLOSED, leasehold_lock_acquire_within(waiting->lock, LEASEHOLD_FOREVER,
                                                               NULL, NULL, &lease, &problem));
    CHECK(lease == UNTOUCHED);
    return NULL;
}

static void *wait_for_an_event(void *with)
{
    struct waiting *waiting = with;
    leasehold_event *event = UNTOUCHED;
    waiting->under_way++;
    EXPECT(LEASEHOLD_ERR_CLOSED,
           leasehold_events_next_within(waiting->events, LEASEHOLD_FOREVER, &event, &problem));
    CHECK(event == UNTOUCHED);
    return NULL;
}

static void *(*const waits[])(void *) = {wait_plainly, wait_and_ask, wait_for_ever,
                                         wait_for_an_event};
#define ON_LOCK 3
#define WAITS 4

enum ended_by { CLOSE, CLOSE_WITHIN, FREE_CLIENT, FREE_LOCK };

static void end_while_others_wait(struct store *store, enum ended_by by)
{
    leasehold_client *holder = open_client(store->url), *client = open_client(store->url);
    leasehold_lease *held = take_name(holder, "n");
    struct waiting waiting = {make_lock(client, "n"), subscribe(client), 0};
    pthread_t threads[WAITS];
    int many = by == FREE_LOCK ? ON_LOCK : WAITS;
    for (int i = 0; i < many; i++) threads[i] = begin(waits[i], &waiting);
    EVENTUALLY(waiting.under_way == many && count(client, LEASEHOLD_COUNTER_BUSY) >= 2);
    struct stopwatch watch = stopwatch_start();
    switch (by) {
    case CLOSE:
        EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
        break;
    case CLOSE_WITHIN:
        EXPECT(LEASEHOLD_OK, leasehold_client_close_within(client, 100, &problem));
        break;
    case FREE_CLIENT:
        leasehold_client_free(client);
        break;
    case FREE_LOCK:
        leasehold_lock_free(waiting.lock);
        break;
    }
    for (int i = 0; i < many; i++) finish(threads[i]);
    CHECK_AT_MOST(200, watch);
    CHECK(leasehold_lease_is_valid(held));
    leasehold_lock_free(waiting.lock);
    leasehold_events_free(waiting.events);
    leasehold_client_free(client);
    leasehold_lease_free(held);
    leasehold_client_free(holder);
}

static void c14_close_lets_everybody_go(struct store *store)
{
    end_while_others_wait(store, CLOSE);
    end_while_others_wait(store, CLOSE_WITHIN);
}

static void c14_freeing_the_client_lets_everybody_go(struct store *store)
{
    end_while_others_wait(store, FREE_CLIENT);
}

static void freeing_the_lock_lets_those_go_who_wait_for_it(struct store *store)
{
    end_while_others_wait(store, FREE_LOCK);
}

#define IO_TIMEOUT_MS 300

/* Whatever it says: the request may have done something, or not. */
static void *take_in_vain(void *lock)
{
    leasehold_lease *lease = UNTOUCHED;
    leasehold_status status =
        leasehold_lock_acquire_within(lock, LEASEHOLD_FOREVER, NULL, NULL, &lease, NULL);
    CHECK(status == LEASEHOLD_ERR_CLOSED || status == LEASEHOLD_UNKNOWN);
    CHECK(lease == UNTOUCHED);
    return NULL;
}

static void *extend_in_vain(void *lease)
{
    leasehold_status status = leasehold_lease_extend(lease, NULL);
    /* On a connection that is new, nothing may have been asked yet. */
    CHECK(status == LEASEHOLD_ERR_CLOSED || status == LEASEHOLD_UNKNOWN ||
          status == LEASEHOLD_ERR_NO_ANSWER);
    return NULL;
}

static void *ping_in_vain(void *client)
{
    leasehold_status status = leasehold_client_ping(client, NULL);
    CHECK(status == LEASEHOLD_ERR_CLOSED || status == LEASEHOLD_ERR_NO_ANSWER);
    return NULL;
}

static void end_during_requests(struct store *store, enum ended_by by)
{
    leasehold_client *client = open_client_with(store->url, IO_TIMEOUT_MS);
    leasehold_lock *lock = make_lock(client, "free");
    /* It stays taken for its ttl where it could not be given back. */
    leasehold_lease *lease = take_name(client, (char[]){(char)('a' + by), 0});
    pthread_t threads[3];
    uint64_t attempts = count(client, LEASEHOLD_COUNTER_ATTEMPTS);
    server_pause(store->server);
    struct stopwatch watch = stopwatch_start();
    threads[0] = begin(take_in_vain, lock);
    threads[1] = begin(extend_in_vain, lease);
    threads[2] = begin(ping_in_vain, client);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_ATTEMPTS) > attempts);
    pause_ms(20);
    if (by == CLOSE_WITHIN)
        EXPECT(LEASEHOLD_OK, leasehold_client_close_within(client, 0, &problem));
    else if (by == FREE_CLIENT)
        leasehold_client_free(client);
    if (by == FREE_LOCK)
        leasehold_lock_free(lock);
    for (int i = 0; i < 3; i++) finish(threads[i]);
    /* Free also goes on releasing, for close_timeout: a second. */
    CHECK_AT_MOST(by == FREE_CLIENT ? 1000 + 50 : IO_TIMEOUT_MS + 50, watch);
    server_resume(store->server);
    leasehold_lock_free(lock);
    leasehold_lease_free(lease);
    leasehold_client_free(client);
}

static void c7_calls_whose_request_is_under_way_return_by_io_timeout(struct store *store)
{
    end_during_requests(store, CLOSE_WITHIN);
    end_during_requests(store, FREE_CLIENT);
    end_during_requests(store, FREE_LOCK);
}

/* ---- Afterwards ------------------------------------------------------------------------------- */

static void c14_every_call_after_close_says_closed(struct store *store)
{
    leasehold_client *client = open_client(store->url), *onlooker = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n"), *made = UNTOUCHED;
    leasehold_lease *lease = take(lock), *other = take_name(client, "other"), *more = UNTOUCHED;
    leasehold_lease *third = take_name(client, "third"), *fourth = take_name(client, "fourth");
    leasehold_events *events = subscribe(client), *more_events = UNTOUCHED;
    leasehold_lock_state *state = UNTOUCHED;
    leasehold_event *event = UNTOUCHED;
    const leasehold_status closed = LEASEHOLD_ERR_CLOSED;
    uint64_t fence = leasehold_lease_fence(lease);

    /* A limit that nobody means closes nothing. */
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_client_close_within(client, -1, &problem));
    CHECK(leasehold_lease_is_valid(lease));
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    CHECK(!is_held(onlooker, "n") && !is_held(onlooker, "other"));
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_close_within(client, 0, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_client_close_within(client, -1, &problem));

    EXPECT(closed, leasehold_client_ping(client, &problem));
    EXPECT(closed, leasehold_client_events(client, &more_events, &problem));
    EXPECT(closed, leasehold_lock_try_acquire(lock, &more, &problem));
    EXPECT(closed, leasehold_lock_acquire(lock, &more, &problem));
    EXPECT(closed, leasehold_lock_acquire_unless(lock, NULL, NULL, &more, &problem));
    EXPECT(closed, leasehold_lock_acquire_within(lock, 0, NULL, NULL, &more, &problem));
    EXPECT(closed, leasehold_lock_attach(lock, TOKEN, 32, 1, &more, &problem));
    EXPECT(closed, leasehold_lock_inspect(lock, &state, &problem));
    EXPECT(closed, leasehold_events_next_within(events, LEASEHOLD_FOREVER, &event, &problem));
    EXPECT(closed, leasehold_lease_extend(lease, &problem));
    EXPECT(closed, leasehold_lease_extend_for_ms(lease, 1000, &problem));
    EXPECT(closed, leasehold_lease_release(lease, &problem));
    EXPECT(closed, leasehold_lease_let_expire_in_ms(other, 1000, &problem));
    CHECK(more == UNTOUCHED && more_events == UNTOUCHED && state == UNTOUCHED);
    CHECK(event == UNTOUCHED);
    /* Closing has released them: nothing is left to let expire, or to hand on. */
    EXPECT(closed, leasehold_lease_let_expire(third, &problem));
    EXPECT(closed, leasehold_lease_detach(fourth, &problem));
    /* These ask nobody. */
    EXPECT(LEASEHOLD_OK, leasehold_client_lock(client, "m", 1, &made, &problem));
    EXPECT(closed, leasehold_lock_try_acquire(made, &more, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 1000));
    CHECK_INT(4, count(client, LEASEHOLD_COUNTER_GRANTED));
    CHECK_INT(fence, leasehold_lease_fence(lease));
    CHECK_INT(0, leasehold_lease_remaining_ms(lease));
    CHECK(strlen(leasehold_client_store(client)) > 0);

    leasehold_lock_free(made);
    leasehold_lock_free(lock);
    leasehold_lease_free(lease);
    leasehold_lease_free(other);
    leasehold_lease_free(third);
    leasehold_lease_free(fourth);
    leasehold_events_free(events);
    leasehold_client_free(client);
    leasehold_client_free(onlooker);
}

static void c14_close_ends_the_background_thread(struct store *store)
{
    leasehold_client *client = open_client(store->url), *second = open_client(store->url);
    leasehold_lease *lease = take_name(client, "n");
    EVENTUALLY(threads_named("leasehold") >= 2);
    EXPECT(LEASEHOLD_OK, leasehold_client_close(second, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    /* That of a Redis client's pool has nothing to do, and goes when the client is freed. */
    CHECK(threads_named("leasehold") <= (store->server ? 2 : 0));
    leasehold_lease_free(lease);
    leasehold_client_free(client);
    leasehold_client_free(second);
    EVENTUALLY(thread_count() == 1);
}

static void *close_it(void *client)
{
    EXPECT(LEASEHOLD_OK, leasehold_client_close_within(client, LIMIT_MS, &problem));
    return NULL;
}

static void c14_many_threads_may_close_at_once(struct store *store)
{
    for (int round = 0; round < 10; round++) {
        leasehold_client *client = open_client(store->url), *onlooker = open_client(store->url);
        leasehold_lease *lease = take_name(client, "n");
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) threads[i] = begin(close_it, client);
        for (int i = 0; i < 4; i++) finish(threads[i]);
        CHECK(!is_held(onlooker, "n"));
        leasehold_lease_free(lease);
        leasehold_client_free(client);
        leasehold_client_free(onlooker);
    }
}

/* ---- In any order, on any thread -------------------------------------------------------------- */

typedef void (*free_fn)(void *);

struct handle {
    free_fn free;
    void *handle;
};

/* C does not let a function be called through a type with other parameters. */
#define FREES(type)                                                                                \
    static void free_##type(void *handle)                                                          \
    {                                                                                              \
        leasehold_##type##_free(handle);                                                           \
    }
FREES(config)
FREES(client)
FREES(lock)
FREES(lease)
FREES(lock_state)
FREES(metrics)
FREES(events)
FREES(event)
FREES(error)

static void *free_one(void *with)
{
    struct handle *one = with;
    one->free(one->handle);
    /* Once more does nothing. */
    one->free(one->handle);
    return NULL;
}

static void handles_are_freed_in_any_order_on_any_thread(struct store *store)
{
    leasehold_client *onlooker = open_client(store->url);
    size_t before = leasehold_handle_count();
    unsigned seed = 1;
    for (int round = 0; round < 100; round++) {
        leasehold_config *config;
        leasehold_client *client;
        leasehold_error *error;
        leasehold_lock_state *state;
        leasehold_metrics *metrics;
        EXPECT(LEASEHOLD_OK,
               leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
        EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
        leasehold_lock *lock = make_lock(client, "n");
        leasehold_events *events = subscribe(client);
        leasehold_lease *lost = take_to_lose(client, "lost", 5);
        leasehold_event *event = next_event(events);
        leasehold_lease *lease = take(lock);
        EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
        EXPECT(LEASEHOLD_OK, leasehold_client_metrics(client, &metrics, &problem));
        CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping(NULL, &error));
        struct handle handles[] = {{free_config, config}, {free_client, client},
                                   {free_lock, lock},     {free_lease, lease},
                                   {free_lease, lost},    {free_lock_state, state},
                                   {free_events, events}, {free_event, event},
                                   {free_error, error},   {free_metrics, metrics}};
        const int many = sizeof handles / sizeof *handles;
        for (int left = many; left > 0; left--) {
            int index = rand_r(&seed) % left;
            struct handle picked = handles[index];
            handles[index] = handles[left - 1];
            if (rand_r(&seed) % 2)
                free_one(&picked);
            else
                finish(begin(free_one, &picked));
        }
        CHECK_INT(before, leasehold_handle_count());
        EVENTUALLY(!is_held(onlooker, "n"));
    }
    leasehold_client_free(onlooker);
}

static void all_at_once(struct store *store)
{
    leasehold_client *onlooker = open_client(store->url);
    for (int round = 0; round < 30; round++) {
        leasehold_client *client = open_client(store->url);
        leasehold_lock *lock = make_lock(client, "n");
        leasehold_lease *lease = take(lock);
        struct handle handles[] = {{free_client, client},
                                   {free_lock, lock},
                                   {free_lease, lease},
                                   {free_events, subscribe(client)}};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) threads[i] = begin(free_one, &handles[i]);
        for (int i = 0; i < 4; i++) finish(threads[i]);
        EVENTUALLY(!is_held(onlooker, "n"));
    }
    leasehold_client_free(onlooker);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE_IN_TIME(c14_close_lets_everybody_go);
    ON_EACH_STORE_IN_TIME(c14_freeing_the_client_lets_everybody_go);
    ON_EACH_STORE_IN_TIME(freeing_the_lock_lets_those_go_who_wait_for_it);
    ON_REDIS_IN_TIME(c7_calls_whose_request_is_under_way_return_by_io_timeout);
    ON_EACH_STORE(c14_every_call_after_close_says_closed);
    ON_EACH_STORE(c14_close_ends_the_background_thread);
    ON_EACH_STORE(c14_many_threads_may_close_at_once);
    ON_EACH_STORE(handles_are_freed_in_any_order_on_any_thread);
    ON_EACH_STORE(all_at_once);
    return runner_report();
}
