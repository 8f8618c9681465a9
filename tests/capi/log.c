/* The log: what comes, on which thread, and what its receiver may do. */

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

static void listen_to(leasehold_log_fn function, void *with, leasehold_log_level level)
{
    EXPECT(LEASEHOLD_OK, leasehold_log_set(function, with, level, &problem));
}

static void stop_listening(void)
{
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_OFF, &problem));
}

/* Lets the background thread say that a lease was lost. */
static void lose_one(leasehold_client *client)
{
    uint64_t lost = count(client, LEASEHOLD_COUNTER_LOST);
    leasehold_lease *lease = take_to_lose(client, "lost", 30);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) > lost);
    leasehold_lease_free(lease);
}

/* A lease that nobody holds: extending it says so, on the thread that does. */
static leasehold_lease *nobodys(leasehold_client *client)
{
    leasehold_lock *lock = make_lock(client, "nobody's");
    leasehold_lease *lease;
    EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, "0123456789abcdef0123456789abcdef", 32, 1,
                                               &lease, &problem));
    leasehold_lock_free(lock);
    return lease;
}

static void log_here(leasehold_client *client)
{
    leasehold_lease *lease = nobodys(client);
    EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
    leasehold_lease_free(lease);
}

/* ---- What comes ------------------------------------------------------------------------------- */

struct records {
    pthread_t test;
    atomic_int of_level[6], on_this_thread, elsewhere;
    const char *wanted;
    atomic_int found;
};

static void record(void *with, leasehold_log_level level, const char *message)
{
    struct records *records = with;
    CHECK(level >= LEASEHOLD_LOG_ERROR && level <= LEASEHOLD_LOG_TRACE);
    CHECK(strlen(message) > 5 && !strpbrk(message, "\r\n"));
    records->of_level[level]++;
    if (pthread_equal(records->test, pthread_self()))
        records->on_this_thread++;
    else
        records->elsewhere++;
    if (records->wanted && strstr(message, records->wanted))
        records->found++;
}

static void records_come_on_any_thread_with_what_was_given_for_them(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct records records = {.test = pthread_self(), .wanted = "lock=lost "};
    listen_to(record, &records, LEASEHOLD_LOG_WARN);
    lose_one(client);
    EVENTUALLY(records.elsewhere == 1);
    CHECK_INT(1, records.found);
    CHECK_INT(0, records.on_this_thread);
    log_here(client);
    CHECK_INT(1, records.on_this_thread);
    stop_listening();
    lose_one(client);
    log_here(client);
    CHECK_INT(2, records.of_level[LEASEHOLD_LOG_WARN]);
    leasehold_client_free(client);
}

/* Until a lease is lost because the server is silent; that is logged on several levels. */
static struct records outage(struct store *store, leasehold_log_level level)
{
    leasehold_client *client = open_client_with(store->url, 100);
    struct records records = {.test = pthread_self()};
    leasehold_lease *lease = take_name_for(client, "n", 300);
    listen_to(record, &records, level);
    server_pause(store->server);
    EVENTUALLY(count(client, LEASEHOLD_COUNTER_LOST) == 1);
    server_resume(store->server);
    leasehold_lease_free(lease);
    leasehold_client_free(client);
    stop_listening();
    return records;
}

static void a_level_lets_through_what_is_as_important_or_more(struct store *store)
{
    struct records records = outage(store, LEASEHOLD_LOG_TRACE);
    CHECK(records.of_level[LEASEHOLD_LOG_WARN] > 0 && records.of_level[LEASEHOLD_LOG_DEBUG] > 0);
    records = outage(store, LEASEHOLD_LOG_DEBUG);
    CHECK(records.of_level[LEASEHOLD_LOG_WARN] > 0 && records.of_level[LEASEHOLD_LOG_DEBUG] > 0);
    CHECK_INT(0, records.of_level[LEASEHOLD_LOG_TRACE]);
    records = outage(store, LEASEHOLD_LOG_WARN);
    CHECK(records.of_level[LEASEHOLD_LOG_WARN] > 0);
    CHECK_INT(0, records.of_level[LEASEHOLD_LOG_INFO] + records.of_level[LEASEHOLD_LOG_DEBUG]);
    records = outage(store, LEASEHOLD_LOG_ERROR);
    CHECK_INT(0, records.of_level[LEASEHOLD_LOG_WARN]);
    records = outage(store, LEASEHOLD_LOG_OFF);
    CHECK_INT(0, records.on_this_thread + records.elsewhere);
}

