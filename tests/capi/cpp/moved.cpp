// Objects that were moved from hold nothing, and say so.

#include "check.hpp"

#include <memory>
#include <utility>

using namespace std::chrono_literals;
using check::server;
using check::unused_name;

TEST(moved_from_config_and_client_say_so) {
    leasehold::config config{server().url()};
    const leasehold::config moved_config = std::move(config);
    EQUAL(config.store(), "");
    THROWS(LEASEHOLD_ERR_HANDLE, config.pool(2));
    THROWS(LEASEHOLD_ERR_HANDLE, leasehold::client{config});

    leasehold::client client{moved_config};
    leasehold::client moved = std::move(client);
    moved.ping();
    EQUAL(client.store(), "");
    THROWS(LEASEHOLD_ERR_HANDLE, client.ping());
    THROWS(LEASEHOLD_ERR_HANDLE, client.lock("name"));
    THROWS(LEASEHOLD_ERR_HANDLE, client.events());
    THROWS(LEASEHOLD_ERR_HANDLE, client.counters());
    THROWS(LEASEHOLD_ERR_HANDLE, client.close());
    THROWS(LEASEHOLD_ERR_HANDLE, leasehold::mutex(client, "name"));
    client = std::move(moved);
    client.ping();
}

TEST(moved_from_lock_and_lease_say_so) {
    const leasehold::client client{server().url()};
    auto lock = client.lock(unused_name());
    const leasehold::lock moved_lock = std::move(lock);
    EQUAL(lock.name(), "");
    THROWS(LEASEHOLD_ERR_HANDLE, lock.ttl(1s));
    THROWS(LEASEHOLD_ERR_HANDLE, lock.try_acquire());
    THROWS(LEASEHOLD_ERR_HANDLE, lock.acquire());
    THROWS(LEASEHOLD_ERR_HANDLE, lock.acquire_within(1s, [] { return true; }));
    THROWS(LEASEHOLD_ERR_HANDLE, lock.inspect());
    THROWS(LEASEHOLD_ERR_HANDLE, lock.attach("token", 1));
    THROWS(LEASEHOLD_ERR_HANDLE, leasehold::mutex{std::move(lock)});

    auto lease = moved_lock.acquire();
    const leasehold::lease moved = std::move(*lease);
    EQUAL(lease->fence(), 0u);
    EQUAL(lease->remaining(), 0ms);
    CHECK(!lease->is_valid());
    EQUAL(lease->token(), "");
    EQUAL(lease->name(), "");
    THROWS(LEASEHOLD_ERR_HANDLE, lease->extend());
    THROWS(LEASEHOLD_ERR_HANDLE, lease->extend_for(1s));
    THROWS(LEASEHOLD_ERR_HANDLE, lease->release());
    THROWS(LEASEHOLD_ERR_HANDLE, lease->let_expire());
    THROWS(LEASEHOLD_ERR_HANDLE, lease->let_expire_in(1s));
    THROWS(LEASEHOLD_ERR_HANDLE, lease->detach());
    lease.reset();
    CHECK(moved.is_valid());
    CHECK(!moved_lock.try_acquire());
}

TEST(assigning_a_lease_releases_the_one_before) {
    const leasehold::client client{server().url()};
    const auto one = client.lock(unused_name());
    const auto two = client.lock(unused_name());
    auto lease = one.acquire();
    *lease = std::move(*two.acquire());
    EQUAL(lease->name(), two.name());
    CHECK(one.try_acquire());
    CHECK(!two.try_acquire());
}

TEST(moved_from_events_say_so) {
    const leasehold::client client{server().url()};
    auto events = client.events();
    auto moved = std::move(events);
    THROWS(LEASEHOLD_ERR_HANDLE, events.next());
    THROWS(LEASEHOLD_ERR_HANDLE, events.try_next());
    EQUAL(events.descriptor(), -1);
    EQUAL(events.dropped(), 0u);
    CHECK(!moved.try_next());
}

TEST(objects_may_be_destroyed_in_any_order) {
    auto client = std::make_unique<leasehold::client>(server().url());
    auto lock = client->lock(unused_name());
    auto events = client->events();
    auto lease = lock.acquire();
    leasehold::mutex mutex{*client, unused_name()};
    mutex.lock();
    client.reset();
    CHECK(!lease->is_valid() && !mutex.is_valid());
    THROWS(LEASEHOLD_ERR_CLOSED, lock.try_acquire());
    THROWS(LEASEHOLD_ERR_CLOSED, events.next());
    mutex.unlock();
    EQUAL(mutex.unlock_error().value().status(), LEASEHOLD_ERR_CLOSED);
}
