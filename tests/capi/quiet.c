/* The library prints nothing, whatever goes wrong: what it has to say, it says by status and log. */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/support.h"

static void ignore(void *with, leasehold_log_level level, const char *message)
{
    (void)level;
    if (strlen(message) > 0)
        (*(_Atomic int *)with)++;
}

static void fail_to_open(void)
{
    const char *urls[] = {"",
                          "nonsense",
                          "redis://",
                          "redis://h:99999",
                          "sqlite:///proc/version",
                          "sqlite:///no/such/folder/\n",
                          "rediss://h?ca=/no/such/file"};
    leasehold_client *client;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        if (leasehold_client_open(urls[i], LEASEHOLD_NUL, &client, NULL) == LEASEHOLD_OK) {
            leasehold_client_ping(client, NULL);
            leasehold_client_free(client);
        }
}

static void fail_with(struct store *store)
{
    leasehold_client *client = open_client_with(store->url, 100);
    leasehold_lock *lock = make_lock(client, "n");
    leasehold_events *events = subscribe(client);
    leasehold_lease *lease = take_name_for(client, "renewed", 300), *lost, *more = NULL;
    leasehold_event *event;
    lost = take_to_lose(client, "lost", 20);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 1);
    leasehold_lease_release(lost, NULL);
    if (store->server) {
        server_pause(store->server);
        leasehold_lock_try_acquire(lock, &more, NULL);
        leasehold_client_ping(client, NULL);
        EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 2);
        server_resume(store->server);
        server_kill(store->server);
        leasehold_lock_try_acquire(lock, &more, NULL);
    } else {
        /* The file is taken away. */
        CHECK_INT(0, unlink(store->url + strlen("sqlite://")));
        leasehold_lock_try_acquire(lock, &more, NULL);
        leasehold_client_ping(client, NULL);
    }
    leasehold_lease_release(lease, NULL);
    leasehold_events_next_within(events, 0, &event, NULL);
    leasehold_event_free(event);
    leasehold_lease_free(lease);
    leasehold_lease_free(lost);
    leasehold_lease_free(more);
    leasehold_client_close(client, NULL);
    leasehold_client_ping(client, NULL);
    leasehold_events_free(events);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
    leasehold_client_free(client);
}

static void fail_in_a_child(void *client)
{
    leasehold_client_ping(client, NULL);
    leasehold_client_free(client);
    fail_to_open();
}

static void fail_in_every_way(struct store *store)
{
    leasehold_client *client;
    fail_to_open();
    if (leasehold_client_open("redis://127.0.0.1:1", LEASEHOLD_NUL, &client, NULL) == 0) {
        leasehold_client_ping(client, NULL);
        CHECK_INT(0, in_fork(fail_in_a_child, client));
        leasehold_client_free(client);
    }
    struct stranger stranger = stranger_start("!?\r\n");
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?io_timeout=100ms&close_timeout=0s",
             stranger.port);
    if (leasehold_client_open(url, LEASEHOLD_NUL, &client, NULL) == LEASEHOLD_OK) {
        leasehold_lock *lock = make_lock(client, "n");
        leasehold_lease *lease;
        leasehold_client_ping(client, NULL);
        leasehold_lock_try_acquire(lock, &lease, NULL);
        leasehold_lock_free(lock);
        leasehold_client_free(client);
    }
    stranger_end(stranger);
    fail_with(store);
}

static void nothing_is_printed_whatever_goes_wrong(struct store *store)
{
    char folder[200], path[300];
    struct stat written;
    int kept[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    new_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/output", folder);
    int output = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(output >= 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0);

    fail_in_every_way(store);

    dup2(kept[0], STDOUT_FILENO);
    dup2(kept[1], STDERR_FILENO);
    close(kept[0]);
    close(kept[1]);
    CHECK_INT(0, fstat(output, &written));
    close(output);
    CHECK_INT(0, written.st_size);
}

static void what_goes_wrong_is_logged_and_not_printed(struct store *store)
{
    static _Atomic int heard;
    EXPECT(LEASEHOLD_OK, leasehold_log_set(ignore, &heard, LEASEHOLD_LOG_TRACE, &problem));
    nothing_is_printed_whatever_goes_wrong(store);
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
    CHECK(heard > 0);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(nothing_is_printed_whatever_goes_wrong);
    ON_EACH_STORE(what_goes_wrong_is_logged_and_not_printed);
    return runner_report();
}
