/* What is static, or as good as that: statuses, errors, durations, versions, the count of handles. */

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "support/support.h"

static const struct {
    leasehold_status status;
    const char *name;
    bool retriable;
} statuses[] = {
    {LEASEHOLD_OK, "ok", false},
    {LEASEHOLD_BUSY, "busy", true},
    {LEASEHOLD_TIMEOUT, "timeout", true},
    {LEASEHOLD_INTERRUPTED, "interrupted", true},
    {LEASEHOLD_LOST, "lost", false},
    {LEASEHOLD_UNKNOWN, "unknown", true},
    {LEASEHOLD_ERR_BAD_ARGUMENT, "bad_argument", false},
    {LEASEHOLD_ERR_HANDLE, "handle", false},
    {LEASEHOLD_ERR_CLOSED, "closed", false},
    {LEASEHOLD_ERR_FORKED, "forked", false},
    {LEASEHOLD_ERR_SEALED, "sealed", false},
    {LEASEHOLD_ERR_PANIC, "panic", false},
    {LEASEHOLD_ERR_WOULD_DEADLOCK, "would_deadlock", false},
    {LEASEHOLD_ERR_REFUSED, "refused", true},
    {LEASEHOLD_ERR_NO_ANSWER, "no_answer", true},
    {LEASEHOLD_ERR_AUTH, "auth", false},
    {LEASEHOLD_ERR_TLS, "tls", false},
    {LEASEHOLD_ERR_PERMISSION, "permission", false},
    {LEASEHOLD_ERR_WRONG_TYPE, "wrong_type", false},
    {LEASEHOLD_ERR_READ_ONLY, "read_only", false},
    {LEASEHOLD_ERR_OUT_OF_MEMORY, "out_of_memory", true},
    {LEASEHOLD_ERR_UNAVAILABLE, "unavailable", true},
    {LEASEHOLD_ERR_EXHAUSTED, "exhausted", true},
    {LEASEHOLD_ERR_STORAGE, "storage", false},
    {LEASEHOLD_ERR_PROTOCOL, "protocol", false},
    {LEASEHOLD_ERR_NOT_REPLICATED, "not_replicated", true},
    {LEASEHOLD_ERR_NO_QUORUM, "no_quorum", true},
    {LEASEHOLD_ERR_DISK_FULL, "disk_full", true},
};

#define STATUSES (int)(sizeof statuses / sizeof *statuses)

static void c13_every_status_has_its_own_name_a_meaning_and_an_advice(void)
{
    for (int i = 0; i < STATUSES; i++) {
        leasehold_status status = statuses[i].status;
        CHECK_TEXT(statuses[i].name, leasehold_status_name(status));
        CHECK_INT(statuses[i].retriable, leasehold_status_is_retriable(status));
        const char *texts[] = {leasehold_status_message(status), leasehold_status_advice(status)};
        for (int t = 0; t < 2; t++) {
            if (t == 1 && status == LEASEHOLD_ERR_BAD_ARGUMENT) {
                CHECK_TEXT("", texts[t]);
                continue;
            }
            CHECK(strlen(texts[t]) > 3 && !strpbrk(texts[t], "\r\n"));
            CHECK(texts[t][strlen(texts[t]) - 1] != '.');
        }
        for (int j = 0; j < i; j++)
            CHECK(strcmp(leasehold_status_message(statuses[j].status), texts[0]) != 0);
        /* Static: the same string each time. */
        CHECK(leasehold_status_name(status) == leasehold_status_name(status));
    }
}

static void c13_the_numbers_of_statuses_are_part_of_the_interface(void)
{
    /* In the order of the header: outcomes count up from 0, errors down from -1. */
    for (int i = 0; i < STATUSES; i++) CHECK_INT(i < 6 ? i : 5 - i, statuses[i].status);
}

