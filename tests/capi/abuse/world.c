#include "world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URL_THAT_IS_NONE "neither a URL nor a path"

/* What does not work here is no test that has failed, but one that cannot be made. */
static void need(const struct world *world, bool so, const char *what, leasehold_error *error)
{
    if (so)
        return;
    fprintf(stderr, "%s: %s\n", what, world->library.error_message(error));
    exit(2);
}

static leasehold_lock *make_lock(const struct world *world, const char *name)
{
    leasehold_error *error = NULL;
    leasehold_lock *lock;
    leasehold_status status =
        world->library.client_lock(world->handles[CLIENT], name, LEASEHOLD_NUL, &lock, &error);

    need(world, status == LEASEHOLD_OK, "make a lock", error);
    return lock;
}

static leasehold_election *make_election(const struct world *world, const char *name)
{
    leasehold_error *error = NULL;
    leasehold_election *election;
    leasehold_status status = world->library.client_election(world->handles[CLIENT], name,
                                                             LEASEHOLD_NUL, &election, &error);

    need(world, status == LEASEHOLD_OK, "make an election", error);
    return election;
}

/* Of an election of its own: the one of the world stands by for a lock that is held. */
leasehold_term *make_term(const struct world *world)
{
    const struct library *library = &world->library;
    static int count;
    leasehold_error *error = NULL;
    leasehold_election *election;
    leasehold_term *term;
    leasehold_status status;
    char name[sizeof world->name + 24];

    snprintf(name, sizeof name, "%s-term-%d", world->name, count++);
    election = make_election(world, name);
    status = library->election_stand_within(election, 30000, NULL, NULL, &term, &error);
    need(world, status == LEASEHOLD_OK, "be elected", error);
    /* The term has ended with it, and keeps its lock. */
    library->election_free(election);
    return term;
}

/* An event comes of a lease that runs out. */
leasehold_event *make_event(const struct world *world)
{
    const struct library *library = &world->library;
    leasehold_error *error = NULL;
    leasehold_lease *lease;
    leasehold_event *event;
    char name[sizeof world->name + 8];
    leasehold_lock *lock;
    leasehold_status status;

    snprintf(name, sizeof name, "%s-lost", world->name);
    lock = make_lock(world, name);
    library->lock_set_renew(lock, false);
    library->lock_set_ttl_ms(lock, 20);
    status = library->lock_acquire(lock, &lease, &error);
    need(world, status == LEASEHOLD_OK, "take a lock that runs out", error);
    do {
        status = library->events_next_within(world->handles[EVENTS], 10000, &event, &error);
        need(world, status == LEASEHOLD_OK, "be told of a loss", error);
        if (library->event_kind(event) == LEASEHOLD_EVENT_LOST)
            break;
        library->event_free(event);
    } while (true);
    library->lease_free(lease);
    library->lock_free(lock);
    return event;
}

