/* Opening a store in each way there is, and what a client tells of itself and of its store. */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

/* ---- Ways to open ----------------------------------------------------------------------------- */

/* Whether it is open to the store, on which the onlooker has "mark". */
static void check_open(leasehold_client *client)
{
    EXPECT(LEASEHOLD_OK, leasehold_client_ping(client, &problem));
    CHECK(is_held(client, "mark"));
    leasehold_client_free(client);
}

static void a_store_is_opened_by_url_by_configuration_and_by_environment(struct store *store)
{
    leasehold_client *onlooker = open_client(store->url), *client;
    leasehold_lease *mark = take_name(onlooker, "mark");
    leasehold_config *config;
    size_t length = strlen(store->url);
    char longer[300];

    EXPECT(LEASEHOLD_OK, leasehold_client_open(store->url, LEASEHOLD_NUL, &client, &problem));
    check_open(client);
    /* No byte more than the length says. */
    snprintf(longer, sizeof longer, "%s?no such thing", store->url);
    EXPECT(LEASEHOLD_OK, leasehold_client_open(longer, length, &client, &problem));
    check_open(client);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_client_open(longer, LEASEHOLD_NUL, &client, &problem));

    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(longer, length, &config, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    leasehold_config_free(config);
    check_open(client);

    setenv("LEASEHOLD_URL", store->url, 1);
    EXPECT(LEASEHOLD_OK, leasehold_client_open_env(&client, &problem));
    check_open(client);
    EXPECT(LEASEHOLD_OK, leasehold_config_from_env(&config, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    leasehold_config_free(config);
    check_open(client);
    give_back(mark);
    leasehold_client_free(onlooker);
}

static void without_a_url_it_is_the_embedded_store_of_this_user(void)
{
    char state[200], path[300], expected[400];
    leasehold_client *client;
    leasehold_config *config;
    new_folder(state, sizeof state);
    snprintf(path, sizeof path, "%s/leasehold/locks.db", state);
    snprintf(expected, sizeof expected, "sqlite:%s", path);
    setenv("XDG_STATE_HOME", state, 1);
    EXPECT(LEASEHOLD_OK, leasehold_config_from_env(&config, &problem));
    CHECK_TEXT(expected, leasehold_config_store(config));
    leasehold_config_free(config);
    EXPECT(LEASEHOLD_OK, leasehold_client_open_env(&client, &problem));
    CHECK_TEXT(expected, leasehold_client_store(client));
    give_back(take_name(client, "n"));
    leasehold_client_free(client);
    CHECK_INT(0, access(path, F_OK));
    EXPECT(LEASEHOLD_OK, leasehold_client_open("sqlite:", LEASEHOLD_NUL, &client, &problem));
    CHECK_TEXT(expected, leasehold_client_store(client));
    leasehold_client_free(client);

    for (int set = 0; set < 2; set++) {
        setenv("LEASEHOLD_URL", set ? "http://127.0.0.1" : "", 1);
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_client_open_env(&client, &problem));
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_from_env(&config, &problem));
    }
}

