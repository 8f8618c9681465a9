/* The driver of C; see README.md here. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <leasehold.h>

/* A line has the longest name. */
enum { LINE = 1 << 17, WORDS = 64, THINGS = 16 };

static leasehold_client *client;
static leasehold_events *events;
static char url[LINE];
static struct {
    char key[32];
    leasehold_lock *lock;
} locks[THINGS];
static struct {
    char key[32];
    leasehold_lease *lease;
} leases[THINGS];
static atomic_int interrupted;
static _Atomic(leasehold_election *) candidate;
/* A call writes its answer into one end. */
static int calls[2];

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("@@ ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
    va_end(arguments);
}

static leasehold_lock **lock_of(const char *key)
{
    for (int i = 0; i < THINGS; i++) {
        if (!locks[i].key[0])
            snprintf(locks[i].key, sizeof locks[i].key, "%s", key);
        if (strcmp(locks[i].key, key) == 0)
            return &locks[i].lock;
    }
    abort();
}

static leasehold_lease **lease_of(const char *key)
{
    for (int i = 0; i < THINGS; i++) {
        if (!leases[i].key[0])
            snprintf(leases[i].key, sizeof leases[i].key, "%s", key);
        if (strcmp(leases[i].key, key) == 0)
            return &leases[i].lease;
    }
    abort();
}

static int stop(void *nothing)
{
    (void)nothing;
    return atomic_load(&interrupted);
}

static size_t decode(char *name)
{
    size_t length = 0;
    for (char *from = name; *from; length++) {
        unsigned byte = (unsigned char)*from++;
        if (byte == '%' && sscanf(from, "%2x", &byte) == 1)
            from += 2;
        name[length] = (char)byte;
    }
    return length;
}

/* A new lease in the place of one that is over. */
static leasehold_status keep(const char *key, leasehold_status status, leasehold_lease *lease,
                             char *answer)
{
    if (status != LEASEHOLD_OK)
        return status;
    leasehold_lease_free(*lease_of(key));
    *lease_of(key) = lease;
    sprintf(answer, "ok %" PRIu64, leasehold_lease_fence(lease));
    return status;
}

static leasehold_wait_mode mode_of(const char *how)
{
    return strcmp(how, "spin") == 0 ? LEASEHOLD_WAIT_MODE_SPIN : LEASEHOLD_WAIT_MODE_AUTO;
}

static leasehold_status make_lock(char **word, int words)
{
    leasehold_lock **lock = lock_of(word[1]);
    leasehold_lock_free(*lock);
    leasehold_status status = leasehold_client_lock(client, word[2], decode(word[2]), lock, NULL);
    for (int i = 3; i < words; i++) {
        if (strncmp(word[i], "ttl=", 4) == 0)
            leasehold_lock_set_ttl_ms(*lock, atoll(word[i] + 4));
        else if (strncmp(word[i], "wait=", 5) == 0)
            leasehold_lock_set_wait_ms(*lock, atoll(word[i] + 5));
        else if (strncmp(word[i], "io_timeout=", 11) == 0)
            leasehold_lock_set_io_timeout_ms(*lock, atoll(word[i] + 11));
        else if (strncmp(word[i], "wait_mode=", 10) == 0)
            leasehold_lock_set_wait_mode(*lock, mode_of(word[i] + 10));
        else if (strcmp(word[i], "renew=no") == 0)
            leasehold_lock_set_renew(*lock, false);
    }
    return status == LEASEHOLD_OK ? leasehold_lock_check(*lock, NULL) : status;
}

static leasehold_status take_name(size_t length)
{
    char *name = malloc(length + 1);
    leasehold_lock *lock = NULL;
    leasehold_lease *lease = NULL;
    memset(name, 'n', length);
    leasehold_status status = leasehold_client_lock(client, name, length, &lock, NULL);
    if (status == LEASEHOLD_OK)
        status = leasehold_lock_try_acquire(lock, &lease, NULL);
    if (status == LEASEHOLD_OK)
        status = leasehold_lease_release(lease, NULL);
    leasehold_lease_free(lease);
    leasehold_lock_free(lock);
    free(name);
    return status;
}

static void spell(const leasehold_event *event, char *answer)
{
    static const char *kinds[] = {"none", "at_risk", "lost", "released_late"};
    static const char *reasons[] = {"-", "not_held", "expired", "max_hold", "not_renewed"};
    sprintf(answer, "%s %s %" PRIu64, kinds[leasehold_event_kind(event)],
            reasons[leasehold_event_reason(event)], leasehold_event_fence(event));
}