static void a_number_that_is_no_status_is_called_unlisted(void)
{
    const leasehold_status none[] = {6, -23, 1000, -1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        CHECK_TEXT("unlisted", leasehold_status_name(none[i]));
        CHECK(strlen(leasehold_status_message(none[i])) > 0);
        CHECK(strlen(leasehold_status_advice(none[i])) > 0);
        CHECK(!leasehold_status_is_retriable(none[i]));
    }
}

static void an_error_tells_what_happened_and_what_to_do(void)
{
    leasehold_client *client = UNTOUCHED;
    leasehold_error *error = UNTOUCHED;
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_client_open("redis://h?colour=red", LEASEHOLD_NUL, &client, &error));
    const char *message = leasehold_error_message(error), *detail = leasehold_error_detail(error);
    char expected[512];
    CHECK_INT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_error_status(error));
    CHECK_CONTAINS("'colour'", detail);
    snprintf(expected, sizeof expected, "%s: %s",
             leasehold_status_message(LEASEHOLD_ERR_BAD_ARGUMENT), detail);
    CHECK_TEXT(expected, message);
    /* Borrowed until it is freed, whatever else happens. */
    leasehold_error *second = error;
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_client_open("?", LEASEHOLD_NUL, &client, &second));
    CHECK(second != error);
    CHECK_TEXT(expected, message);
    CHECK(message == leasehold_error_message(error));
    CHECK_INT(2, leasehold_handle_count());
    leasehold_error_free(second);
    leasehold_error_free(error);
    CHECK_INT(0, leasehold_handle_count());

    /* It says which handle is wrong, and how. */
    CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping(NULL, &error));
    snprintf(
        expected, sizeof expected, "%s: %s; %s", leasehold_status_message(LEASEHOLD_ERR_HANDLE),
        "what was given for the client is NULL", leasehold_status_advice(LEASEHOLD_ERR_HANDLE));
    CHECK_TEXT(expected, leasehold_error_message(error));
    leasehold_error_free(error);
    CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping((leasehold_client *)&error, &error));
    CHECK_TEXT("what was given for the client is of another type, or no handle at all",
               leasehold_error_detail(error));
    leasehold_error_free(error);
}

static void c13_an_error_that_says_itself_what_to_do_says_nothing_else(void)
{
    leasehold_client *client;
    EXPECT(LEASEHOLD_OK,
           leasehold_client_open("unix:///nowhere/at/all", LEASEHOLD_NUL, &client, &problem));
    EXPECT_MENDED(LEASEHOLD_ERR_REFUSED, leasehold_client_ping(client, &problem));
    CHECK_CONTAINS(": there is no socket /nowhere/at/all: start the server", said);
    leasehold_client_free(client);
}

static void no_error_says_so(void)
{
    CHECK_INT(LEASEHOLD_OK, leasehold_error_status(NULL));
    CHECK_TEXT("no error", leasehold_error_message(NULL));
    CHECK_TEXT("", leasehold_error_detail(NULL));
    leasehold_error_free(NULL);

    leasehold_error *error;
    CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping(NULL, &error));
    leasehold_error_free(error);
    leasehold_error_free(error);
    CHECK_INT(LEASEHOLD_ERR_HANDLE, leasehold_error_status(error));
    CHECK_CONTAINS("not the handle of an error", leasehold_error_message(error));
    CHECK_TEXT("", leasehold_error_detail(error));
}