static void a_server_is_reached_by_a_unix_socket_and_with_a_password(void)
{
    char folder[200], options[400], url[400];
    leasehold_client *client;
    new_folder(folder, sizeof folder);
    snprintf(options, sizeof options, "--unixsocket %s/socket --requirepass pass:word", folder);
    struct server *server = server_start(options);
    snprintf(url, sizeof url, "unix://%s/socket?password=pass%%3Aword", folder);
    EXPECT(LEASEHOLD_OK, leasehold_client_open(url, LEASEHOLD_NUL, &client, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_ping(client, &problem));
    snprintf(url, sizeof url, "unix:%s/socket", folder);
    CHECK_TEXT(url, leasehold_client_store(client));
    leasehold_lease *lease = take_name(client, "n");
    leasehold_client *other;
    snprintf(url, sizeof url, "redis://:pass%%3Aword@127.0.0.1:%d", server->port);
    EXPECT(LEASEHOLD_OK, leasehold_client_open(url, LEASEHOLD_NUL, &other, &problem));
    CHECK_INT(leasehold_lease_fence(lease), holder_fence(other, "n"));
    /* Another database is another store. */
    leasehold_client *elsewhere;
    strcat(url, "/5");
    EXPECT(LEASEHOLD_OK, leasehold_client_open(url, LEASEHOLD_NUL, &elsewhere, &problem));
    CHECK(!is_held(elsewhere, "n"));
    snprintf(url, sizeof url, "redis://127.0.0.1:%d/5", server->port);
    CHECK_TEXT(url, leasehold_client_store(elsewhere));
    leasehold_lease_free(lease);
    leasehold_client_free(elsewhere);
    leasehold_client_free(other);
    leasehold_client_free(client);
    server_end(server);
}

static void a_client_can_be_opened_before_its_server(void)
{
    leasehold_client *client;
    struct server *server = server_start(NULL);
    server_kill(server);
    EXPECT(LEASEHOLD_OK, leasehold_client_open(server->url, LEASEHOLD_NUL, &client, &problem));
    EXPECT(LEASEHOLD_ERR_REFUSED, leasehold_client_ping(client, &problem));
    server_restart(server);
    EXPECT(LEASEHOLD_OK, leasehold_client_ping(client, &problem));
    give_back(take_name(client, "n"));
    leasehold_client_free(client);
    server_end(server);
}

/* ---- What a client tells ---------------------------------------------------------------------- */

static void what_is_shown_of_a_lock(struct store *store)
{
    leasehold_client *client = open_client(store->url), *onlooker = open_client(store->url);
    leasehold_lock *lock = make_lock(onlooker, "n");
    leasehold_lock_state *state;
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    CHECK(!leasehold_lock_state_is_held(state));
    CHECK_TEXT("", leasehold_lock_state_token_prefix(state));
    CHECK_INT(0, leasehold_lock_state_ttl_ms(state));
    CHECK_INT(0, leasehold_lock_state_fence(state));
    CHECK_INT(0, leasehold_lock_state_last_fence(state));
    leasehold_lock_state_free(state);

    leasehold_lease *lease = take_name_for(client, "n", 40000);
    uint64_t fence = leasehold_lease_fence(lease);
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    give_back(lease);
    /* It does not change any more. */
    CHECK(leasehold_lock_state_is_held(state));
    CHECK(leasehold_lock_state_ttl_ms(state) > 0 && leasehold_lock_state_ttl_ms(state) <= 40000);
    CHECK_INT(fence, leasehold_lock_state_fence(state));
    CHECK_INT(fence, leasehold_lock_state_last_fence(state));
    leasehold_lock_state_free(state);

    lease = take_name(client, "n");
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    const char *prefix = leasehold_lock_state_token_prefix(state);
    CHECK(strlen(prefix) >= 4 && strlen(prefix) <= 16);
    CHECK(strncmp(leasehold_lease_token(lease), prefix, strlen(prefix)) == 0);
    fence = leasehold_lease_fence(lease);
    give_back(lease);
    leasehold_lock_state_free(state);

    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    CHECK(!leasehold_lock_state_is_held(state));
    CHECK_INT(fence, leasehold_lock_state_last_fence(state));
    leasehold_lock_state_free(state);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(onlooker);
}

static void a_holder_is_shown_with_what_it_says_of_itself(struct store *store)
{
    leasehold_client *client, *onlooker = open_client(store->url);
    leasehold_config *config;
    leasehold_lock *lock = make_lock(onlooker, "n");
    leasehold_lock_state *state = NULL;
    leasehold_lease *lease;
    char pid[24], who[256];

    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
    CHECK_INT(LEASEHOLD_OK, leasehold_config_set_label(config, "billing", 7));
    CHECK_INT(LEASEHOLD_OK, leasehold_config_set_program(config, "worker", LEASEHOLD_NUL));
    CHECK_INT(LEASEHOLD_OK, leasehold_config_set_language(config, "lua", 3));
    CHECK_INT(LEASEHOLD_OK, leasehold_config_set_register(config, true));
    CHECK_INT(LEASEHOLD_OK, leasehold_config_set_advise(config, false));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    lease = take_name(client, "n");
    do {
        leasehold_lock_state_free(state);
        pause_ms(5);
        EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    } while (*leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_CLIENT) == 0);
    CHECK_TEXT("", leasehold_lock_state_fact(state, 7, LEASEHOLD_FACT_WHO));
    CHECK_TEXT("", leasehold_lock_state_fact(state, 0, -1));
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    CHECK_TEXT(pid, leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_PID));
    CHECK_TEXT("worker", leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_PROGRAM));
    CHECK_TEXT("lua", leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_LANGUAGE));
    CHECK_TEXT("billing", leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_LABEL));
    CHECK_TEXT(LEASEHOLD_VERSION, leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_VERSION));
    CHECK(strncmp(leasehold_lease_token(lease),
                  leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_CLIENT), 12) == 0);
    CHECK(atoll(leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_STARTED_MS)) > 1700000000000);
    CHECK_INT(0, leasehold_lock_state_waiters(state));
    CHECK_INT(0, leasehold_lock_state_more_waiters(state));
    snprintf(who, sizeof who, "%s (lua worker, pid %s, label billing)",
             leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_HOST), pid);
    CHECK(strncmp(who, leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_WHO), strlen(who)) == 0);
    leasehold_lock_state_free(state);

    /* So does the reason of a wait that ran out. */
    leasehold_lease *none = NULL;
    EVENTUALLY(leasehold_lock_acquire_within(lock, 500, NULL, NULL, &none, &problem) ==
                   LEASEHOLD_TIMEOUT &&
               problem == NULL && strstr(leasehold_timeout_detail(), who) != NULL);
    give_back(lease);
    leasehold_lock_free(lock);
    leasehold_config_free(config);
    leasehold_client_free(client);
    leasehold_client_free(onlooker);
}

