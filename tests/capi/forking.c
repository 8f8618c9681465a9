/* A forked child owns nothing of its parent's, is told so by every call, and can begin anew. */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/support.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

/* One handle of each type, made before the fork. */
struct inherited {
    const char *url;
    bool on_file;
    leasehold_config *config;
    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *lease;
    leasehold_lock_state *state;
    leasehold_metrics *metrics;
    leasehold_events *events;
    leasehold_event *event;
    leasehold_waits *waits;
    leasehold_error *error;
};

static struct inherited make_all(struct store *store)
{
    struct inherited all = {.url = store->url, .on_file = !store->server};
    EXPECT(LEASEHOLD_OK,
           leasehold_config_from_url(store->url, LEASEHOLD_NUL, &all.config, &problem));
    all.client = open_client(store->url);
    all.lock = make_lock(all.client, "n");
    all.events = subscribe(all.client);
    leasehold_lease *lost = take_to_lose(all.client, "lost", 20);
    all.event = next_event(all.events);
    leasehold_lease_free(lost);
    all.lease = take(all.lock);
    /* One of them goes on when the process forks. */
    EXPECT(LEASEHOLD_OK, leasehold_waits_open(&all.waits, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_waits_start(all.waits, all.lock, 1, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(all.lock, &all.state, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_metrics(all.client, &all.metrics, &problem));
    CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping(NULL, &all.error));
    return all;
}

static void free_all(struct inherited all)
{
    leasehold_error_free(all.error);
    leasehold_event_free(all.event);
    leasehold_events_free(all.events);
    leasehold_waits_free(all.waits);
    leasehold_lock_state_free(all.state);
    leasehold_metrics_free(all.metrics);
    leasehold_lease_free(all.lease);
    leasehold_lock_free(all.lock);
    leasehold_client_free(all.client);
    leasehold_config_free(all.config);
}

/* Every function that takes a handle, with one of an ancestor's. */
static void misuse(struct inherited all)
{
    const leasehold_status forked = LEASEHOLD_ERR_FORKED;
    leasehold_client *client = UNTOUCHED;
    leasehold_lock *lock = UNTOUCHED;
    leasehold_lease *lease = UNTOUCHED;
    leasehold_turn turn = {UNTOUCHED, 0};
    leasehold_lock_state *state = UNTOUCHED;
    leasehold_metrics *metrics = UNTOUCHED;
    leasehold_events *events = UNTOUCHED;
    leasehold_event *event = UNTOUCHED;
    uint64_t counted = 77;
    size_t length = 77;

    CHECK_STATUS(forked, leasehold_error_status(all.error));
    CHECK(strlen(leasehold_error_message(all.error)) > 0);
    CHECK_TEXT("", leasehold_error_detail(all.error));

    CHECK_STATUS(forked, leasehold_config_set_prefix(all.config, "p", 1));
    CHECK_STATUS(forked, leasehold_config_set_io_timeout_ms(all.config, 100));
    CHECK_STATUS(forked, leasehold_config_set_pool(all.config, 1));
    CHECK_STATUS(forked, leasehold_config_set_close_timeout_ms(all.config, 100));
    CHECK_STATUS(forked, leasehold_config_set_claim_window_ms(all.config, 100));
    CHECK_STATUS(forked, leasehold_config_add_metrics_group(all.config, "n*", 2));
    CHECK_TEXT("", leasehold_config_store(all.config));
    EXPECT(forked, leasehold_client_open_config(all.config, &client, &problem));

    EXPECT(forked, leasehold_client_lock(all.client, "n", 1, &lock, &problem));
    EXPECT(forked, leasehold_client_ping(all.client, &problem));
    EXPECT(forked, leasehold_client_reopen_after_fork(all.client, &problem));
    EXPECT(forked, leasehold_client_events(all.client, &events, &problem));
    EXPECT(forked,
           leasehold_client_counter(all.client, LEASEHOLD_COUNTER_LOST, &counted, &problem));
    EXPECT(forked, leasehold_client_metrics(all.client, &metrics, &problem));
    CHECK(metrics == UNTOUCHED);
    CHECK_TEXT("", leasehold_metrics_text(all.metrics, &length));
    CHECK_TEXT("", leasehold_client_store(all.client));
    EXPECT(forked, leasehold_client_close(all.client, &problem));
    EXPECT(forked, leasehold_client_close_within(all.client, 0, &problem));

    CHECK_STATUS(forked, leasehold_lock_set_ttl_ms(all.lock, 1000));
    CHECK_STATUS(forked, leasehold_lock_set_wait_ms(all.lock, 1000));
    CHECK_STATUS(forked, leasehold_lock_set_io_timeout_ms(all.lock, 1000));
    CHECK_STATUS(forked, leasehold_lock_set_attempts(all.lock, 1));
    CHECK_STATUS(forked, leasehold_lock_set_renew(all.lock, false));
    CHECK_STATUS(forked, leasehold_lock_set_max_hold_ms(all.lock, 1000));
    CHECK_STATUS(forked, leasehold_lock_set_wait_mode(all.lock, LEASEHOLD_WAIT_MODE_SPIN));
    CHECK_STATUS(forked, leasehold_lock_set_backoff_ms(all.lock, 1, 1));
    CHECK_TEXT("", leasehold_lock_name(all.lock, &length));
    EXPECT(forked, leasehold_lock_try_acquire(all.lock, &lease, &problem));
    EXPECT(forked, leasehold_lock_acquire(all.lock, &lease, &problem));
    EXPECT(forked, leasehold_lock_acquire_unless(all.lock, NULL, NULL, &lease, &problem));
    EXPECT(forked, leasehold_lock_acquire_within(all.lock, 0, NULL, NULL, &lease, &problem));
    EXPECT(forked, leasehold_lock_take(all.lock, NULL, NULL, &turn, &problem));
    CHECK(turn.lease == UNTOUCHED);
    EXPECT(forked, leasehold_lock_attach(all.lock, TOKEN, 32, 1, &lease, &problem));
    EXPECT(forked, leasehold_lock_inspect(all.lock, &state, &problem));

    CHECK(!leasehold_lock_state_is_held(all.state));
    CHECK_TEXT("", leasehold_lock_state_token_prefix(all.state));
    CHECK_INT(0, leasehold_lock_state_ttl_ms(all.state));
    CHECK_INT(0, leasehold_lock_state_fence(all.state));
    CHECK_INT(0, leasehold_lock_state_last_fence(all.state));

    CHECK_INT(0, leasehold_lease_fence(all.lease));
    CHECK_TEXT("", leasehold_lease_token(all.lease));
    CHECK_TEXT("", leasehold_lease_name(all.lease, &length));
    CHECK_INT(0, leasehold_lease_remaining_ms(all.lease));
    CHECK(!leasehold_lease_is_valid(all.lease));
    EXPECT(forked, leasehold_lease_extend(all.lease, &problem));
    EXPECT(forked, leasehold_lease_extend_for_ms(all.lease, 1000, &problem));
    EXPECT(forked, leasehold_lease_release(all.lease, &problem));
    EXPECT(forked, leasehold_lease_end(all.lease, false, &problem));
    EXPECT(forked, leasehold_lease_let_expire(all.lease, &problem));
    EXPECT(forked, leasehold_lease_let_expire_in_ms(all.lease, 1000, &problem));
    EXPECT(forked, leasehold_lease_detach(all.lease, &problem));
    EXPECT(forked, leasehold_lease_watch(all.lease, all.events, &counted, &problem));

    CHECK_INT(-1, leasehold_events_descriptor(all.events));
    EXPECT(forked, leasehold_events_next_within(all.events, 0, &event, &problem));
    EXPECT(forked, leasehold_events_next_within(all.events, LEASEHOLD_FOREVER, &event, &problem));
    CHECK_INT(0, leasehold_events_dropped(all.events));

    CHECK_INT(-1, leasehold_waits_descriptor(all.waits));
    EXPECT(forked, leasehold_waits_start(all.waits, all.lock, 2, &problem));
    EXPECT(forked, leasehold_waits_start_within(all.waits, all.lock, 0, 2, &problem));
    EXPECT(forked, leasehold_waits_next_within(all.waits, LEASEHOLD_FOREVER, &counted, &problem));
    EXPECT(forked, leasehold_waits_take(all.waits, 1, &turn, &problem));
    EXPECT(forked, leasehold_waits_stop(all.waits, 1, &problem));
    CHECK(turn.lease == UNTOUCHED);

    CHECK_INT(LEASEHOLD_EVENT_NONE, leasehold_event_kind(all.event));
    CHECK_INT(LEASEHOLD_LOSS_NONE, leasehold_event_reason(all.event));
    CHECK_TEXT("", leasehold_event_name(all.event, &length));
    CHECK_INT(0, leasehold_event_fence(all.event));
    CHECK_INT(0, leasehold_event_lease_id(all.event));

    CHECK(client == UNTOUCHED && lock == UNTOUCHED && lease == UNTOUCHED && state == UNTOUCHED);
    CHECK(events == UNTOUCHED && event == UNTOUCHED && counted == 77 && length == 0);
    free_all(all);
    /* That did nothing: they are still the parent's. */
    EXPECT(forked, leasehold_lease_release(all.lease, &problem));
}

static void begin_anew(struct inherited all)
{
    leasehold_client *client = UNTOUCHED;
    if (all.on_file) {
        /* It would share locks that it does not have. */
        EXPECT(LEASEHOLD_ERR_STORAGE,
               leasehold_client_open(all.url, LEASEHOLD_NUL, &client, &problem));
        CHECK(client == UNTOUCHED);
        return;
    }
    client = open_client(all.url);
    leasehold_events *events = subscribe(client);
    CHECK(is_held(client, "n"));
    leasehold_lease *lease = take_name_for(client, "child's own", 300);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_RENEWED) > 0);
    give_back(lease);
    lease = take_to_lose(client, "child's loss", 20);
    leasehold_event_free(next_event(events));
    leasehold_lease_free(lease);
    CHECK_INT(2, leasehold_handle_count());
    leasehold_events_free(events);
    leasehold_client_free(client);
}