static void an_error_is_written_by_every_call_and_never_read(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    leasehold_error *error = UNTOUCHED, *kept;
    CHECK_STATUS(LEASEHOLD_OK, leasehold_client_ping(client, &error));
    CHECK(error == NULL);
    CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_client_ping(NULL, &error));
    kept = error;
    CHECK_STATUS(LEASEHOLD_OK, leasehold_client_ping(client, &error));
    CHECK(error == NULL);
    /* It was overwritten, not freed. */
    CHECK_INT(LEASEHOLD_ERR_HANDLE, leasehold_error_status(kept));
    leasehold_error_free(kept);

    leasehold_lock *lock = make_lock(client, "n");
    leasehold_lease *held = take(lock), *lease = UNTOUCHED;
    error = UNTOUCHED;
    CHECK_STATUS(LEASEHOLD_BUSY, leasehold_lock_try_acquire(lock, &lease, &error));
    CHECK(error == NULL && lease == UNTOUCHED);
    error = UNTOUCHED;
    CHECK_STATUS(LEASEHOLD_TIMEOUT,
                 leasehold_lock_acquire_within(lock, 0, NULL, NULL, &lease, &error));
    CHECK(error == NULL && lease == UNTOUCHED);
    give_back(held);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void durations_are_read_as_people_write_them(void)
{
    const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"0", 0},        {"250ms", 250},  {"10s", 10000},       {"1.5s", 1500},
                {"5m", 300000},  {"1h", 3600000}, {"1d", 86400000},     {"0.1ms", 1},
                {"1.0001ms", 2}, {"0s", 0},       {"1 h 30 m", 5400000}};
    const char *bad[] = {"", "10", "-1s", "s", "1y", "1e3s", "9999999999999999999d", "ms"};
    int64_t ms = 77;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        EXPECT(LEASEHOLD_OK, leasehold_duration_parse(good[i].text, LEASEHOLD_NUL, &ms, &problem));
        CHECK_INT(good[i].ms, ms);
    }
    EXPECT(LEASEHOLD_OK, leasehold_duration_parse("10s and more", 3, &ms, &problem));
    CHECK_INT(10000, ms);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
               leasehold_duration_parse(bad[i], LEASEHOLD_NUL, &ms, &problem));
    CHECK_INT(10000, ms);
}

/* EXPECT sees to it that every sentence is whole, and has no line end. */
static void an_error_that_repeats_what_it_was_given_is_still_one_sentence(void)
{
    int64_t ms;
    leasehold_client *client;
    char folder[200], url[300];
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_duration_parse("1\0s", 3, &ms, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_duration_parse("1\n\r2", 4, &ms, &problem));
    CHECK_CONTAINS("'1\\n\\r2'", said);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_client_open("redis://h?co\nlour=\0red", 20, &client, &problem));
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_client_open("redis://h?io_timeout=%0a%00", LEASEHOLD_NUL, &client, &problem));
    new_folder(folder, sizeof folder);
    snprintf(url, sizeof url, "%s/a\nb", folder);
    CHECK_INT(0, mkdir(url, 0700));
    snprintf(url, sizeof url, "sqlite://%s/a%%0ab", folder);
    EXPECT(LEASEHOLD_ERR_STORAGE, leasehold_client_open(url, LEASEHOLD_NUL, &client, &problem));
}

static void the_library_is_the_one_that_the_header_describes(void)
{
    CHECK_TEXT(LEASEHOLD_VERSION, leasehold_version());
    CHECK_INT(LEASEHOLD_ABI_VERSION, leasehold_abi_version());
}