/* What a function for credentials is told, answers and counts. */
struct asked {
    const char *secret, *failure;
    int64_t valid_for_ms;
    atomic_int calls, drops;
};

static int look_up(void *user_data, const char *host, uint16_t port, const char *user,
                   leasehold_credentials *answer)
{
    struct asked *asked = user_data;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    CHECK_TEXT("127.0.0.1", host);
    CHECK(port != 0 && user == NULL);
    asked->calls++;
    answer->user = "app";
    answer->secret = asked->secret;
    answer->failure = asked->failure;
    if (asked->valid_for_ms != 0)
        answer->valid_until_ms = (int64_t)now.tv_sec * 1000 + asked->valid_for_ms;
    return asked->failure != NULL;
}

static void forget(void *user_data)
{
    ((struct asked *)user_data)->drops++;
}

static void credentials_are_looked_up_by_a_function(struct store *store)
{
    struct asked good = {.secret = "s3cret", .valid_for_ms = 60000};
    struct asked sealed = {.failure = "the vault is sealed"};
    struct asked ended = {.secret = "s3cret", .valid_for_ms = -60000};
    struct asked none = {.valid_for_ms = 60000};
    struct {
        struct asked *asked;
        const char *says;
    } wrong[] = {{&sealed, ": the vault is sealed"},
                 {&ended, "returned a secret that ended at 20"},
                 {&none, ": it returned no secret"}};
    leasehold_config *config;
    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *lease;

    server_ask(store->server, "ACL SETUSER app on >s3cret allkeys allchannels allcommands");
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_credentials(config, look_up, &good, forget));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    leasehold_config_free(config);
    give_back(take_name(client, "n"));
    CHECK(good.calls == 1 && good.drops == 0);
    leasehold_client_free(client);
    EVENTUALLY(good.drops == 1);

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        EXPECT(LEASEHOLD_OK,
               leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
        CHECK_STATUS(LEASEHOLD_OK,
                     leasehold_config_set_credentials(config, look_up, wrong[i].asked, forget));
        EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
        lock = make_lock(client, "n");
        CHECK_STATUS(LEASEHOLD_ERR_AUTH, leasehold_lock_try_acquire(lock, &lease, &problem));
        CHECK(strstr(leasehold_error_detail(problem), wrong[i].says) != NULL);
        leasehold_error_free(problem);
        leasehold_lock_free(lock);
        leasehold_client_free(client);
        leasehold_config_free(config);
        EVENTUALLY(wrong[i].asked->drops == 1);
    }

    /* One that is not set is dropped at once. */
    EXPECT(LEASEHOLD_OK,
           leasehold_config_from_url("redis://:p@h", LEASEHOLD_NUL, &config, &problem));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_config_set_credentials(config, look_up, &good, forget));
    CHECK_INT(2, good.drops);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_credentials(config, NULL, NULL, NULL));
    EXPECT(LEASEHOLD_OK, leasehold_config_check(config, &problem));
    leasehold_config_free(config);
}