static leasehold_status next_event(char *answer)
{
    leasehold_event *event;
    leasehold_status status = leasehold_events_next_within(events, 20000, &event, NULL);
    if (status == LEASEHOLD_OK) {
        spell(event, answer);
        leasehold_event_free(event);
    }
    return status;
}

static int call(void *nothing, const leasehold_event *event)
{
    char answer[128] = "";
    (void)nothing;
    spell(event, answer);
    return write(calls[1], answer, sizeof answer) < 0;
}

static leasehold_status next_call(int wait_ms, char *answer)
{
    struct pollfd watched = {calls[0], POLLIN, 0};
    if (poll(&watched, 1, wait_ms) == 0)
        return LEASEHOLD_TIMEOUT;
    return read(calls[0], answer, 128) < 0 ? LEASEHOLD_ERR_EXHAUSTED : LEASEHOLD_OK;
}

static leasehold_status inspect(leasehold_lock *lock, char *answer)
{
    leasehold_lock_state *state;
    leasehold_status status = leasehold_lock_inspect(lock, &state, NULL);
    if (status == LEASEHOLD_OK) {
        strcpy(answer, "free");
        if (leasehold_lock_state_is_held(state))
            sprintf(answer, "held %" PRIu64, leasehold_lock_state_fence(state));
        leasehold_lock_state_free(state);
    }
    return status;
}

/* Only the lease with that fence, unless it is 0. */
static leasehold_status break_it(leasehold_lock *lock, uint64_t if_fence, char *answer)
{
    uint64_t fence;
    leasehold_status status =
        leasehold_lock_break(lock, if_fence, "c", LEASEHOLD_NUL, &fence, NULL);
    if (status == LEASEHOLD_OK)
        sprintf(answer, "ok %" PRIu64, fence);
    if (status != LEASEHOLD_BUSY && status != LEASEHOLD_LOST)
        return status;
    strcpy(answer, "none");
    return LEASEHOLD_OK;
}

static int work(void *nothing, leasehold_term *term)
{
    (void)nothing;
    while (leasehold_term_leads_after_ms(term, 20000)) {
    }
    return 0;
}

static leasehold_status elect(leasehold_lock *lock, int64_t ttl_ms)
{
    leasehold_election *made = NULL;
    int returned = 0;
    size_t length = 0;
    const char *name = leasehold_lock_name(lock, &length);
    leasehold_status status = leasehold_client_election(client, name, length, &made, NULL);
    if (status == LEASEHOLD_OK)
        status = leasehold_election_set_ttl_ms(made, ttl_ms);
    if (status != LEASEHOLD_OK)
        return status;
    atomic_store(&candidate, made);
    return leasehold_election_run_as_leader(made, work, NULL, NULL, &returned, NULL);
}

static leasehold_status leads(char *answer)
{
    for (int asked = 0; asked < 4000; asked++) {
        leasehold_election *election = atomic_load(&candidate);
        uint64_t fence = election ? leasehold_election_fence(election) : 0;
        if (fence > 0) {
            sprintf(answer, "ok %" PRIu64, fence);
            return LEASEHOLD_OK;
        }
        poll(NULL, 0, 5);
    }
    return LEASEHOLD_TIMEOUT;
}

static leasehold_status leader(char *answer)
{
    leasehold_lock_state *state;
    leasehold_status status = leasehold_election_leader(atomic_load(&candidate), &state, NULL);
    if (status == LEASEHOLD_OK) {
        strcpy(answer, "free");
        if (leasehold_lock_state_is_held(state))
            sprintf(answer, "held %" PRIu64, leasehold_lock_state_fence(state));
        leasehold_lock_state_free(state);
    }
    return status;
}

/* What the metrics say of a series. */
static leasehold_status metric(const char *series, char *answer)
{
    leasehold_metrics *metrics;
    leasehold_status status = leasehold_client_metrics(client, &metrics, NULL);
    if (status == LEASEHOLD_OK) {
        const char *line = leasehold_metrics_text(metrics, NULL);
        size_t length = strlen(series);
        strcpy(answer, "none");
        for (; line != NULL; line = strchr(line, '\n')) {
            line += *line == '\n';
            if (strncmp(line, series, length) == 0 && line[length] == ' ')
                snprintf(answer, 32, "ok %.*s", (int)strcspn(line + length + 1, "\n"),
                         line + length + 1);
        }
        leasehold_metrics_free(metrics);
    }
    return status;
}