static void child(void *with)
{
    struct inherited all = *(struct inherited *)with;
    CHECK_INT(0, leasehold_handle_count());
    misuse(all);
    CHECK_INT(0, leasehold_handle_count());
    begin_anew(all);
    CHECK_INT(0, leasehold_handle_count());
    misuse(all);
    EVENTUALLY(thread_count() == 1);
}

static void lost_nothing(struct inherited all, size_t handles)
{
    CHECK_INT(handles, leasehold_handle_count());
    CHECK(leasehold_lease_is_valid(all.lease));
    CHECK_INT(leasehold_lease_fence(all.lease), leasehold_lock_state_fence(all.state));
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend(all.lease, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_ping(all.client, &problem));
    CHECK_TEXT("lost", leasehold_event_name(all.event, NULL));
    CHECK_INT(LEASEHOLD_ERR_HANDLE, leasehold_error_status(all.error));
    leasehold_event *event;
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_events_next_within(all.events, 0, &event, &problem));
}

static void
c8_a_forked_child_is_told_by_every_function_and_its_parent_loses_nothing(struct store *store)
{
    struct inherited all = make_all(store);
    size_t handles = leasehold_handle_count();
    for (int i = 0; i < 5; i++) {
        CHECK_INT(0, in_fork(child, &all));
        lost_nothing(all, handles);
    }
    leasehold_lease *renewed = take_name_for(all.client, "renewed", 300);
    uint64_t before = count(all.client, LEASEHOLD_COUNTER_RENEWED);
    CHECK_INT(0, in_fork(child, &all));
    EVENTUALLY(count(all.client, LEASEHOLD_COUNTER_RENEWED) > before);
    give_back(renewed);
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(all.lease, &problem));
    free_all(all);
}

