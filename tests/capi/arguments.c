/* Arguments that nobody means, and what comes of them: a status, and nothing else. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/support.h"

#define MOST 65536
#define TOKEN "0123456789abcdef0123456789abcdef"

/* ---- Bytes ------------------------------------------------------------------------------------ */

/* `length` bytes with a page behind them that ends a process which touches it. */
static char *bytes_at_the_edge(size_t length)
{
    const size_t page = 4096;
    size_t room = (length + page - 1) / page * page;
    char *start =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    CHECK_INT(0, mprotect(start + room, page, PROT_NONE));
    char *bytes = start + room - length;
    memset(bytes, 'x', length);
    return bytes;
}

static leasehold_client *client;
static leasehold_lock *lock;
static leasehold_config *config;

/* Every function that takes bytes, in one form. */
typedef leasehold_status function_of_bytes(const char *bytes, size_t length);

static leasehold_status open_bytes(const char *bytes, size_t length)
{
    leasehold_client *opened = UNTOUCHED;
    leasehold_status status = leasehold_client_open(bytes, length, &opened, &problem);
    CHECK(opened == UNTOUCHED);
    return status;
}

static leasehold_status config_bytes(const char *bytes, size_t length)
{
    leasehold_config *read = UNTOUCHED;
    leasehold_status status = leasehold_config_from_url(bytes, length, &read, &problem);
    CHECK(read == UNTOUCHED);
    return status;
}

static leasehold_status lock_bytes(const char *bytes, size_t length)
{
    leasehold_lock *made = UNTOUCHED;
    leasehold_status status = leasehold_client_lock(client, bytes, length, &made, &problem);
    CHECK(made == UNTOUCHED);
    return status;
}

static leasehold_status attach_bytes(const char *bytes, size_t length)
{
    leasehold_lease *lease = UNTOUCHED;
    leasehold_status status = leasehold_lock_attach(lock, bytes, length, 1, &lease, &problem);
    CHECK(lease == UNTOUCHED);
    return status;
}

static leasehold_status duration_bytes(const char *bytes, size_t length)
{
    int64_t ms = 77;
    leasehold_status status = leasehold_duration_parse(bytes, length, &ms, &problem);
    CHECK_INT(77, ms);
    return status;
}

static leasehold_status prefix_bytes(const char *bytes, size_t length)
{
    leasehold_status status = leasehold_config_set_prefix(config, bytes, length);
    /* It has no room for an error: opening a client says why. */
    if (status == LEASEHOLD_ERR_BAD_ARGUMENT) {
        leasehold_client *opened = UNTOUCHED;
        status = leasehold_client_open_config(config, &opened, &problem);
        CHECK(opened == UNTOUCHED);
    }
    return status;
}

static function_of_bytes *const functions[] = {open_bytes,   config_bytes,   lock_bytes,
                                               attach_bytes, duration_bytes, prefix_bytes};

static void set_up(struct store *store)
{
    client = open_client(store->url);
    lock = make_lock(client, "n");
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(store->url, LEASEHOLD_NUL, &config, &problem));
}

static void tear_down(void)
{
    leasehold_config_free(config);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

static void c11_lengths_beyond_the_limit_are_refused_without_a_look(struct store *store)
{
    const size_t lengths[] = {MOST + 1, (size_t)1 << 40, (size_t)INT64_MAX, (size_t)1 << 63,
                              SIZE_MAX - 1};
    char *forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(forbidden != MAP_FAILED);
    set_up(store);
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, functions[f](forbidden, lengths[i]));
            CHECK_CONTAINS("65536", said);
        }
    tear_down();
}

static void c11_bytes_without_a_zero_are_read_no_further_than_the_limit(struct store *store)
{
    char *endless = bytes_at_the_edge(MOST + 1);
    set_up(store);
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, functions[f](endless, LEASEHOLD_NUL));
        CHECK_CONTAINS("65536", said);
    }
    tear_down();
}