/* In a forked child: a client of its own. The name is still the parent's to tell. */
static leasehold_status fresh(const char *name, size_t length, char *answer)
{
    leasehold_lock *lock = NULL;
    leasehold_lease *lease = NULL;
    leasehold_status status = leasehold_client_open(url, LEASEHOLD_NUL, &client, NULL);
    if (status == LEASEHOLD_OK)
        status = leasehold_client_lock(client, name, length, &lock, NULL);
    if (status == LEASEHOLD_OK)
        status = leasehold_lock_try_acquire(lock, &lease, NULL);
    if (status == LEASEHOLD_OK)
        sprintf(answer, "ok %" PRIu64, leasehold_lease_fence(lease));
    return status;
}

static leasehold_status contend(char **word, int words, char *answer)
{
    int turns = atoi(word[1]), names = words - 2;
    char reply[LINE];
    for (int turn = 0; turn < turns; turn++) {
        const char *name = word[2 + ((int)getpid() + turn) % names];
        leasehold_lock *lock = NULL;
        leasehold_lease *lease = NULL;
        leasehold_status status = leasehold_client_lock(client, name, LEASEHOLD_NUL, &lock, NULL);
        leasehold_lock_set_ttl_ms(lock, 10000);
        leasehold_lock_set_wait_ms(lock, 60000);
        if (status == LEASEHOLD_OK)
            status = leasehold_lock_acquire(lock, &lease, NULL);
        if (status == LEASEHOLD_OK) {
            uint64_t fence = leasehold_lease_fence(lease);
            say("enter %s %" PRIu64, name, fence);
            if (!fgets(reply, sizeof reply, stdin))
                abort();
            say("leave %s %" PRIu64 " %lld", name, fence, atoll(reply) + 1);
            if (!fgets(reply, sizeof reply, stdin))
                abort();
            status = leasehold_lease_release(lease, NULL);
        }
        leasehold_lease_free(lease);
        leasehold_lock_free(lock);
        if (status != LEASEHOLD_OK)
            return status;
    }
    strcpy(answer, "done");
    return LEASEHOLD_OK;
}

/* A store in memory is one that a test has made, in the process that opens it. */
static leasehold_status make_memory(const char *store)
{
    static const char memory[] = "memory:";
    leasehold_testing_memory *made = NULL;
    leasehold_status status;

    if (strncmp(store, memory, strlen(memory)) != 0)
        return LEASEHOLD_OK;
    store += strlen(memory);
    status = leasehold_testing_memory_open(store, strcspn(store, "?"), &made, NULL);
    leasehold_testing_memory_free(made);
    return status;
}

/* A word says what is asked, and how many come with it. */
static int is(char **word, int words, const char *command, int arguments)
{
    return strcmp(word[0], command) == 0 && words == arguments + 1;
}

