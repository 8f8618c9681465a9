// What happens to leases without their holders' doing.

#include "check.hpp"

#include <future>

#include <poll.h>

using namespace std::chrono_literals;
using check::server;
using check::unused_name;
using leasehold::event_kind;
using leasehold::loss_reason;

static bool is_readable(const leasehold::events &events) {
    pollfd entry{events.descriptor(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
}

/** The next event of a kind. */
static leasehold::event next(leasehold::events &events, event_kind kind) {
    for (;;) {
        const auto event = events.next_within(20s);
        CHECK(event);
        if (event->kind == kind) return *event;
    }
}

TEST(events_tell_of_a_lost_lease) {
    const leasehold::client client{server().url()};
    auto events = client.events();
    auto second = client.events();
    CHECK(!is_readable(events));
    CHECK(!events.try_next());
    CHECK(!events.next_within(20ms));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, events.next_within(-1s));

    const auto name = unused_name();
    const auto lease = client.lock(name).ttl(3s).acquire();
    server().ask("DEL " + name);
    EVENTUALLY(is_readable(events));
    const auto lost = next(events, event_kind::lost);
    CHECK(lost.reason == loss_reason::not_held);
    EQUAL(lost.name, name);
    EQUAL(lost.fence, lease->fence());
    CHECK(!lease->is_valid());
    CHECK(next(second, event_kind::lost).name == name);
    CHECK(!events.try_next());
    EQUAL(events.dropped(), 0u);
}

TEST_ON_BOTH(events_say_why_a_lease_was_lost) {
    const leasehold::client client{url};
    auto events = client.events();
    const auto brief = client.lock(unused_name()).ttl(150ms).renew(false).acquire();
    CHECK(next(events, event_kind::lost).reason == loss_reason::expired);
    const auto bounded = client.lock(unused_name()).ttl(1500ms).max_hold(1600ms).acquire();
    CHECK(next(events, event_kind::at_risk).reason == loss_reason::none);
    CHECK(next(events, event_kind::lost).reason == loss_reason::max_hold);
}

TEST(events_tell_of_a_lease_that_was_gone_when_it_was_destroyed) {
    const leasehold::client client{server().url()};
    auto events = client.events();
    const std::string name{"late\0name", 9};
    auto lease = client.lock(name).ttl(20s).acquire();
    const auto fence = lease->fence();
    CHECK(client.lock(name).attach(lease->token(), fence).release() == leasehold::outcome::done);
    lease.reset();
    const auto event = next(events, event_kind::released_late);
    CHECK(event.name == name);
    EQUAL(event.fence, fence);
    CHECK(event.reason == loss_reason::none);
}

TEST_ON_BOTH(events_end_with_the_client) {
    leasehold::client client{url};
    auto events = client.events();
    auto waiting = client.events();
    auto other = std::async(std::launch::async,
                            [&] { THROWS(LEASEHOLD_ERR_CLOSED, waiting.next()); });
    client.close();
    other.get();
    CHECK(is_readable(events));
    THROWS(LEASEHOLD_ERR_CLOSED, events.try_next());
    THROWS(LEASEHOLD_ERR_CLOSED, events.next_within(1s));
    THROWS(LEASEHOLD_ERR_CLOSED, client.events());
}