/* ---- Children of children --------------------------------------------------------------------- */

struct generations {
    struct inherited eldest, parent;
};

static void grandchild(void *with)
{
    struct generations *generations = with;
    CHECK_INT(0, leasehold_handle_count());
    misuse(generations->eldest);
    misuse(generations->parent);
    begin_anew(generations->parent);
    misuse(generations->eldest);
    misuse(generations->parent);
}

static void child_with_a_child(void *with)
{
    struct generations generations = {.eldest = *(struct inherited *)with};
    struct store store = {.server = UNTOUCHED};
    snprintf(store.url, sizeof store.url, "%s/1", generations.eldest.url);
    generations.parent = make_all(&store);
    size_t handles = leasehold_handle_count();
    misuse(generations.eldest);
    CHECK_INT(0, in_fork(grandchild, &generations));
    lost_nothing(generations.parent, handles);
    misuse(generations.eldest);
    free_all(generations.parent);
    CHECK_INT(0, leasehold_handle_count());
}

static void c8_a_child_of_a_child_is_told_of_both(struct store *store)
{
    struct inherited all = make_all(store);
    size_t handles = leasehold_handle_count();
    CHECK_INT(0, in_fork(child_with_a_child, &all));
    lost_nothing(all, handles);
    free_all(all);
}

/* ---- Threads of a child ----------------------------------------------------------------------- */

static void *make_and_free(void *with)
{
    pthread_barrier_wait(with);
    for (int i = 0; i < 100; i++) {
        leasehold_config *config;
        EXPECT(LEASEHOLD_OK, leasehold_config_from_url("redis://h", 9, &config, &problem));
        CHECK_TEXT("redis://h:6379/0", leasehold_config_store(config));
        leasehold_config_free(config);
    }
    return NULL;
}

static void child_with_threads(void *with)
{
    (void)with;
    pthread_barrier_t start;
    pthread_t threads[4];
    pthread_barrier_init(&start, NULL, 4);
    for (int i = 0; i < 4; i++) threads[i] = begin(make_and_free, &start);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    CHECK_INT(0, leasehold_handle_count());
}

