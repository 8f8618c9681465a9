/* What nearly every test does first; each of these fails the test if it does not succeed. */

#ifndef SHORTHAND_H
#define SHORTHAND_H

#include <leasehold.h>
#include <stdint.h>

/* A client that bears with a store which is given no processor for a while. */
leasehold_client *open_client(const char *url);

/* One whose io_timeout a test waits for. */
leasehold_client *open_client_with(const char *url, int64_t io_timeout_ms);

leasehold_lock *make_lock(leasehold_client *client, const char *name);
leasehold_lease *take(leasehold_lock *lock);

/* A lease on a name, for tests that need no more of its lock. */
leasehold_lease *take_name(leasehold_client *client, const char *name);
leasehold_lease *take_name_for(leasehold_client *client, const char *name, int64_t ttl_ms);

/* One that is not renewed: it is lost in `ttl_ms`. */
leasehold_lease *take_to_lose(leasehold_client *client, const char *name, int64_t ttl_ms);

/* Releases, which must find the lease held, and frees. */
void give_back(leasehold_lease *lease);

uint64_t count(leasehold_client *client, leasehold_counter counter);

/* What somebody sees who only looks. */
bool is_held(leasehold_client *client, const char *name);
uint64_t holder_fence(leasehold_client *client, const char *name);
int64_t holder_ttl(leasehold_client *client, const char *name);

leasehold_events *subscribe(leasehold_client *client);

/* The next event, which must come. */
leasehold_event *next_event(leasehold_events *events);

#endif
