// Functions that can end a wait.

#include "check.hpp"

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#if __cplusplus >= 202002L
#include <stop_token>
#endif

using namespace std::chrono_literals;
using check::unused_name;

static bool always() { return true; }

TEST_ON_BOTH(interrupt_ends_a_wait) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name());
    auto held = lock.acquire();
    int asked = 0;
    const auto me = std::this_thread::get_id();
    CHECK(!lock.acquire_within(1h, [&] {
        CHECK(std::this_thread::get_id() == me);
        return ++asked == 3;
    }));
    EQUAL(asked, 3);
    CHECK(held->is_valid());
}

TEST(interrupt_may_be_anything_that_can_be_called) {
    const leasehold::client client{check::server().url()};
    const auto lock = client.lock(unused_name());
    const auto held = lock.acquire();
    CHECK(!lock.acquire_within(1h, always));
    CHECK(!lock.acquire_within(1h, &always));
    CHECK(!lock.acquire_within(1h, std::function<bool()>{always}));
    CHECK(!lock.acquire_within(1h, [left = 2]() mutable { return --left == 0; }));

    struct counter {
        int asked = 0;
        bool operator()() { return ++asked == 2; }
    } counter;
    CHECK(!lock.acquire_within(1h, counter));
    EQUAL(counter.asked, 2); // the one that was given, and no copy
    const auto yes = [] { return 1; };
    CHECK(!lock.acquire_within(1h, yes));
#if __cplusplus >= 202002L
    std::stop_source source;
    source.request_stop();
    CHECK(
        !lock.acquire_within(1h, [token = source.get_token()] { return token.stop_requested(); }));
#endif
}

TEST_ON_BOTH(interrupt_that_never_says_so_changes_nothing) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name());
    const auto never = [] { return false; };
    const auto lease = lock.acquire_within(1s, never);
    CHECK(lease);
    CHECK(!lock.acquire_within(50ms, never));
}

TEST_ON_BOTH(interrupt_goes_with_the_locks_own_wait) {
    const leasehold::client client{url};
    auto lock = client.lock(unused_name()).wait(1h);
    int asked = 0;
    const auto twice = [&] { return ++asked == 2; };
    auto held = lock.acquire_unless(twice);
    CHECK(held);
    asked = 0;
    CHECK(!lock.acquire_unless(twice));
    EQUAL(asked, 2);
    CHECK(!lock.wait(50ms).acquire_unless([] { return false; }));
    const auto throws = []() -> bool { throw std::runtime_error{"mine"}; };
    try {
        static_cast<void>(lock.wait(1h).acquire_unless(throws));
        CHECK(false);
    } catch (const std::runtime_error &thrown) {
        EQUAL(std::string{thrown.what()}, "mine");
    }
}

TEST_ON_BOTH(interrupt_may_throw) {
    struct ctrl_c {
        int number;
    };
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name());
    auto held = lock.acquire();
    int caught = 0;
    int asked = 0;
    try {
        static_cast<void>(lock.acquire_within(1h, [&]() -> bool {
            ++asked;
            throw ctrl_c{7};
        }));
    } catch (const ctrl_c &thrown) {
        caught = thrown.number;
    }
    EQUAL(caught, 7);
    EQUAL(asked, 1);
    CHECK(held->release() == leasehold::outcome::done);
}

TEST_ON_BOTH(interrupt_that_throws_leaves_nothing_held) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name());
    for (int turn = 0; turn < 20; ++turn) {
        auto held = lock.acquire();
        bool thrown = false;
        try {
            // At this very moment, the lock comes free.
            const auto lease = lock.acquire_within(1h, [&]() -> bool {
                held.reset();
                throw std::runtime_error{"enough"};
            });
        } catch (const std::runtime_error &) {
            thrown = true;
        }
        CHECK(thrown);
        // Who waited may keep a place among the waiters for a moment.
        EVENTUALLY(lock.try_acquire().has_value());
    }
    EQUAL(client.counters().lost, 0u);
}

TEST(interrupt_may_call_the_library) {
    leasehold::client client{check::server().url()};
    const auto lock = client.lock(unused_name());
    const auto held = lock.acquire();
    CHECK(!lock.acquire_within(1h, [&] { return lock.inspect().held; }));
    // What it throws comes first, whatever else went wrong.
    try {
        static_cast<void>(lock.acquire_within(1h, [&]() -> bool {
            client.close();
            throw std::runtime_error{"mine"};
        }));
        CHECK(false);
    } catch (const std::runtime_error &thrown) {
        EQUAL(std::string{thrown.what()}, "mine");
    }
    THROWS(LEASEHOLD_ERR_CLOSED, lock.acquire_within(1h, [] { return false; }));
}
