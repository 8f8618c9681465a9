// leasehold::mutex with times of every kind: negative, endless, by clocks that are set meanwhile.

#include "check.hpp"

#include <atomic>
#include <future>
#include <limits>
#include <mutex>

using namespace std::chrono;
using namespace std::chrono_literals;
using check::server;
using check::unused_name;

namespace {

/** A mutex that another client's lease keeps taken. */
struct taken {
    leasehold::client client{server().url()};
    std::string name = unused_name();
    std::optional<leasehold::lease> lease = client.lock(name).acquire();
    leasehold::mutex mutex{client.lock(name).wait_mode(leasehold::wait_mode::spin)};

    /** A spinning waiter asks on and on. */
    std::uint64_t tries() const { return client.counters().attempts; }
};

} // namespace

/** A clock that stands where it was set, and then jumps. */
struct set_clock {
    using duration = milliseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<set_clock>;
    static constexpr bool is_steady = false;

    static inline std::atomic<rep> now_ms{0};
    static time_point now() { return time_point{duration{now_ms.load()}}; }
};

/** A clock that goes back by 40 ms once, in the middle of a wait. */
struct set_back_clock {
    using duration = steady_clock::duration;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<set_back_clock>;
    static constexpr bool is_steady = false;

    static inline steady_clock::time_point start;
    static time_point now() {
        const auto passed = steady_clock::now() - start;
        return time_point{passed < 20ms ? passed : passed - 40ms};
    }
};

TEST(try_for_no_time_tries_once) {
    taken held;
    for (const auto span : {0ns, -1ns, nanoseconds{-24h}, nanoseconds::min()}) {
        const auto before = held.tries();
        CHECK(!held.mutex.try_lock_for(span));
        EQUAL(held.tries(), before + 1);
    }
    CHECK(!held.mutex.try_lock_for(hours::min()));
    CHECK(!held.mutex.try_lock_for(duration<double>{std::numeric_limits<double>::quiet_NaN()}));
    held.lease.reset();
    CHECK(held.mutex.try_lock_for(-1s));
    held.mutex.unlock();
}

TEST(try_for_all_time_waits) {
    taken held;
    const auto waits = [&](auto span) {
        if (!held.lease) held.lease = held.client.lock(held.name).acquire();
        const auto before = held.tries();
        auto other = std::async(std::launch::async, [&] {
            const std::unique_lock own{held.mutex, span};
            return own.owns_lock();
        });
        EVENTUALLY(held.tries() >= before + 5);
        held.lease.reset();
        return other.get();
    };
    CHECK(waits(hours::max()));
    CHECK(waits(nanoseconds::max()));
    CHECK(waits(duration<double>{std::numeric_limits<double>::infinity()}));
    CHECK(waits(leasehold::forever));
    CHECK(waits(steady_clock::time_point::max()));
    CHECK(waits(system_clock::time_point::max()));
    CHECK(waits(time_point<system_clock, hours>::max()));
    CHECK(waits(time_point<system_clock, duration<double>>{duration<double>{1e300}}));
}

TEST(try_until_the_past_tries_once) {
    taken held;
    const auto once = [&](auto when) {
        const auto before = held.tries();
        return !held.mutex.try_lock_until(when) && held.tries() == before + 1;
    };
    CHECK(once(steady_clock::now()));
    CHECK(once(steady_clock::now() - 1h));
    CHECK(once(steady_clock::time_point::min()));
    CHECK(once(steady_clock::time_point{}));
    CHECK(once(system_clock::now() - 1ns));
    CHECK(once(system_clock::time_point::min()));
    CHECK(once(time_point<system_clock, hours>::min()));
    constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(once(time_point<system_clock, duration<double>>{duration<double>{nan}}));
    held.lease.reset();
    CHECK(held.mutex.try_lock_until(system_clock::time_point::min()));
    held.mutex.unlock();
}

TEST(try_until_waits_that_long) {
    taken held;
    const auto steady = steady_clock::now() + 70ms;
    CHECK(!held.mutex.try_lock_until(steady));
    CHECK(steady_clock::now() >= steady);
    const auto system = system_clock::now() + 70ms;
    CHECK(!held.mutex.try_lock_until(system));
    CHECK(system_clock::now() >= system);
    const auto coarse = ceil<seconds>(system_clock::now() + 1ms);
    CHECK(!held.mutex.try_lock_until(coarse));
    CHECK(system_clock::now() >= coarse);
}

TEST(try_until_follows_a_clock_that_is_set_forward) {
    taken held;
    set_clock::now_ms = 1000;
    const auto before = held.tries();
    auto other = std::async(std::launch::async,
                            [&] { return held.mutex.try_lock_until(set_clock::time_point{1h}); });
    EVENTUALLY(held.tries() >= before + 5);
    CHECK(other.wait_for(0s) == std::future_status::timeout);
    set_clock::now_ms = milliseconds{2h}.count();
    CHECK(!other.get());
}

TEST(try_until_follows_a_clock_that_is_set_back) {
    taken held;
    set_back_clock::start = steady_clock::now();
    CHECK(!held.mutex.try_lock_until(set_back_clock::time_point{60ms}));
    CHECK(steady_clock::now() - set_back_clock::start >= 100ms);
}