static void c8_several_threads_of_a_child_may_be_the_first_to_make_something(void)
{
    leasehold_error *error;
    CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping(NULL, &error));
    for (int i = 0; i < 300; i++) CHECK_INT(0, in_fork(child_with_threads, NULL));
    leasehold_error_free(error);
}

/* ---- While something is done for the first time ----------------------------------------------- */

/* What the first thread does, and the child too. The library has not been used before. */
struct first {
    void (*use)(void *);
    void *with;
    int spin;
    pthread_barrier_t start;
};

static void *use_it_first(void *with)
{
    struct first *first = with;
    pthread_barrier_wait(&first->start);
    first->use(first->with);
    return NULL;
}

static void fork_during_the_first_use(void *with)
{
    struct first *first = with;
    pthread_barrier_init(&first->start, NULL, 2);
    pthread_t thread = begin(use_it_first, first);
    pthread_barrier_wait(&first->start);
    for (volatile int i = 0; i < first->spin; i++) continue;
    CHECK_INT(0, in_fork(first->use, first->with));
    finish(thread);
}

static void make_something(void *with)
{
    leasehold_config *config;
    (void)with;
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url("redis://h", 9, &config, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    CHECK(leasehold_handle_count() >= 1);
    leasehold_config_free(config);
}

static void c8_a_fork_may_meet_the_first_call_of_all(void)
{
    for (int round = 0; round < 400; round++) {
        struct first first = {.use = make_something, .spin = round * 25};
        CHECK_INT(0, in_fork(fork_during_the_first_use, &first));
    }
}

static void take_something(void *url)
{
    leasehold_client *client = open_client(url);
    /* With a brace that belongs to no hash tag: there is most to be made for these. */
    give_back(take_name(client, "}n"));
    leasehold_client_free(client);
}

static void c8_a_fork_may_meet_the_first_lock_of_all(struct store *store)
{
    for (int round = 0; round < 20; round++) {
        struct first first = {.use = take_something, .with = store->url, .spin = round * 200000};
        CHECK_INT(0, in_fork(fork_during_the_first_use, &first));
    }
}

/* ---- An SQLite file that only children open --------------------------------------------------- */

static void open_a_file(void *url)
{
    leasehold_client *client = open_client(url);
    give_back(take_name(client, "n"));
    leasehold_client_free(client);
}

static void c8_children_may_share_a_file_that_their_parent_has_not_opened(struct store *store)
{
    /* The library itself has been used here. */
    leasehold_config *config;
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
    for (int i = 0; i < 3; i++) CHECK_INT(0, in_fork(open_a_file, store->url));
    leasehold_config_free(config);
    open_a_file(store->url);
}

/* ---- A library that was there first, and locks its own mutex for a fork ---------------------- */

static pthread_mutex_t theirs = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool theirs_waits;

static void lock_theirs(void)
{
    theirs_waits = true;
    pthread_mutex_lock(&theirs);
}

static void unlock_theirs(void)
{
    pthread_mutex_unlock(&theirs);
}

static void *call_with_theirs(void *held)
{
    pthread_mutex_lock(&theirs);
    theirs_waits = false;
    *(atomic_bool *)held = true;
    EVENTUALLY(theirs_waits);
    CHECK(leasehold_handle_count() > 0);
    pthread_mutex_unlock(&theirs);
    return NULL;
}

static void take_once(void *lock)
{
    give_back(take(lock));
}

static void c8_a_fork_may_wait_for_a_mutex_of_a_thread_that_calls(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    EXPECT(LEASEHOLD_OK, leasehold_client_reopen_after_fork(client, &problem));
    atomic_bool held = false;
    pthread_t thread = begin(call_with_theirs, &held);
    EVENTUALLY(held);
    CHECK_INT(0, in_fork(take_once, lock));
    finish(thread);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

int main(int argc, char **argv)
{
    /* Before the library's, which so run first as a fork begins. */
    pthread_atfork(lock_theirs, unlock_theirs, unlock_theirs);
    runner_start(argc, argv);
    ON_EACH_STORE(c8_a_forked_child_is_told_by_every_function_and_its_parent_loses_nothing);
    ON_REDIS(c8_a_child_of_a_child_is_told_of_both);
    TEST(c8_several_threads_of_a_child_may_be_the_first_to_make_something);
    TEST(c8_a_fork_may_meet_the_first_call_of_all);
    ON_REDIS(c8_a_fork_may_meet_the_first_lock_of_all);
    ON_FILE(c8_children_may_share_a_file_that_their_parent_has_not_opened);
    /* The last one: from here on, forks wait for calls. */
    ON_REDIS(c8_a_fork_may_wait_for_a_mutex_of_a_thread_that_calls);
    return runner_report();
}
