/* What is in the way of a call: each thing has its own status. */

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/support.h"

static void take_fails(leasehold_client *client, leasehold_status expected, const char *name)
{
    leasehold_lease *lease = UNTOUCHED;
    leasehold_lock *lock = make_lock(client, name);
    EXPECT(expected, leasehold_lock_try_acquire(lock, &lease, &problem));
    CHECK(lease == UNTOUCHED);
    leasehold_lock_free(lock);
}

static void c13_what_a_server_refuses_has_its_own_status(struct store *store)
{
    /* What may pass by itself is tried again for so long. */
    leasehold_client *client = open_client_with(store->url, 300);
    server_ask(store->server, "LPUSH list x");
    server_ask(store->server, "SET forever x");
    take_fails(client, LEASEHOLD_ERR_WRONG_TYPE, "list");
    take_fails(client, LEASEHOLD_ERR_WRONG_TYPE, "forever");

    server_ask(store->server, "CONFIG SET maxmemory 1");
    take_fails(client, LEASEHOLD_ERR_OUT_OF_MEMORY, "n");
    server_ask(store->server, "CONFIG SET maxmemory 0");

    server_ask(store->server, "REPLICAOF 127.0.0.1 1");
    take_fails(client, LEASEHOLD_ERR_READ_ONLY, "n");
    server_ask(store->server, "REPLICAOF NO ONE");

    server_ask(store->server, "ACL SETUSER bob on >pw ~only:* &* +@all");
    char url[100];
    leasehold_client *bob;
    snprintf(url, sizeof url, "redis://bob:pw@127.0.0.1:%d", store->server->port);
    EXPECT(LEASEHOLD_OK, leasehold_client_open(url, LEASEHOLD_NUL, &bob, &problem));
    take_fails(bob, LEASEHOLD_ERR_PERMISSION, "n");
    leasehold_client_free(bob);
    snprintf(url, sizeof url, "redis://bob:wrong@127.0.0.1:%d", store->server->port);
    EXPECT(LEASEHOLD_OK, leasehold_client_open(url, LEASEHOLD_NUL, &bob, &problem));
    take_fails(bob, LEASEHOLD_ERR_AUTH, "n");
    leasehold_client_free(bob);

    server_kill(store->server);
    take_fails(client, LEASEHOLD_ERR_REFUSED, "n");
    leasehold_client_free(client);
}

static void c13_a_server_that_speaks_another_language_is_a_protocol_error(void)
{
    char url[64];
    struct stranger stranger = stranger_start("SSH-2.0-OpenSSH_9.2p1\r\n");
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", stranger.port);
    leasehold_client *client = open_client_with(url, 300);
    EXPECT_MENDED(LEASEHOLD_ERR_PROTOCOL, leasehold_client_ping(client, &problem));
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *lease = UNTOUCHED;
    EXPECT_MENDED(LEASEHOLD_ERR_PROTOCOL, leasehold_lock_try_acquire(lock, &lease, &problem));
    CHECK(lease == UNTOUCHED);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    /* Nor does it speak TLS. */
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d", stranger.port);
    client = open_client_with(url, 300);
    EXPECT(LEASEHOLD_ERR_TLS, leasehold_client_ping(client, &problem));
    leasehold_client_free(client);
    stranger_end(stranger);
}

static void c13_a_server_that_is_loading_or_busy_is_unavailable(void)
{
    char url[64];
    struct stranger stranger =
        stranger_start("-LOADING Redis is loading the dataset in memory\r\n");
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", stranger.port);
    leasehold_client *client = open_client_with(url, 200);
    take_fails(client, LEASEHOLD_ERR_UNAVAILABLE, "n");
    leasehold_client_free(client);
    stranger_end(stranger);
}

static void c13_a_process_without_descriptors_is_exhausted(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_events *events = UNTOUCHED;
    struct rlimit before, none = {(rlim_t)descriptor_count() + 3, (rlim_t)descriptor_count() + 3};
    CHECK_INT(0, getrlimit(RLIMIT_NOFILE, &before));
    none.rlim_max = before.rlim_max;
    /* All that are left below the limit. */
    int taken[64], many = 0;
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &none));
    while (many < 64 && (taken[many] = dup(0)) >= 0) many++;
    EXPECT(LEASEHOLD_ERR_EXHAUSTED, leasehold_client_events(client, &events, &problem));
    CHECK(events == UNTOUCHED);
    while (many > 0) close(taken[--many]);
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &before));
    leasehold_events_free(subscribe(client));
    leasehold_client_free(client);
}

static void c13_a_file_that_is_not_ours_is_refused_and_left_as_it_was(void)
{
    char folder[200], path[300], url[400], text[64] = "";
    leasehold_client *client = UNTOUCHED;
    new_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/letter", folder);
    FILE *file = fopen(path, "w");
    fputs("Dear Ann, I have always meant to write to you.", file);
    fclose(file);
    snprintf(url, sizeof url, "sqlite://%s", path);
    EXPECT(LEASEHOLD_ERR_STORAGE, leasehold_client_open(url, LEASEHOLD_NUL, &client, &problem));
    CHECK_CONTAINS(path, said);
    file = fopen(path, "r");
    CHECK(fgets(text, sizeof text, file));
    fclose(file);
    CHECK_TEXT("Dear Ann, I have always meant to write to you.", text);
    snprintf(url, sizeof url, "sqlite://%s", folder);
    EXPECT(LEASEHOLD_ERR_STORAGE, leasehold_client_open(url, LEASEHOLD_NUL, &client, &problem));
    CHECK(client == UNTOUCHED);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_REDIS(c13_what_a_server_refuses_has_its_own_status);
    TEST(c13_a_server_that_speaks_another_language_is_a_protocol_error);
    TEST(c13_a_server_that_is_loading_or_busy_is_unavailable);
    ON_EACH_STORE(c13_a_process_without_descriptors_is_exhausted);
    TEST(c13_a_file_that_is_not_ours_is_refused_and_left_as_it_was);
    return runner_report();
}
