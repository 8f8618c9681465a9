/* A password stays where it was put. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* With characters that have to be encoded in a URL, and as it is written there. */
#define PASSWORD "Zk7/q@w:x#%y?&="
#define ENCODED "Zk7%2Fq%40w%3Ax%23%25y%3F%26%3D"

/* What was logged, told or shown, line by line. */
static char heard[1 << 20];
static size_t heard_length;
static int heard_lines;
static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER;

static void hear(const char *text)
{
    pthread_mutex_lock(&hearing);
    CHECK(heard_length + strlen(text) + 2 < sizeof heard);
    heard_length += (size_t)sprintf(heard + heard_length, "%s\n", text);
    heard_lines++;
    pthread_mutex_unlock(&hearing);
}

static void hear_log(void *with, leasehold_log_level level, const char *message)
{
    (void)with, (void)level;
    hear(message);
}

/* A failure, and all that is told of it. */
static leasehold_status hear_error(leasehold_status status, leasehold_error *error)
{
    CHECK(status != LEASEHOLD_OK && error != NULL);
    hear(leasehold_error_message(error));
    hear(leasehold_error_detail(error));
    leasehold_error_free(error);
    return status;
}

static leasehold_client *open_and_hear(const char *format, int port)
{
    char url[300];
    leasehold_config *config;
    leasehold_client *client;
    snprintf(url, sizeof url, format, ENCODED, port);
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(url, LEASEHOLD_NUL, &config, &problem));
    hear(leasehold_config_store(config));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_io_timeout_ms(config, 300));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    hear(leasehold_client_store(client));
    leasehold_config_free(config);
    return client;
}

static void ping_fails(leasehold_client *client, leasehold_status expected)
{
    leasehold_error *error;
    leasehold_status status = leasehold_client_ping(client, &error);
    CHECK_INT(expected, hear_error(status, error));
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *lease;
    status = leasehold_lock_try_acquire(lock, &lease, &error);
    hear_error(status, error);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void everything_goes_well(struct server *server)
{
    leasehold_client *client = open_and_hear("redis://:%s@127.0.0.1:%d", server->port);
    leasehold_events *events = subscribe(client);
    leasehold_lease *lease = take_name(client, "n"), *lost = take_to_lose(client, "lost", 30);
    leasehold_event *event = next_event(events);
    hear(leasehold_event_name(event, NULL));
    leasehold_error *error;
    server_ask(server, "DEL n");
    leasehold_status status = leasehold_lease_release(lease, &error);
    hear_error(status, error);
    leasehold_event_free(event);
    leasehold_lease_free(lost);
    leasehold_lease_free(lease);
    leasehold_events_free(events);
    leasehold_client_free(client);
}

static void everything_goes_wrong(struct server *server)
{
    ping_fails(open_and_hear("redis://:%sx@127.0.0.1:%d", server->port), LEASEHOLD_ERR_AUTH);
    ping_fails(open_and_hear("redis://bob:%s@127.0.0.1:%d", server->port), LEASEHOLD_ERR_AUTH);
    ping_fails(open_and_hear("redis://:%s@127.0.0.1:%d/9999", server->port),
               LEASEHOLD_ERR_BAD_ARGUMENT);
    ping_fails(open_and_hear("redis://:%s@127.0.0.1:%d", 1), LEASEHOLD_ERR_REFUSED);
    ping_fails(open_and_hear("unix:///no/such/socket?user=bob&password=%s&db=%d", 0),
               LEASEHOLD_ERR_REFUSED);
    /* Says of AUTH what a Redis says of every command that it does not know: all of it. */
    struct stranger stranger = stranger_start(
        "-ERR unknown command 'AUTH', with args beginning with: 'bob' '" PASSWORD "' \r\n");
    ping_fails(open_and_hear("redis://bob:%s@127.0.0.1:%d", stranger.port), LEASEHOLD_ERR_PROTOCOL);
    ping_fails(open_and_hear("rediss://bob:%s@127.0.0.1:%d", stranger.port), LEASEHOLD_ERR_TLS);
    stranger_end(stranger);

    /* Renewals that fail are logged. */
    leasehold_client *client = open_and_hear("redis://:%s@127.0.0.1:%d", server->port);
    leasehold_lease *lease = take_name_for(client, "renewed", 600);
    server_pause(server);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 1);
    leasehold_error *error;
    leasehold_status status = leasehold_lease_extend(lease, &error);
    hear_error(status, error);
    leasehold_lease_free(lease);
    ping_fails(client, LEASEHOLD_ERR_NO_ANSWER);
    server_resume(server);
}

static void the_url_is_wrong(void)
{
    const char *urls[] = {
        /* Written without encoding, by somebody in a hurry. */
        "redis://:" PASSWORD "@127.0.0.1",
        "redis://bob:" PASSWORD "@127.0.0.1:6379/0",
        "unix:///socket?password=" PASSWORD,
        /* And wrong in some other place. */
        "redis://" ENCODED "@127.0.0.1",
        "redis://bob:" ENCODED "@127.0.0.1:99999",
        "redis://bob:" ENCODED "@127.0.0.1/no-number",
        "redis://bob:" ENCODED "@127.0.0.1?colour=red",
        "redis://bob:" ENCODED "@127.0.0.1?pool=many",
        "redis:bob:" ENCODED "@127.0.0.1",
        "http://bob:" ENCODED "@127.0.0.1",
        ENCODED "://127.0.0.1",
        ENCODED,
        "redis://bob:" ENCODED "%ff@127.0.0.1",
        "redis://bob:" ENCODED "\xff@127.0.0.1",
        "unix:///socket?password=" ENCODED "&password=" ENCODED,
    };
    leasehold_error *error;
    leasehold_client *client;
    leasehold_config *config;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        leasehold_status status = leasehold_client_open(urls[i], LEASEHOLD_NUL, &client, &error);
        CHECK_INT(LEASEHOLD_ERR_BAD_ARGUMENT, hear_error(status, error));
        status = leasehold_config_from_url(urls[i], LEASEHOLD_NUL, &config, &error);
        CHECK_INT(LEASEHOLD_ERR_BAD_ARGUMENT, hear_error(status, error));
        setenv("LEASEHOLD_URL", urls[i], 1);
        status = leasehold_client_open_env(&client, &error);
        CHECK_INT(LEASEHOLD_ERR_BAD_ARGUMENT, hear_error(status, error));
    }
}

static void c12_a_password_is_in_no_error_store_or_record_of_the_log(void)
{
    const char *pieces[] = {"Zk7", "q@w", "q%40w", "x%23"};
    struct server *server = server_start("--requirepass " PASSWORD);
    EXPECT(LEASEHOLD_OK, leasehold_log_set(hear_log, NULL, LEASEHOLD_LOG_TRACE, &problem));
    everything_goes_well(server);
    everything_goes_wrong(server);
    the_url_is_wrong();
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    server_end(server);
    if (heard_lines < 100)
        FAIL("only %d lines were heard: %s", heard_lines, heard);
    CHECK_CONTAINS("renewal-failed lock=renewed", heard);
    CHECK_CONTAINS("redis://127.0.0.1:1/0", heard);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        const char *found = strstr(heard, pieces[i]);
        if (found)
            FAIL("heard: %.200s", found);
    }
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    TEST(c12_a_password_is_in_no_error_store_or_record_of_the_log);
    return runner_report();
}
