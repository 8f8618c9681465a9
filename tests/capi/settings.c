/* Options of clients and locks: what they do, and what comes of those that can never work. */

#include <stdio.h>
#include <stdlib.h>

#include "support/support.h"

static leasehold_config *configure(struct store *store)
{
    leasehold_config *config;
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
    return config;
}

static leasehold_client *open_it(leasehold_config *config)
{
    leasehold_client *client;
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    leasehold_config_free(config);
    return client;
}

/* ---- Clients ---------------------------------------------------------------------------------- */

static void a_prefix_of_any_bytes_is_put_before_names(struct store *store)
{
    leasehold_config *config = configure(store);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(config, "pre\0fix:", 8));
    leasehold_client *client = open_it(config), *plain = open_client(store->url);
    leasehold_lease *lease = take_name(client, "n");
    CHECK(is_held(client, "n") && !is_held(plain, "n"));
    if (store->server)
        CHECK_TEXT("1", server_ask(store->server, "EXISTS \"pre\\x00fix:n\""));
    CHECK_TEXT("n", leasehold_lease_name(lease, NULL));
    give_back(lease);

    config = configure(store);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(config, "pre\0fix:", LEASEHOLD_NUL));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(config, NULL, 0));
    leasehold_client *without = open_it(config);
    lease = take_name(without, "n");
    CHECK(is_held(plain, "n"));
    give_back(lease);
    leasehold_client_free(without);
    leasehold_client_free(client);
    leasehold_client_free(plain);
}

static void c7_io_timeout_is_how_long_a_request_may_take(struct store *store)
{
    leasehold_config *config = configure(store);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_io_timeout_ms(config, 200));
    leasehold_client *client = open_it(config);
    EXPECT(LEASEHOLD_OK, leasehold_client_ping(client, &problem));
    server_pause(store->server);
    struct stopwatch watch = stopwatch_start();
    CHECK(leasehold_client_ping(client, NULL) < 0);
    CHECK_AT_LEAST(150, watch);
    CHECK_AT_MOST(250, watch);
    server_resume(store->server);
    leasehold_client_free(client);
}

static void c14_close_timeout_is_how_long_closing_goes_on_releasing(struct store *store)
{
    struct stopwatch watch;
    const int64_t limits[] = {0, 500};
    for (int i = 0; i < 2; i++) {
        leasehold_config *config = configure(store);
        CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_io_timeout_ms(config, 100));
        CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_close_timeout_ms(config, limits[i]));
        leasehold_client *client = open_it(config);
        leasehold_lease *lease = take_name(client, i ? "a" : "b");
        server_pause(store->server);
        watch = stopwatch_start();
        EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
        CHECK(!leasehold_lease_is_valid(lease));
        if (i)
            CHECK_AT_LEAST(350, watch);
        CHECK_AT_MOST(i ? 550 : 150, watch);
        server_resume(store->server);
        leasehold_lease_free(lease);
        leasehold_client_free(client);
    }
}

static void *take_some_name(void *client)
{
    char name[32];
    static _Atomic int next;
    snprintf(name, sizeof name, "n:%d", next++);
    give_back(take_name(client, name));
    return NULL;
}

static void the_pool_is_how_many_requests_are_under_way_at_once(struct store *store)
{
    leasehold_config *config = configure(store);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_pool(config, 2));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_io_timeout_ms(config, LIMIT_MS));
    leasehold_client *client = open_it(config);
    int before = descriptor_count();
    pthread_t threads[6];
    server_pause(store->server);
    for (int i = 0; i < 6; i++) threads[i] = begin(take_some_name, client);
    EVENTUALLY(descriptor_count() == before + 2);
    pause_ms(50);
    CHECK_INT(before + 2, descriptor_count());
    server_resume(store->server);
    for (int i = 0; i < 6; i++) finish(threads[i]);
    leasehold_client_free(client);
}

