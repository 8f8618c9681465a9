// Waits that no thread stands in.

#include "check.hpp"

#include <map>
#include <vector>

#include <poll.h>

using namespace std::chrono_literals;
using check::unused_name;

static bool is_readable(const leasehold::waits &waits, int wait_ms = 20000) {
    pollfd entry{waits.descriptor(), POLLIN, 0};
    return poll(&entry, 1, wait_ms) == 1;
}

TEST_ON_BOTH(many_waits_end_in_one_thread) {
    // On a busy machine valgrind takes longer than a second from a hand-over to the look at its lease.
    const auto patient = url + "&claim_window=60s";
    const leasehold::client holder{patient}, client{patient};
    std::map<std::uint64_t, leasehold::lease> held;
    auto waits = leasehold::waits::open();
    // In a file each of them looks again and again, which takes long under valgrind.
    const std::uint64_t count = url.rfind("sqlite", 0) == 0 ? 20 : 100;
    for (std::uint64_t id = 0; id < count; id++) {
        const auto name = unused_name();
        held.emplace(id, holder.lock(name).acquire().value());
        waits.start(id, client.lock(name));
    }
    CHECK(!waits.try_next() && !waits.next_within(1ms) && !is_readable(waits, 0));
    CHECK(!waits.take(7));
    while (!held.empty()) {
        const auto fence = held.begin()->second.fence();
        held.erase(held.begin());
        CHECK(is_readable(waits));
        const auto lease = waits.take(waits.next_within(20s).value());
        CHECK(lease && lease->is_valid() && lease->fence() > fence);
    }
    CHECK(!waits.try_next());
}

TEST_ON_BOTH(a_wait_ends_without_a_lease_too) {
    const leasehold::client holder{url}, client{url};
    const auto name = unused_name();
    auto held = holder.lock(name).acquire();
    const leasehold::lock lock = client.lock(name);
    auto waits = leasehold::waits::open();
    waits.start_within(1, lock, 30ms);
    EQUAL(waits.next_within(20s).value(), 1u);
    CHECK(!waits.take(1));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, waits.take(1));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, waits.start_within(1, lock, -1s));

    waits.start(2, lock);
    waits.stop(2);
    held.reset();
    held = holder.lock(name).acquire_within(20s);
    CHECK(held);
    auto moved = std::move(waits);
    THROWS(LEASEHOLD_ERR_HANDLE, waits.start(3, lock));
    moved.start(3, lock);
    CHECK(!moved.try_next());
}