static void what_is_shown_of_a_lock_that_another_program_holds(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lock_state *state;
    leasehold_lease *lease;
    server_ask(store->server, "SET n somebody PX 50000");
    EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(lock, &lease, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    CHECK(leasehold_lock_state_is_held(state));
    CHECK_INT(0, leasehold_lock_state_fence(state));
    CHECK(leasehold_lock_state_ttl_ms(state) > 0);
    leasehold_lock_state_free(state);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void each_counter_counts_what_it_says(struct store *store)
{
    leasehold_client *client = open_client(store->url), *other = open_client(store->url);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *theirs = take_name(other, "n"), *lease;
    for (leasehold_counter counter = 1; counter <= 8; counter++)
        CHECK_INT(0, count(client, counter));

    for (int i = 0; i < 3; i++)
        EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(lock, &lease, &problem));
    CHECK_INT(3, count(client, LEASEHOLD_COUNTER_ATTEMPTS));
    CHECK_INT(3, count(client, LEASEHOLD_COUNTER_BUSY));
    EXPECT(LEASEHOLD_TIMEOUT, leasehold_lock_acquire_within(lock, 0, NULL, NULL, &lease, &problem));
    CHECK_INT(1, count(client, LEASEHOLD_COUNTER_TIMED_OUT));
    give_back(theirs);
    EXPECT(LEASEHOLD_OK, leasehold_lock_try_acquire(lock, &lease, &problem));
    CHECK_INT(1, count(client, LEASEHOLD_COUNTER_GRANTED));
    CHECK_INT(5, count(client, LEASEHOLD_COUNTER_ATTEMPTS));
    give_back(lease);

    lease = take_name_for(client, "renewed", 300);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_RENEWED) > 0);
    leasehold_lease_free(lease);
    lease = take_to_lose(client, "lost", 30);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 1);
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_RELEASED_LATE));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_release(lease, &problem));
    CHECK_INT(1, count(client, LEASEHOLD_COUNTER_RELEASED_LATE));
    leasehold_lease_free(lease);
    CHECK_INT(0, count(client, LEASEHOLD_COUNTER_UNKNOWN));

    uint64_t counted = 77;
    const leasehold_counter none[] = {0, -1, 9, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
               leasehold_client_counter(client, none[i], &counted, &problem));
    CHECK_INT(77, counted);

    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    CHECK_INT(3, count(client, LEASEHOLD_COUNTER_GRANTED));
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(other);
}

static void metrics_tell_groups_of_names_apart(struct store *store)
{
    leasehold_config *config;
    leasehold_client *client;
    leasehold_metrics *metrics;
    size_t length;
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_add_metrics_group(config, "*", 1));
    CHECK_STATUS(LEASEHOLD_OK,
                 leasehold_config_add_metrics_group(config, "stock:*", LEASEHOLD_NUL));
    /* The good one does not stand for the one that was refused. */
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_config_check(config, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_client_open_config(config, &client, &problem));
    leasehold_config_free(config);
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
    CHECK_STATUS(LEASEHOLD_OK,
                 leasehold_config_add_metrics_group(config, "stock:*", LEASEHOLD_NUL));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_add_metrics_group(config, "a\"b", 3));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    give_back(take_name(client, "stock:1"));
    give_back(take_name(client, "stock:2"));
    give_back(take_name(client, "a\"b"));
    leasehold_lease *lease = take_name(client, "another");

    EXPECT(LEASEHOLD_OK, leasehold_client_metrics(client, &metrics, &problem));
    const char *text = leasehold_metrics_text(metrics, &length);
    CHECK_INT(length, strlen(text));
    CHECK(strstr(text, "\nleasehold_acquisitions_total{lock=\"stock:*\",outcome=\"granted\"} 2\n"));
    CHECK(strstr(text, "\nleasehold_acquisitions_total{lock=\"a\\\"b\",outcome=\"granted\"} 1\n"));
    CHECK(strstr(text, "\nleasehold_hold_seconds_count{lock=\"stock:*\"} 2\n"));
    CHECK(strstr(text, "\nleasehold_held{lock=\"*\"} 1\n"));
    leasehold_metrics_free(metrics);

    EXPECT(LEASEHOLD_OK, leasehold_client_close(client, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_client_metrics(client, &metrics, &problem));
    CHECK(strstr(leasehold_metrics_text(metrics, NULL), "\nleasehold_held{lock=\"*\"} 0\n"));
    leasehold_metrics_free(metrics);
    leasehold_lease_free(lease);
    leasehold_client_free(client);
    leasehold_config_free(config);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(a_store_is_opened_by_url_by_configuration_and_by_environment);
    TEST(without_a_url_it_is_the_embedded_store_of_this_user);
    TEST(a_server_is_reached_by_a_unix_socket_and_with_a_password);
    TEST(a_client_can_be_opened_before_its_server);
    ON_EACH_STORE(what_is_shown_of_a_lock);
    ON_EACH_STORE(a_holder_is_shown_with_what_it_says_of_itself);
    ON_REDIS(credentials_are_looked_up_by_a_function);
    ON_REDIS(what_is_shown_of_a_lock_that_another_program_holds);
    ON_EACH_STORE(each_counter_counts_what_it_says);
    ON_EACH_STORE(metrics_tell_groups_of_names_apart);
    return runner_report();
}