static void c11_null_for_bytes_is_refused_unless_there_are_none(struct store *store)
{
    const size_t lengths[] = {1, 5, MOST, MOST + 1, SIZE_MAX - 1, LEASEHOLD_NUL};
    set_up(store);
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, functions[f](NULL, lengths[i]));
            CHECK_CONTAINS("NULL", said);
        }
    /* No bytes at all are as good as "", which only a prefix may be. */
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(config, NULL, 0));
    for (size_t f = 0; f + 1 < sizeof functions / sizeof *functions; f++) {
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, functions[f](NULL, 0));
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, functions[f]("", LEASEHOLD_NUL));
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, functions[f]("ignored", 0));
    }
    tear_down();
}

static void text_that_is_not_utf8_is_refused(struct store *store)
{
    set_up(store);
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        if (functions[f] != lock_bytes && functions[f] != prefix_bytes) {
            EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, functions[f]("redis://\xff\xfe", LEASEHOLD_NUL));
            CHECK_CONTAINS("UTF-8", said);
        }
    tear_down();
}

static leasehold_lease *take_bytes(const char *name, size_t length)
{
    leasehold_lock *made;
    EXPECT(LEASEHOLD_OK, leasehold_client_lock(client, name, length, &made, &problem));
    leasehold_lease *lease = take(made);
    size_t told;
    const char *own = leasehold_lock_name(made, &told);
    if (length != LEASEHOLD_NUL) {
        CHECK_INT(length, told);
        CHECK(memcmp(own, name, length) == 0 && own[length] == 0);
    }
    own = leasehold_lease_name(lease, NULL);
    CHECK(memcmp(own, leasehold_lock_name(made, NULL), told + 1) == 0);
    leasehold_lock_free(made);
    return lease;
}

static void names_may_hold_any_byte(struct store *store)
{
    char every[256];
    for (int i = 0; i < 256; i++) every[i] = (char)i;
    set_up(store);
    /* Names that differ behind a zero are different names. */
    leasehold_lease *leases[] = {take_bytes("a", 1),       take_bytes("a\0", 2),
                                 take_bytes("a\0b", 3),    take_bytes("a\0c", 3),
                                 take_bytes("\0", 1),      take_bytes(every, 256),
                                 take_bytes("\xff\xfe", 2)};
    if (store->server)
        CHECK_TEXT("1", server_ask(store->server, "EXISTS \"a\\x00b\""));
    /* And what ends with a zero is the name in front of it. */
    leasehold_lock *same;
    leasehold_lease *lease;
    EXPECT(LEASEHOLD_OK, leasehold_client_lock(client, "a\0d", LEASEHOLD_NUL, &same, &problem));
    EXPECT(LEASEHOLD_BUSY, leasehold_lock_try_acquire(same, &lease, &problem));
    CHECK_TEXT("a", leasehold_lock_name(same, NULL));
    leasehold_lock_free(same);
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) give_back(leases[i]);
    tear_down();
}

static void the_longest_name_is_taken_and_told(struct store *store)
{
    char *longest = bytes_at_the_edge(MOST);
    char *with_zero = bytes_at_the_edge(MOST + 1);
    size_t length;
    with_zero[MOST] = 0;
    set_up(store);
    leasehold_lease *lease = take_bytes(longest, MOST);
    CHECK(memcmp(longest, leasehold_lease_name(lease, &length), MOST) == 0);
    CHECK_INT(MOST, length);
    give_back(lease);
    give_back(take_bytes(with_zero, LEASEHOLD_NUL));
    tear_down();
}

static void bytes_are_copied(struct store *store)
{
    char url[300], name[] = "name", prefix[] = "p:";
    leasehold_config *copied;
    leasehold_client *opened;
    leasehold_lock *made;
    snprintf(url, sizeof url, "%s", store->url);
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(url, LEASEHOLD_NUL, &copied, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_prefix(copied, prefix, LEASEHOLD_NUL));
    memset(url, '?', sizeof url);
    memset(prefix, '?', sizeof prefix);
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(copied, &opened, &problem));
    leasehold_config_free(copied);
    EXPECT(LEASEHOLD_OK, leasehold_client_lock(opened, name, LEASEHOLD_NUL, &made, &problem));
    memset(name, '?', sizeof name);
    CHECK_TEXT("name", leasehold_lock_name(made, NULL));
    leasehold_lease *lease = take(made);
    leasehold_lock_free(made);
    set_up(store);
    CHECK(is_held(client, "p:name"));
    give_back(lease);
    leasehold_client_free(opened);
    tear_down();
}

/* ---- NULL ------------------------------------------------------------------------------------- */