static void a_level_that_there_is_not_is_refused_and_changes_nothing(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct records records = {.test = pthread_self()}, others = {.test = pthread_self()};
    const leasehold_log_level none[] = {-1, 6, INT32_MAX, INT32_MIN};
    listen_to(record, &records, LEASEHOLD_LOG_WARN);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_log_set(record, &others, none[i], &problem));
        EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_log_set(NULL, NULL, none[i], &problem));
    }
    log_here(client);
    CHECK_INT(1, records.on_this_thread);
    CHECK_INT(0, others.on_this_thread);
    stop_listening();
    stop_listening();
    leasehold_client_free(client);
}

static void a_record_is_one_line_whatever_it_tells(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    struct records records = {.test = pthread_self(), .wanted = "a\\n"};
    leasehold_lock *lock;
    leasehold_lease *lease;
    listen_to(record, &records, LEASEHOLD_LOG_TRACE);
    EXPECT(LEASEHOLD_OK, leasehold_client_lock(client, "a\n\0\r\xff", 5, &lock, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_lock_attach(lock, "0123456789abcdef0123456789abcdef", 32, 1,
                                               &lease, &problem));
    EXPECT(LEASEHOLD_LOST, leasehold_lease_extend(lease, &problem));
    stop_listening();
    CHECK_INT(1, records.found);
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    leasehold_client_free(client);
}

/* ---- What its receiver may do ----------------------------------------------------------------- */

struct within {
    leasehold_client *client;
    leasehold_lease *lease;
    atomic_int entered, left;
};

static void use_the_library(void *with, leasehold_log_level level, const char *message)
{
    struct within *within = with;
    (void)level, (void)message;
    within->entered++;
    give_back(take_name(within->client, "another"));
    CHECK(count(within->client, LEASEHOLD_COUNTER_GRANTED) > 0);
    /* What is logged meanwhile on this thread is dropped, so this does not come back here. */
    log_here(within->client);
    within->left++;
}

static void a_receiver_may_call_the_library(struct store *store)
{
    struct within within = {.client = open_client(store->url)};
    listen_to(use_the_library, &within, LEASEHOLD_LOG_TRACE);
    log_here(within.client);
    CHECK_INT(1, within.left);
    lose_one(within.client);
    EVENTUALLY(within.left == 2);
    stop_listening();
    CHECK_INT(2, within.entered);
    leasehold_client_free(within.client);
}

static void release_it(void *with, leasehold_log_level level, const char *message)
{
    struct within *within = with;
    (void)level, (void)message;
    within->entered++;
    CHECK_STATUS(LEASEHOLD_LOST, leasehold_lease_release(within->lease, NULL));
    leasehold_lease_free(within->lease);
    within->left++;
}

static void a_receiver_may_release_the_very_lease_that_it_is_told_of(struct store *store)
{
    struct within within = {.client = open_client(store->url)};
    listen_to(release_it, &within, LEASEHOLD_LOG_WARN);
    /* By the thread that extends it, */
    within.lease = nobodys(within.client);
    CHECK_STATUS(LEASEHOLD_LOST, leasehold_lease_extend(within.lease, NULL));
    CHECK_INT(1, within.left);
    /* and by the one in the background. */
    within.lease = take_to_lose(within.client, "lost", 100);
    EVENTUALLY(within.left == 2);
    stop_listening();
    leasehold_client_free(within.client);
}

static void close_it(void *with, leasehold_log_level level, const char *message)
{
    struct within *within = with;
    (void)level, (void)message;
    within->entered++;
    EXPECT(LEASEHOLD_OK, leasehold_client_close(within->client, &problem));
    within->left++;
}

static void free_it(void *with, leasehold_log_level level, const char *message)
{
    struct within *within = with;
    (void)level, (void)message;
    within->entered++;
    leasehold_client_free(within->client);
    within->left++;
}

static void a_receiver_may_close_and_free_the_client_that_it_is_told_of(struct store *store)
{
    const leasehold_log_fn functions[] = {close_it, free_it};
    for (int i = 0; i < 2; i++)
        for (int in_background = 0; in_background < 2; in_background++) {
            struct within within = {.client = open_client(store->url)};
            leasehold_lease *held = take_name(within.client, "held");
            leasehold_lease *lost =
                in_background ? take_to_lose(within.client, "lost", 100) : nobodys(within.client);
            listen_to(functions[i], &within, LEASEHOLD_LOG_WARN);
            if (!in_background)
                CHECK(leasehold_lease_extend(lost, NULL) != LEASEHOLD_OK);
            EVENTUALLY(within.left == 1);
            stop_listening();
            CHECK_STATUS(LEASEHOLD_ERR_CLOSED, leasehold_lease_extend(held, NULL));
            leasehold_lease_free(held);
            leasehold_lease_free(lost);
            leasehold_client_free(within.client);
        }
}

struct two {
    leasehold_client *clients[2];
    atomic_int entered, left;
};

/* When both are in here, each on the thread of its own client, they close one another's. */
static void close_both(void *with, leasehold_log_level level, const char *message)
{
    struct two *two = with;
    (void)level, (void)message;
    two->entered++;
    EVENTUALLY(two->entered >= 2);
    for (int i = 0; i < 2; i++) leasehold_client_close(two->clients[i], NULL);
    two->left++;
}

static void two_receivers_may_close_one_anothers_clients(struct store *store)
{
    struct two two = {.clients = {open_client(store->url), open_client(store->url)}};
    listen_to(close_both, &two, LEASEHOLD_LOG_WARN);
    leasehold_lease *one = take_to_lose(two.clients[0], "one", 100);
    leasehold_lease *other = take_to_lose(two.clients[1], "other", 100);
    EVENTUALLY(two.left >= 2);
    stop_listening();
    leasehold_lease_free(one);
    leasehold_lease_free(other);
    for (int i = 0; i < 2; i++) leasehold_client_free(two.clients[i]);
}

static void end_the_log(void *with, leasehold_log_level level, const char *message)
{
    struct within *within = with;
    (void)level, (void)message;
    within->entered++;
    /* It cannot be replaced from within, only ended. */
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT,
           leasehold_log_set(record, NULL, LEASEHOLD_LOG_WARN, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_log_set(NULL, NULL, LEASEHOLD_LOG_WARN, &problem));
    EXPECT(LEASEHOLD_OK, leasehold_log_set(end_the_log, with, LEASEHOLD_LOG_OFF, &problem));
    within->left++;
}

static void a_receiver_may_end_the_log(struct store *store)
{
    struct within within = {.client = open_client(store->url)};
    listen_to(end_the_log, &within, LEASEHOLD_LOG_WARN);
    log_here(within.client);
    CHECK_INT(1, within.left);
    log_here(within.client);
    lose_one(within.client);
    CHECK_INT(1, within.entered);
    /* And another one can be set afterwards. */
    struct records records = {.test = pthread_self()};
    listen_to(record, &records, LEASEHOLD_LOG_WARN);
    log_here(within.client);
    CHECK_INT(1, records.on_this_thread);
    stop_listening();
    leasehold_client_free(within.client);
}

/* ---- Replacing it while threads log ----------------------------------------------------------- */

#define LOGGERS 3

/* What user_data leads to. It is given up as soon as another one was set. */
struct receiver {
    atomic_bool given_up;
    atomic_int inside, records;
};

static void receive(void *with, leasehold_log_level level, const char *message)
{
    struct receiver *receiver = with;
    (void)level, (void)message;
    receiver->inside++;
    if (receiver->given_up)
        FAIL("called after it was replaced");
    sched_yield();
    pause_ms(1);
    if (receiver->given_up)
        FAIL("still under way after it was replaced");
    receiver->records++;
    receiver->inside--;
}

struct loggers {
    leasehold_client *client;
    atomic_bool over;
};

static void *log_on_and_on(void *with)
{
    struct loggers *loggers = with;
    while (!loggers->over) log_here(loggers->client);
    return NULL;
}

static void *set_and_end_on_and_on(void *with)
{
    struct loggers *loggers = with;
    while (!loggers->over) {
        struct receiver receiver = {false, 0, 0};
        listen_to(receive, &receiver, LEASEHOLD_LOG_WARN);
        pause_ms(1);
        stop_listening();
        CHECK_INT(0, receiver.inside);
        receiver.given_up = true;
    }
    return NULL;
}

static void nobody_is_in_a_receiver_that_was_replaced(struct store *store)
{
    struct loggers loggers = {open_client(store->url), false};
    static struct receiver receivers[150];
    pthread_t threads[LOGGERS];
    int records = 0;
    for (int i = 0; i < LOGGERS; i++) threads[i] = begin(log_on_and_on, &loggers);
    for (int i = 0; i < 150; i++) {
        listen_to(receive, &receivers[i], LEASEHOLD_LOG_WARN);
        if (i > 0) {
            CHECK_INT(0, receivers[i - 1].inside);
            receivers[i - 1].given_up = true;
        }
        EVENTUALLY(receivers[i].records > 1);
    }
    stop_listening();
    receivers[149].given_up = true;
    loggers.over = true;
    for (int i = 0; i < LOGGERS; i++) finish(threads[i]);
    for (int i = 0; i < 150; i++) records += receivers[i].records;
    CHECK(records >= 300);
    leasehold_client_free(loggers.client);
}

static void several_threads_may_set_at_once(struct store *store)
{
    struct loggers loggers = {open_client(store->url), false};
    pthread_t threads[LOGGERS + 2];
    for (int i = 0; i < LOGGERS; i++) threads[i] = begin(log_on_and_on, &loggers);
    for (int i = 0; i < 2; i++) threads[LOGGERS + i] = begin(set_and_end_on_and_on, &loggers);
    pause_ms(500);
    loggers.over = true;
    for (int i = 0; i < LOGGERS + 2; i++) finish(threads[i]);
    leasehold_client_free(loggers.client);
}

/* ---- As a socket ------------------------------------------------------------------------------- */

static int open_socket(leasehold_log_level level)
{
    int descriptor = -1;
    EXPECT(LEASEHOLD_OK, leasehold_log_socket(level, &descriptor, &problem));
    return descriptor;
}

/* The next record, or "" where there is none yet; NULL at the end. */
static const char *read_record(int descriptor)
{
    static char text[LEASEHOLD_LOG_RECORD + 1];
    ssize_t length = read(descriptor, text, LEASEHOLD_LOG_RECORD);
    if (length == 0)
        return NULL;
    if (length < 0)
        CHECK_INT(EAGAIN, errno);
    text[length < 0 ? 0 : length] = 0;
    return text;
}

static void a_socket_brings_one_record_at_a_time(struct store *store)
{
    leasehold_client *client = open_client(store->url);
    int descriptor = open_socket(LEASEHOLD_LOG_WARN);
    CHECK_TEXT("", read_record(descriptor));
    log_here(client);
    lose_one(client);
    CHECK_TEXT("2lost lock=nobody's fence=1 reason=not_held", read_record(descriptor));
    const char *record;
    EVENTUALLY((record = read_record(descriptor)) && strstr(record, "lock=lost "));
    CHECK_TEXT("", read_record(descriptor));
    /* Whatever the reader does, or does not do, nobody waits for it. */
    for (int i = 0; i < 2000; i++) log_here(client);
    /* Another one ends it, after what is in it. */
    log_here(client);
    int second = open_socket(LEASEHOLD_LOG_WARN);
    int read_before_the_end = 0;
    while (read_record(descriptor)) read_before_the_end++;
    CHECK(read_before_the_end > 10 && read_before_the_end < 2000);
    close(descriptor);
    close(second);
    log_here(client);
    stop_listening();
    leasehold_client_free(client);
    EXPECT(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold_log_socket(LEASEHOLD_LOG_OFF, &second, &problem));
}

static void log_in_a_child(void *with)
{
    const char *url = with;
    leasehold_client *client = open_client(url);
    log_here(client);
    int own = open_socket(LEASEHOLD_LOG_WARN);
    log_here(client);
    CHECK(read_record(own)[0] == '2');
    CHECK_TEXT("", read_record(own));
    stop_listening();
    CHECK(read_record(own) == NULL);
    leasehold_client_free(client);
}

static void c8_a_child_writes_nothing_into_the_socket_of_its_parent(struct store *store)
{
    int descriptor = open_socket(LEASEHOLD_LOG_WARN);
    CHECK_INT(0, in_fork(log_in_a_child, (void *)store->url));
    CHECK_TEXT("", read_record(descriptor));
    stop_listening();
    CHECK(read_record(descriptor) == NULL);
    close(descriptor);
}

int main(int argc, char **argv)
{
    runner_start(argc, argv);
    ON_EACH_STORE(records_come_on_any_thread_with_what_was_given_for_them);
    ON_REDIS(a_level_lets_through_what_is_as_important_or_more);
    ON_FILE(a_level_that_there_is_not_is_refused_and_changes_nothing);
    ON_FILE(a_record_is_one_line_whatever_it_tells);
    ON_EACH_STORE(a_receiver_may_call_the_library);
    ON_EACH_STORE(a_receiver_may_release_the_very_lease_that_it_is_told_of);
    ON_EACH_STORE(a_receiver_may_close_and_free_the_client_that_it_is_told_of);
    ON_EACH_STORE(two_receivers_may_close_one_anothers_clients);
    ON_FILE(a_receiver_may_end_the_log);
    ON_FILE(nobody_is_in_a_receiver_that_was_replaced);
    ON_FILE(several_threads_may_set_at_once);
    ON_REDIS(a_socket_brings_one_record_at_a_time);
    ON_REDIS(c8_a_child_writes_nothing_into_the_socket_of_its_parent);
    return runner_report();
}
