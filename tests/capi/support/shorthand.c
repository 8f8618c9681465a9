#include "shorthand.h"

#include "check.h"
#include "clock.h"

leasehold_client *open_client(const char *url)
{
    return open_client_with(url, 10000);
}

leasehold_client *open_client_with(const char *url, int64_t io_timeout_ms)
{
    leasehold_config *config;
    leasehold_client *client;
    EXPECT(LEASEHOLD_OK, leasehold_config_from_url(url, LEASEHOLD_NUL, &config, &problem));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_config_set_io_timeout_ms(config, io_timeout_ms));
    EXPECT(LEASEHOLD_OK, leasehold_client_open_config(config, &client, &problem));
    leasehold_config_free(config);
    return client;
}

leasehold_lock *make_lock(leasehold_client *client, const char *name)
{
    leasehold_lock *lock;
    EXPECT(LEASEHOLD_OK, leasehold_client_lock(client, name, LEASEHOLD_NUL, &lock, &problem));
    return lock;
}

leasehold_lease *take(leasehold_lock *lock)
{
    leasehold_lease *lease;
    EXPECT(LEASEHOLD_OK,
           leasehold_lock_acquire_within(lock, LIMIT_MS, NULL, NULL, &lease, &problem));
    return lease;
}

leasehold_lease *take_name(leasehold_client *client, const char *name)
{
    leasehold_lock *lock = make_lock(client, name);
    leasehold_lease *lease = take(lock);
    leasehold_lock_free(lock);
    return lease;
}

leasehold_lease *take_name_for(leasehold_client *client, const char *name, int64_t ttl_ms)
{
    leasehold_lock *lock = make_lock(client, name);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, ttl_ms));
    leasehold_lease *lease = take(lock);
    leasehold_lock_free(lock);
    return lease;
}

leasehold_lease *take_to_lose(leasehold_client *client, const char *name, int64_t ttl_ms)
{
    leasehold_lock *lock = make_lock(client, name);
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_ttl_ms(lock, ttl_ms));
    CHECK_STATUS(LEASEHOLD_OK, leasehold_lock_set_renew(lock, false));
    leasehold_lease *lease = take(lock);
    leasehold_lock_free(lock);
    return lease;
}

void give_back(leasehold_lease *lease)
{
    EXPECT(LEASEHOLD_OK, leasehold_lease_release(lease, &problem));
    leasehold_lease_free(lease);
}

uint64_t count(leasehold_client *client, leasehold_counter counter)
{
    uint64_t counted;
    EXPECT(LEASEHOLD_OK, leasehold_client_counter(client, counter, &counted, &problem));
    return counted;
}

static leasehold_lock_state *look(leasehold_client *client, const char *name)
{
    leasehold_lock_state *state;
    leasehold_lock *lock = make_lock(client, name);
    EXPECT(LEASEHOLD_OK, leasehold_lock_inspect(lock, &state, &problem));
    leasehold_lock_free(lock);
    return state;
}

bool is_held(leasehold_client *client, const char *name)
{
    leasehold_lock_state *state = look(client, name);
    bool held = leasehold_lock_state_is_held(state);
    leasehold_lock_state_free(state);
    return held;
}

uint64_t holder_fence(leasehold_client *client, const char *name)
{
    leasehold_lock_state *state = look(client, name);
    uint64_t fence = leasehold_lock_state_fence(state);
    leasehold_lock_state_free(state);
    return fence;
}

int64_t holder_ttl(leasehold_client *client, const char *name)
{
    leasehold_lock_state *state = look(client, name);
    int64_t ttl = leasehold_lock_state_ttl_ms(state);
    leasehold_lock_state_free(state);
    return ttl;
}

leasehold_events *subscribe(leasehold_client *client)
{
    leasehold_events *events;
    EXPECT(LEASEHOLD_OK, leasehold_client_events(client, &events, &problem));
    return events;
}

leasehold_event *next_event(leasehold_events *events)
{
    leasehold_event *event;
    EXPECT(LEASEHOLD_OK, leasehold_events_next_within(events, LIMIT_MS, &event, &problem));
    return event;
}