void make_world(struct world *world, struct library library, const char *url, const char *name)
{
    leasehold_error *error = NULL;
    leasehold_status status;
    void **made = world->handles;

    memset(world, 0, sizeof *world);
    world->library = library;
    snprintf(world->name, sizeof world->name, "%s", name);

    status =
        library.config_from_url(url, LEASEHOLD_NUL, (leasehold_config **)&made[CONFIG], &error);
    need(world, status == LEASEHOLD_OK, "read the URL", error);
    snprintf(world->store, sizeof world->store, "%s", library.config_store(made[CONFIG]));
    status = library.client_open_config(made[CONFIG], (leasehold_client **)&made[CLIENT], &error);
    need(world, status == LEASEHOLD_OK, "open a client", error);
    status = library.client_events(made[CLIENT], (leasehold_events **)&made[EVENTS], &error);
    need(world, status == LEASEHOLD_OK, "subscribe", error);
    world->descriptor = library.events_descriptor(made[EVENTS]);
    made[EVENT] = make_event(world);
    status = library.waits_open((leasehold_waits **)&made[WAITS], &error);
    need(world, status == LEASEHOLD_OK, "make a set of waits", error);
    world->waits_descriptor = library.waits_descriptor(made[WAITS]);
    made[LOCK] = make_lock(world, world->name);
    status = library.lock_try_acquire(made[LOCK], (leasehold_lease **)&made[LEASE], &error);
    need(world, status == LEASEHOLD_OK, "take a lock", error);
    world->fence = library.lease_fence(made[LEASE]);
    status = library.lock_inspect(made[LOCK], (leasehold_lock_state **)&made[LOCK_STATE], &error);
    need(world, status == LEASEHOLD_OK, "look at a lock", error);
    status = library.client_metrics(made[CLIENT], (leasehold_metrics **)&made[METRICS], &error);
    need(world, status == LEASEHOLD_OK, "take metrics down", error);
    status =
        library.testing_memory_open(NULL, 0, (leasehold_testing_memory **)&made[MEMORY], &error);
    need(world, status == LEASEHOLD_OK, "make a store for tests", error);
    status = library.testing_memory_busy(made[MEMORY], "n", 1,
                                         (leasehold_testing_effect **)&made[EFFECT], &error);
    need(world, status == LEASEHOLD_OK, "make a lock busy", error);
    status =
        library.testing_memory_held(made[MEMORY], (leasehold_testing_names **)&made[NAMES], &error);
    need(world, status == LEASEHOLD_OK, "list what is held", error);
    made[ELECTION] = make_election(world, world->name);
    made[TERM] = make_term(world);
    world->term_fence = library.term_fence(made[TERM]);
    leasehold_config *none;
    status = library.config_from_url(URL_THAT_IS_NONE, LEASEHOLD_NUL, &none,
                                     (leasehold_error **)&made[ERROR]);
    need(world, status == LEASEHOLD_ERR_BAD_ARGUMENT, "make an error", made[ERROR]);
    const char *harm = harm_to(world);
    need(world, harm == NULL, harm, NULL);
}

const char *harm_to(const struct world *world)
{
    const struct library *library = &world->library;
    void *const *made = world->handles;

    if (strcmp(library->config_store(made[CONFIG]), world->store) != 0)
        return "the configuration";
    if (strcmp(library->client_store(made[CLIENT]), world->store) != 0)
        return "the client";
    if (strcmp(library->lock_name(made[LOCK], NULL), world->name) != 0)
        return "the lock";
    if (!library->lock_state_is_held(made[LOCK_STATE]) ||
        library->lock_state_fence(made[LOCK_STATE]) != world->fence)
        return "the lock state";
    if (strncmp(library->metrics_text(made[METRICS], NULL), "# HELP leasehold_", 17) != 0)
        return "the metrics";
    if (strncmp(library->testing_memory_url(made[MEMORY]), "memory:testing-", 15) != 0)
        return "the store for tests";
    if (library->testing_names_count(made[NAMES]) != 1 ||
        strcmp(library->testing_names_get(made[NAMES], 0, NULL), "n") != 0)
        return "the names";
    if (strcmp(library->election_name(made[ELECTION], NULL), world->name) != 0 ||
        !library->election_is_healthy(made[ELECTION]) ||
        library->election_check(made[ELECTION], NULL) != LEASEHOLD_OK)
        return "the election";
    if (library->term_fence(made[TERM]) != world->term_fence ||
        library->term_end_reason(made[TERM]) != LEASEHOLD_TERM_RESIGNED ||
        library->term_remaining_ms(made[TERM]) == 0)
        return "the term";
    if (library->lease_fence(made[LEASE]) != world->fence ||
        !library->lease_is_valid(made[LEASE]) || strlen(library->lease_token(made[LEASE])) != 32)
        return "the lease";
    if (world->descriptor < 0 || library->events_descriptor(made[EVENTS]) != world->descriptor)
        return "the subscription";
    if (world->waits_descriptor < 0 ||
        library->waits_descriptor(made[WAITS]) != world->waits_descriptor)
        return "the waits";
    if (library->event_kind(made[EVENT]) != LEASEHOLD_EVENT_LOST ||
        library->event_reason(made[EVENT]) != LEASEHOLD_LOSS_EXPIRED)
        return "the event";
    if (library->error_status(made[ERROR]) != LEASEHOLD_ERR_BAD_ARGUMENT ||
        strstr(library->error_message(made[ERROR]), "URL") == NULL)
        return "the error";
    return NULL;
}