static void a_configuration_is_sealed_when_a_client_was_opened_with_it(struct store *store)
{
    leasehold_config *config = configure(store);
    leasehold_client *client, *second;
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(config, "p:", 2));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    CHECK_STATUS(LEASEHOLD_ERR_SEALED, leasehold_config_set_prefix(config, "q:", 2));
    CHECK_STATUS(LEASEHOLD_ERR_SEALED, leasehold_config_set_io_timeout_ms(config, 100));
    CHECK_STATUS(LEASEHOLD_ERR_SEALED, leasehold_config_set_pool(config, 3));
    CHECK_STATUS(LEASEHOLD_ERR_SEALED, leasehold_config_set_close_timeout_ms(config, 100));
    CHECK_STATUS(LEASEHOLD_ERR_SEALED, leasehold_config_set_claim_window_ms(config, 100));
    /* Also what is refused anyway; it does not spoil the next client. */
    CHECK_STATUS(LEASEHOLD_ERR_SEALED, leasehold_config_set_close_timeout_ms(config, -1));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &second, &problem));
    CHECK_TEXT(leasehold_client_store(client), leasehold_config_store(config));
    leasehold_config_free(config);
    leasehold_lease *lease = take_name(client, "n");
    CHECK(is_held(second, "n"));
    give_back(lease);
    leasehold_client_free(client);
    give_back(take_name(second, "n"));
    leasehold_client_free(second);
}

static void refused(leasehold_config *config, const char *reason)
{
    leasehold_client *client = UNTOUCHED;
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_check(config, &problem));
    CHECK_CONTAINS(reason, said);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_client_open_config(config, &client, &problem));
    CHECK_CONTAINS(reason, said);
    CHECK(client == UNTOUCHED);
}

static void a_setting_that_can_never_work_is_refused_until_it_is_made_well(struct store *store)
{
    leasehold_config *config = configure(store);
    char *long_prefix = calloc(1, 65537);
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_config_set_prefix(config, long_prefix, 65537));
    refused(config, "prefix");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(config, long_prefix, 65536));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(config, "", 0));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_io_timeout_ms(config, -1));
    refused(config, "io_timeout");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_io_timeout_ms(config, 0));
    refused(config, "io_timeout");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_config_set_io_timeout_ms(config, 3600 * 1000 + 1));
    refused(config, "io_timeout");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_io_timeout_ms(config, INT64_MAX));
    refused(config, "io_timeout");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_io_timeout_ms(config, 3600 * 1000));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_pool(config, 0));
    refused(config, "pool");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_pool(config, 1025));
    refused(config, "pool");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_pool(config, 1));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_config_set_close_timeout_ms(config, INT64_MIN));
    refused(config, "close_timeout");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_config_set_close_timeout_ms(config, 3600 * 1000 + 1));
    refused(config, "close_timeout");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_close_timeout_ms(config, 3600 * 1000));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_claim_window_ms(config, -1));
    refused(config, "claim_window");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_claim_window_ms(config, 49));
    refused(config, "claim_window");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_config_set_claim_window_ms(config, 60 * 1000 + 1));
    refused(config, "claim_window");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_claim_window_ms(config, 50));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_set_max_ttl_ms(config, 999));
    refused(config, "max_ttl is 999 ms; it goes from 1 s to 366 d");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_max_ttl_ms(config, 5000));
    if (!store->server) {
        CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                     leasehold_config_set_guard_data_loss(config, true));
        refused(config, "guard_data_loss");
        CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_guard_data_loss(config, false));
    }
    EXPECT(LEASEHOLD_OK, leasehold_config_check(config, &problem));

    /* Nothing that was refused has sealed it, and each was made up for. */
    leasehold_client *client = open_it(config);
    give_back(take_name(client, "n"));
    leasehold_lock *lock = make_lock(client, "n");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_ttl_ms(lock, 5001));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_check(lock, &problem));
    CHECK_CONTAINS("this store's max_ttl", said);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    free(long_prefix);
}

static void a_quorum_can_be_said_as_a_list(void)
{
    const char *urls[] = {"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"};
    leasehold_config *config = UNTOUCHED;
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_from_urls(urls, 2, &config, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_from_urls(NULL, 3, &config, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_from_urls(urls, 0, &config, &problem));
    CHECK(config == UNTOUCHED);
    EXPECT(LEASEHOLD_OK, leasehold_config_from_urls(urls, 3, &config, &problem));
    CHECK_TEXT("redis://127.0.0.1:1/0,redis://127.0.0.1:2/0,redis://127.0.0.1:3/0",
               leasehold_config_store(config));
    leasehold_config_free(config);
}

static void only_a_store_with_the_guard_is_declared_new(struct store *store)
{
    leasehold_config *config = configure(store);
    leasehold_client *client = open_it(config);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_client_initialize(client, false, &problem));
    leasehold_client_free(client);
    if (!store->server)
        return;
    config = configure(store);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_guard_data_loss(config, true));
    client = open_it(config);
    EXPECT(LEASEHOLD_OK, leasehold_client_initialize(client, true, &problem));
    give_back(take_name(client, "n"));
    leasehold_client_free(client);
}