static void c11_null_for_an_output_is_refused_before_anything_is_done(struct store *store)
{
    set_up(store);
    leasehold_events *events = subscribe(client);
    leasehold_lease *lost = take_to_lose(client, "lost", 30);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 1);
    uint64_t attempts = count(client, LEASEHOLD_COUNTER_ATTEMPTS);
    size_t handles = leasehold_handle_count();
    const leasehold_status bad = LEASEHOLD_ERR_BAD_ARGUMENT;

    EXPECT(bad, leasehold_client_open(store->url, LEASEHOLD_NUL, NULL, &problem));
    EXPECT(bad, leasehold_client_open_env(NULL, &problem));
    EXPECT(bad, leasehold_client_open_config(config, NULL, &problem));
    EXPECT(bad, leasehold_config_from_url(store->url, LEASEHOLD_NUL, NULL, &problem));
    EXPECT(bad, leasehold_config_from_env(NULL, &problem));
    EXPECT(bad, leasehold_client_lock(client, "n", 1, NULL, &problem));
    EXPECT(bad, leasehold_client_events(client, NULL, &problem));
    EXPECT(bad, leasehold_client_counter(client, LEASEHOLD_COUNTER_LOST, NULL, &problem));
    EXPECT(bad, leasehold_lock_try_acquire(lock, NULL, &problem));
    EXPECT(bad, leasehold_lock_acquire(lock, NULL, &problem));
    EXPECT(bad, leasehold_lock_acquire_within(lock, 10, NULL, NULL, NULL, &problem));
    EXPECT(bad, leasehold_lock_attach(lock, TOKEN, 32, 1, NULL, &problem));
    EXPECT(bad, leasehold_lock_inspect(lock, NULL, &problem));
    EXPECT(bad, leasehold_events_next_within(events, 0, NULL, &problem));
    EXPECT(bad, leasehold_duration_parse("1s", 2, NULL, &problem));

    CHECK_INT(handles, leasehold_handle_count());
    CHECK_INT(attempts, count(client, LEASEHOLD_COUNTER_ATTEMPTS));
    CHECK(!is_held(client, "n"));
    /* The configuration is not sealed, and the event is still there. */
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_pool(config, 3));
    leasehold_event_free(next_event(events));
    leasehold_lease_free(lost);
    leasehold_events_free(events);
    tear_down();
}

static void null_for_an_error_or_a_length_is_allowed(struct store *store)
{
    leasehold_client *opened;
    leasehold_lease *lease, *second;
    set_up(store);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_client_open(store->url, LEASEHOLD_NUL, &opened, NULL));
    CHECK_STATUS(LEASEHOLD_ERR_BAD_ARGUMENT,
                 leasehold_client_open("?", LEASEHOLD_NUL, &opened, NULL));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_try_acquire(lock, &lease, NULL));
    CHECK_STATUS(LEASEHOLD_BUSY, leasehold_lock_try_acquire(lock, &second, NULL));
    CHECK_STATUS(LEASEHOLD_TIMEOUT,
                 leasehold_lock_acquire_within(lock, 1, NULL, NULL, &second, NULL));
    CHECK_TEXT("n", leasehold_lease_name(lease, NULL));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lease_release(lease, NULL));
    CHECK_STATUS(LEASEHOLD_LOST, leasehold_lease_release(lease, NULL));
    CHECK_STATUS(LEASEHOLD_ERR_HANDLE, leasehold_lease_extend(NULL, NULL));
    leasehold_lease_free(lease);
    leasehold_client_free(opened);
    tear_down();
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_FILE(c11_lengths_beyond_the_limit_are_refused_without_a_look);
    ON_FILE(c11_bytes_without_a_zero_are_read_no_further_than_the_limit);
    ON_FILE(c11_null_for_bytes_is_refused_unless_there_are_none);
    ON_FILE(text_that_is_not_utf8_is_refused);
    ON_EACH_STORE(names_may_hold_any_byte);
    ON_EACH_STORE(the_longest_name_is_taken_and_told);
    ON_EACH_STORE(bytes_are_copied);
    ON_EACH_STORE(c11_null_for_an_output_is_refused_before_anything_is_done);
    ON_EACH_STORE(null_for_an_error_or_a_length_is_allowed);
    return runner_report();
}
