// What happens to leases without their holders' doing.

#include "check.hpp"

#include <atomic>
#include <future>
#include <memory>

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
    auto other =
        std::async(std::launch::async, [&] { THROWS(LEASEHOLD_ERR_CLOSED, waiting.next()); });
    client.close();
    other.get();
    CHECK(is_readable(events));
    THROWS(LEASEHOLD_ERR_CLOSED, events.try_next());
    THROWS(LEASEHOLD_ERR_CLOSED, events.next_within(1s));
    THROWS(LEASEHOLD_ERR_CLOSED, client.events());
}

TEST(on_lost_is_called_for_its_lease_alone_and_once) {
    const leasehold::client client{server().url()};
    std::atomic<int> wrong{0}, told{0};
    std::promise<leasehold::event> heard;
    auto kept = client.lock(unused_name()).acquire();
    auto lost = client.lock(unused_name()).ttl(150ms).renew(false).acquire();
    const auto guard = std::make_shared<int>(0);
    kept->on_lost([&, guard](const leasehold::event &) { ++wrong; });
    lost->on_lost([&, guard](const leasehold::event &) { ++wrong; });
    lost->on_lost([&](const leasehold::event &event) { heard.set_value(event); });
    EQUAL(guard.use_count(), 2);
    const auto event = heard.get_future().get();
    CHECK(event.kind == event_kind::lost && event.reason == loss_reason::expired);
    EQUAL(event.fence, lost->fence());
    EQUAL(event.name, lost->name());
    // At once, when it was lost before; and what throws ends nothing.
    lost->on_lost([&](const leasehold::event &) {
        ++told;
        throw std::runtime_error{"of the program"};
    });
    EVENTUALLY(told.load() == 1);
    // One that was moved takes its function along.
    leasehold::lease moved{std::move(*lost)};
    moved.on_lost([&](const leasehold::event &) { ++told; });
    EVENTUALLY(told.load() == 2);
    kept->on_lost({});
    EQUAL(guard.use_count(), 1);
    CHECK(kept->release() == leasehold::outcome::done);
    THROWS(LEASEHOLD_LOST, kept->on_lost([guard](const leasehold::event &) {}));
    EQUAL(guard.use_count(), 1);
    THROWS(LEASEHOLD_ERR_HANDLE, lost->on_lost([](const leasehold::event &) {}));
    EQUAL(wrong.load(), 0);
}

TEST(on_lost_is_not_running_any_more_when_its_lease_is_destroyed) {
    const leasehold::client client{server().url()};
    std::atomic<bool> is_running{false}, is_over{false};
    std::promise<void> go_on;
    auto lease = client.lock(unused_name()).ttl(30ms).acquire();
    lease->on_lost([&, gone = go_on.get_future().share()](const leasehold::event &) {
        is_running = true;
        gone.wait();
        is_over = true;
    });
    EVENTUALLY(is_running.load());
    auto ending = std::async(std::launch::async, [&] {
        lease.reset();
        CHECK(is_over.load());
    });
    CHECK(ending.wait_for(50ms) == std::future_status::timeout);
    go_on.set_value();
    ending.get();
}

TEST(on_lost_may_end_its_lease_and_close_its_client) {
    leasehold::client client{server().url()};
    std::promise<void> done;
    auto lease = client.lock(unused_name()).ttl(30ms).acquire();
    lease->on_lost([&](const leasehold::event &) {
        CHECK(lease->release() == leasehold::outcome::lost);
        lease.reset();
        client.close();
        done.set_value();
    });
    CHECK(done.get_future().wait_for(20s) == std::future_status::ready);
    EVENTUALLY(leasehold::handle_count() == 1); // the client; the event is freed after the call
}