/* ---- Locks ------------------------------------------------------------------------------------ */

/* All ways to take a lock refuse what can never work, before anything is sent. */
static void refuses(leasehold_client *client, leasehold_lock *lock, const char *reason)
{
    leasehold_lease *lease = UNTOUCHED;
    const char *token = "0123456789abcdef0123456789abcdef";
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_try_acquire(lock, &lease, &problem));
    CHECK_CONTAINS(reason, said);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_acquire(lock, &lease, &problem));
    CHECK_CONTAINS(reason, said);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_lock_acquire_within(lock, 10, NULL, NULL, &lease, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_attach(lock, token, 32, 1, &lease, &problem));
    CHECK(lease == UNTOUCHED);
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_ATTEMPTS));
    leasehold_lock_state *state;
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    leasehold_lock_state_free(state);
}

static void an_option_that_can_never_work_is_refused_until_it_is_made_well(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    const int64_t bad_ttls[] = {0, 1, 2, INT64_C(367) * 24 * 3600 * 1000, INT64_MAX};
    for (size_t i = 0; i < sizeof bad_ttls / sizeof *bad_ttls; i++) {
        CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_ttl_ms(lock, bad_ttls[i]));
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_check(lock, &problem));
        CHECK_CONTAINS("the ttl is ", said);
        refuses(client, lock, "ttl");
    }
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_ttl_ms(lock, -1));
    refuses(client, lock, "ttl");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 24 * 3600 * 1000));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_wait_ms(lock, -1));
    refuses(client, lock, "wait");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(lock, 1000));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_io_timeout_ms(lock, -1));
    refuses(client, lock, "io_timeout");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_io_timeout_ms(lock, 0));
    refuses(client, lock, "io_timeout");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_io_timeout_ms(lock, 5000));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_max_hold_ms(lock, INT64_MIN));
    refuses(client, lock, "max_hold");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_max_hold_ms(lock, 1));
    refuses(client, lock, "max_hold");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_max_hold_ms(lock, 3600 * 1000));

    const leasehold_wait_mode bad_modes[] = {-1, LEASEHOLD_WAIT_MODE_SPIN + 1, INT32_MAX};
    for (size_t i = 0; i < sizeof bad_modes / sizeof *bad_modes; i++) {
        CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_wait_mode(lock, bad_modes[i]));
        refuses(client, lock, "wait mode");
    }
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_mode(lock, LEASEHOLD_WAIT_MODE_AUTO));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_attempts(lock, 1));
    refuses(client, lock, "'spin'");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_mode(lock, LEASEHOLD_WAIT_MODE_SPIN));

    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_backoff_ms(lock, -1, 10));
    refuses(client, lock, "backoff");
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_backoff_ms(lock, 1, -10));
    refuses(client, lock, "backoff");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_backoff_ms(lock, 1, LEASEHOLD_FOREVER));

    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 50));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, true));
    refuses(client, lock, "renew");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, false));

    /* Two that are wrong: each has to be made well. */
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_ttl_ms(lock, -1));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_lock_set_wait_ms(lock, -1));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 20000));
    refuses(client, lock, "wait");
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_wait_ms(lock, LEASEHOLD_FOREVER));
    leasehold_lease *lease;
    EXPECT(LEASEHOLD_OK, leasehold_lock_acquire(lock, &lease, &problem));

    /* A wait of a single call, and leases that were taken before. */
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_lock_acquire_within(lock, -1, NULL, NULL, &lease, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, 3));
    CHECK(leasehold_lease_remaining_ms(lease) > 10000);
    EXPECT(LEASEHOLD_OK, leasehold_lease_extend(lease, &problem));
    CHECK(leasehold_lease_remaining_ms(lease) > 10000);
    give_back(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(a_prefix_of_any_bytes_is_put_before_names);
    ON_REDIS_IN_TIME(c7_io_timeout_is_how_long_a_request_may_take);
    ON_REDIS_IN_TIME(c14_close_timeout_is_how_long_closing_goes_on_releasing);
    ON_REDIS(the_pool_is_how_many_requests_are_under_way_at_once);
    ON_EACH_STORE(a_configuration_is_sealed_when_a_client_was_opened_with_it);
    ON_EACH_STORE(a_setting_that_can_never_work_is_refused_until_it_is_made_well);
    TEST(a_quorum_can_be_said_as_a_list);
    ON_EACH_STORE(only_a_store_with_the_guard_is_declared_new);
    ON_EACH_STORE(an_option_that_can_never_work_is_refused_until_it_is_made_well);
    return runner_report();
}