static leasehold_status do_it(char **word, int words, char *answer)
{
    leasehold_lease *lease = NULL;
    leasehold_status status;

    strcpy(answer, "ok");
    if (is(word, words, "open", 1) && (status = make_memory(word[1])) < 0)
        return status;
    if (is(word, words, "open", 1))
        return (status =
                    leasehold_client_open(strcpy(url, word[1]), LEASEHOLD_NUL, &client, NULL)) < 0
                   ? status
                   : leasehold_client_reopen_after_fork(client, NULL);
    if (strcmp(word[0], "lock") == 0)
        return make_lock(word, words);
    if (is(word, words, "try", 2)) {
        status = leasehold_lock_try_acquire(*lock_of(word[2]), &lease, NULL);
        return keep(word[1], status, lease, answer);
    }
    if (is(word, words, "acquire", 2)) {
        status = leasehold_lock_acquire_unless(*lock_of(word[2]), stop, NULL, &lease, NULL);
        return keep(word[1], status, lease, answer);
    }
    if (is(word, words, "acquire_within", 3)) {
        status = leasehold_lock_acquire_within(*lock_of(word[2]), atoll(word[3]), NULL, NULL,
                                               &lease, NULL);
        return keep(word[1], status, lease, answer);
    }
    if (is(word, words, "attach", 4)) {
        status = leasehold_lock_attach(*lock_of(word[2]), word[3], LEASEHOLD_NUL,
                                       strtoull(word[4], NULL, 10), &lease, NULL);
        return keep(word[1], status, lease, answer);
    }
    if (is(word, words, "extend", 1))
        return leasehold_lease_extend(*lease_of(word[1]), NULL);
    if (is(word, words, "extend", 2))
        return leasehold_lease_extend_for_ms(*lease_of(word[1]), atoll(word[2]), NULL);
    if (is(word, words, "release", 1))
        return leasehold_lease_release(*lease_of(word[1]), NULL);
    if (is(word, words, "let_expire", 2))
        return leasehold_lease_let_expire_in_ms(*lease_of(word[1]), atoll(word[2]), NULL);
    if (is(word, words, "detach", 1)) {
        lease = *lease_of(word[1]);
        sprintf(answer, "ok %s %" PRIu64, leasehold_lease_token(lease),
                leasehold_lease_fence(lease));
        return leasehold_lease_detach(lease, NULL);
    }
    if (is(word, words, "valid", 1)) {
        strcpy(answer, leasehold_lease_is_valid(*lease_of(word[1])) ? "yes" : "no");
        return LEASEHOLD_OK;
    }
    if (is(word, words, "remaining", 1)) {
        sprintf(answer, "ok %" PRId64, leasehold_lease_remaining_ms(*lease_of(word[1])));
        return LEASEHOLD_OK;
    }
    if (is(word, words, "events", 0))
        return leasehold_client_events(client, &events, NULL);
    if (is(word, words, "event", 0))
        return next_event(answer);
    if (is(word, words, "on_lost", 1))
        return leasehold_lease_on_lost(*lease_of(word[1]), call, NULL, NULL, NULL);
    if (strcmp(word[0], "called") == 0)
        return next_call(words > 1 ? atoi(word[1]) : 20000, answer);
    if (is(word, words, "inspect", 1))
        return inspect(*lock_of(word[1]), answer);
    if (strcmp(word[0], "break") == 0)
        return break_it(*lock_of(word[1]), words > 2 ? strtoull(word[2], NULL, 10) : 0, answer);
    if (is(word, words, "elect", 2))
        return elect(*lock_of(word[1]), atoll(word[2]));
    if (is(word, words, "leads", 0))
        return leads(answer);
    if (is(word, words, "leader", 0))
        return leader(answer);
    if (is(word, words, "withdraw", 0))
        return leasehold_election_stop(atomic_load(&candidate), NULL);
    if (is(word, words, "metric", 1))
        return metric(word[1], answer);
    if (is(word, words, "take_empty_name", 0))
        return take_name(0);
    if (is(word, words, "take_long_name", 1))
        return take_name((size_t)atoll(word[1]));
    if (is(word, words, "close", 0))
        return leasehold_client_close(client, NULL);
    if (strcmp(word[0], "contend") == 0)
        return contend(word, words, answer);
    strcpy(answer, "unsupported");
    return LEASEHOLD_OK;
}

/* The answer to a line, which is taken apart. */
static char *obey(char *line, char *answer)
{
    char *word[WORDS], *rest = line;
    int words = 0;
    while (words < WORDS && (word[words] = strtok_r(rest, " \n", &rest))) words++;
    leasehold_status status = do_it(word, words, answer);
    if (status != LEASEHOLD_OK)
        strcpy(answer, leasehold_status_name(status));
    return answer;
}

static void *obey_begun(void *line)
{
    return obey(line, malloc(LINE));
}

static void in_a_child(char *line, char *answer)
{
    int ends[2];
    char name[LINE];
    size_t length = 0;
    int is_fresh = strncmp(line, "fresh ", 6) == 0;
    if (is_fresh) {
        const char *whole = leasehold_lock_name(*lock_of(strtok(line + 6, " \n")), &length);
        memcpy(name, whole, length);
    }
    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();
    if (child == 0) {
        if (is_fresh) {
            leasehold_status status = fresh(name, length, answer);
            if (status != LEASEHOLD_OK)
                strcpy(answer, leasehold_status_name(status));
        } else {
            obey(line, answer);
        }
        _exit(write(ends[1], answer, strlen(answer)) < 0);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], answer, LINE - 1);
    answer[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    waitpid(child, NULL, 0);
}

int main(void)
{
    static char line[LINE], begun[LINE], answer[LINE];
    pthread_t thread;
    void *ended;

    if (pipe(calls) != 0)
        abort();
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "begin ", 6) == 0) {
            atomic_store(&interrupted, 0);
            strcpy(begun, line + 6);
            pthread_create(&thread, NULL, obey_begun, begun);
            strcpy(answer, "begun");
        } else if (strcmp(line, "end\n") == 0) {
            pthread_join(thread, &ended);
            strcpy(answer, ended);
            free(ended);
        } else if (strcmp(line, "interrupt\n") == 0) {
            atomic_store(&interrupted, 1);
            strcpy(answer, "ok");
        } else if (strncmp(line, "fork ", 5) == 0) {
            in_a_child(line + 5, answer);
        } else {
            obey(line, answer);
        }
        say("%s", answer);
    }
    return 0;
}