static void every_type_of_handle_is_counted_until_it_is_freed(struct store *store)
{
    leasehold_config *config;
    leasehold_client *client;
    leasehold_lock *lock;
    leasehold_lease *lease, *lost;
    leasehold_lock_state *state;
    leasehold_events *events;
    leasehold_event *event;
    leasehold_error *error;
    CHECK_INT(0, leasehold_handle_count());
    CHECK(leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, NULL) == LEASEHOLD_OK);
    CHECK_INT(1, leasehold_handle_count());
    CHECK(leasehold_client_open_config(config, &client, NULL) == LEASEHOLD_OK);
    CHECK_INT(2, leasehold_handle_count());
    CHECK(leasehold_client_lock(client, "n", 1, &lock, NULL) == LEASEHOLD_OK);
    CHECK_INT(3, leasehold_handle_count());
    CHECK(leasehold_lock_try_acquire(lock, &lease, NULL) == LEASEHOLD_OK);
    CHECK_INT(4, leasehold_handle_count());
    CHECK(leasehold_lock_inspect(lock, &state, NULL) == LEASEHOLD_OK);
    CHECK_INT(5, leasehold_handle_count());
    CHECK(leasehold_client_events(client, &events, NULL) == LEASEHOLD_OK);
    CHECK_INT(6, leasehold_handle_count());
    CHECK(leasehold_client_ping(NULL, &error) == LEASEHOLD_ERR_HANDLE);
    CHECK_INT(7, leasehold_handle_count());
    lost = take_to_lose(client, "lost", 30);
    CHECK_INT(8, leasehold_handle_count());
    event = next_event(events);
    CHECK_INT(9, leasehold_handle_count());

    /* None of these makes one. */
    CHECK(leasehold_client_ping(NULL, NULL) == LEASEHOLD_ERR_HANDLE);
    CHECK(leasehold_lock_try_acquire(lock, &lost, NULL) == LEASEHOLD_BUSY);
    CHECK_INT(9, leasehold_handle_count());

    leasehold_event_free(event);
    CHECK_INT(8, leasehold_handle_count());
    leasehold_lease_free(lost);
    CHECK_INT(7, leasehold_handle_count());
    leasehold_error_free(error);
    CHECK_INT(6, leasehold_handle_count());
    leasehold_events_free(events);
    CHECK_INT(5, leasehold_handle_count());
    leasehold_lock_state_free(state);
    CHECK_INT(4, leasehold_handle_count());
    leasehold_lease_free(lease);
    CHECK_INT(3, leasehold_handle_count());
    leasehold_lock_free(lock);
    CHECK_INT(2, leasehold_handle_count());
    leasehold_client_free(client);
    CHECK_INT(1, leasehold_handle_count());
    leasehold_config_free(config);
    CHECK_INT(0, leasehold_handle_count());
}

/* A slot of the library's table is used again and again, by handles that differ. */
static void c11_a_handle_that_was_freed_stays_wrong(void)
{
    leasehold_config *kept = NULL, *freed[200];
    for (int in_use = 0; in_use < 2; in_use++) {
        if (in_use)
            EXPECT(LEASEHOLD_OK, leasehold_config_from_url("redis://kept", 12, &kept, &problem));
        for (int i = 0; i < 200; i++) {
            EXPECT(LEASEHOLD_OK, leasehold_config_from_url("redis://h", 9, &freed[i], &problem));
            CHECK_TEXT("redis://h:6379/0", leasehold_config_store(freed[i]));
            leasehold_config_free(freed[i]);
        }
        leasehold_config *last;
        EXPECT(LEASEHOLD_OK, leasehold_config_from_url("redis://last", 12, &last, &problem));
        for (int i = 0; i < 200; i++) {
            CHECK_TEXT("", leasehold_config_store(freed[i]));
            CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_config_set_pool(freed[i], 3));
            leasehold_config_free(freed[i]);
        }
        CHECK_TEXT("redis://last:6379/0", leasehold_config_store(last));
        leasehold_config_free(last);
    }
    CHECK_TEXT("redis://kept:6379/0", leasehold_config_store(kept));
    leasehold_config_free(kept);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    TEST(c13_every_status_has_its_own_name_a_meaning_and_an_advice);
    TEST(c13_the_numbers_of_statuses_are_part_of_the_interface);
    TEST(a_number_that_is_no_status_is_called_unlisted);
    TEST(an_error_tells_what_happened_and_what_to_do);
    TEST(c13_an_error_that_says_itself_what_to_do_says_nothing_else);
    TEST(no_error_says_so);
    ON_EACH_STORE(an_error_is_written_by_every_call_and_never_read);
    TEST(durations_are_read_as_people_write_them);
    TEST(an_error_that_repeats_what_it_was_given_is_still_one_sentence);
    TEST(the_library_is_the_one_that_the_header_describes);
    TEST(c11_a_handle_that_was_freed_stays_wrong);
    ON_EACH_STORE(every_type_of_handle_is_counted_until_it_is_freed);
    return runner_report();
}