/* In an order in which each one is needed: whatever was ended or shut would not answer so. */
static const char *use(const struct world *world)
{
    const struct library *library = &world->library;
    void *const *made = world->handles;
    leasehold_error *error = NULL;
    leasehold_event *event;
    leasehold_lease *lease;
    leasehold_client *client;
    leasehold_turn turn;
    leasehold_term *term;
    uint64_t id;
    leasehold_status status;

    if (library->config_set_pool(made[CONFIG], 2) != LEASEHOLD_ERR_SEALED)
        return "the configuration is not sealed any more";
    if (library->lease_extend(made[LEASE], NULL) != LEASEHOLD_OK)
        return "the lease cannot be extended";
    if (library->lock_try_acquire(made[LOCK], &lease, &error) != LEASEHOLD_BUSY)
        return "the lock is not taken";
    if (library->lease_release(made[LEASE], &error) != LEASEHOLD_OK) {
        fprintf(stderr, "%s\n", library->error_message(error));
        return "the lease cannot be released";
    }
    if (library->lock_try_acquire(made[LOCK], &lease, &error) != LEASEHOLD_OK)
        return "the lock cannot be taken";
    if (library->lease_fence(lease) <= world->fence)
        return "the fence has not grown";
    library->lease_free(lease);
    if (library->waits_start(made[WAITS], made[LOCK], 1, &error) != LEASEHOLD_OK ||
        library->waits_next_within(made[WAITS], 10000, &id, &error) != LEASEHOLD_OK ||
        library->waits_take(made[WAITS], id, &turn, &error) != LEASEHOLD_OK)
        return "the waits do not end";
    library->lease_free(turn.lease);
    if (library->election_stand_within(made[ELECTION], 30000, NULL, NULL, &term, &error) !=
            LEASEHOLD_OK ||
        !library->term_is_leader(term))
        return "the candidate is not elected";
    library->term_free(term);
    if (library->term_resign(made[TERM], &error) != LEASEHOLD_OK)
        return "the term cannot be resigned";
    if (library->client_ping(made[CLIENT], &error) != LEASEHOLD_OK)
        return "the client cannot ping";
    while ((status = library->events_next_within(made[EVENTS], 0, &event, &error)) == LEASEHOLD_OK)
        library->event_free(event);
    if (status != LEASEHOLD_TIMEOUT)
        return "the subscription does not come to an end";
    /* What the effect holds is held, so it can be lost, once. */
    if (library->testing_memory_lose(made[MEMORY], "n", 1, &error) != LEASEHOLD_OK)
        return "the busy lock cannot be lost";
    if (library->client_open_config(made[CONFIG], &client, &error) != LEASEHOLD_OK)
        return "the configuration opens no client";
    library->client_free(client);
    return NULL;
}

const char *end_world(struct world *world)
{
    const struct library *library = &world->library;
    void **made = world->handles;
    const char *wrong = harm_to(world);

    if (wrong == NULL)
        wrong = use(world);
    library->error_free(made[ERROR]);
    library->lock_state_free(made[LOCK_STATE]);
    library->metrics_free(made[METRICS]);
    library->testing_names_free(made[NAMES]);
    library->testing_effect_free(made[EFFECT]);
    library->testing_memory_free(made[MEMORY]);
    library->term_free(made[TERM]);
    library->election_free(made[ELECTION]);
    library->event_free(made[EVENT]);
    library->events_free(made[EVENTS]);
    library->waits_free(made[WAITS]);
    if (wrong == NULL && fcntl(world->descriptor, F_GETFD) != -1)
        wrong = "the descriptor of a freed subscription is still open";
    library->lease_free(made[LEASE]);
    library->lock_free(made[LOCK]);
    library->client_free(made[CLIENT]);
    library->config_free(made[CONFIG]);
    if (wrong == NULL && library->handle_count() != 0)
        return "handles are left";
    return wrong;
}
