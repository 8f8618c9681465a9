// leasehold::mutex with what the standard library does to a mutex.

#include "check.hpp"

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using check::server;
using check::unused_name;

/** Runs something in a thread of its own, and throws here what it throws there. */
template <class Body> static auto elsewhere(Body body) {
    return std::async(std::launch::async, body).get();
}

/** How often the store was asked: a spinning waiter asks on and on. */
static std::uint64_t tries(const leasehold::client &client) { return client.counters().attempts; }

template <class Body> static bool would_deadlock(Body body) {
    try {
        body();
    } catch (const std::system_error &error) {
        return error.code() == std::errc::resource_deadlock_would_occur;
    }
    return false;
}

TEST_ON_BOTH(mutex_is_held_by_one_thread_at_a_time) {
    const leasehold::client client{url};
    leasehold::mutex mutex{client, unused_name()};
    EQUAL(mutex.fence(), 0u);
    CHECK(!mutex.is_valid());
    mutex.lock();
    const auto fence = mutex.fence();
    CHECK(fence > 0 && mutex.is_valid() && mutex.remaining() > 1s);
    elsewhere([&] {
        CHECK(!mutex.try_lock());
        CHECK(!mutex.try_lock_for(30ms));
        // The lease is the other thread's.
        EQUAL(mutex.fence(), 0u);
        CHECK(!mutex.is_valid());
        EQUAL(mutex.remaining(), 0ms);
    });
    mutex.unlock();
    CHECK(!mutex.unlock_error());
    EQUAL(mutex.fence(), 0u);
    elsewhere([&] {
        // The wait that ran out may keep a place among the waiters for a moment.
        EVENTUALLY(mutex.try_lock());
        CHECK(mutex.fence() > fence);
        mutex.unlock();
    });
}

TEST_ON_BOTH(unique_lock_may_not_own) {
    const leasehold::client client{url};
    leasehold::mutex stock{client, unused_name()};
    leasehold::mutex same{client.lock(stock.options().name())};
    {
        std::unique_lock held{stock, 5s};
        CHECK(held);
        elsewhere([&] {
            const auto start = std::chrono::steady_clock::now();
            std::unique_lock late{same, 80ms};
            CHECK(!late && !late.owns_lock());
            CHECK(std::chrono::steady_clock::now() - start >= 80ms);
            CHECK(!std::unique_lock(same, std::try_to_lock));
            CHECK(!std::unique_lock(same, std::chrono::system_clock::now() + 30ms));
        });
    }
    std::unique_lock later{same, std::defer_lock};
    CHECK(later.try_lock_for(5s));
}

TEST_ON_BOTH(lock_guard_and_scoped_lock_release) {
    const leasehold::client client{url};
    leasehold::mutex one{client, unused_name()};
    leasehold::mutex two{client, unused_name()};
    { const std::lock_guard guard{one}; }
    {
        const std::scoped_lock both{one, two};
        CHECK(one.is_valid() && two.is_valid());
        CHECK(!client.lock(two.options().name()).try_acquire());
    }
    EQUAL(std::try_lock(one, two), -1);
    one.unlock();
    two.unlock();
    CHECK(!one.unlock_error() && !two.unlock_error());
}

TEST_ON_BOTH(scoped_locks_in_any_order_do_not_block_each_other) {
    const leasehold::client client{url};
    leasehold::mutex one{client, unused_name()};
    leasehold::mutex two{client, unused_name()};
    int inside = 0; // two threads in here at once are a data race
    const auto work = [&](leasehold::mutex &first, leasehold::mutex &second) {
        for (int turn = 0; turn < 8; ++turn) {
            const std::scoped_lock both{first, second};
            ++inside;
        }
    };
    auto there = std::async(std::launch::async, [&] { work(one, two); });
    auto back = std::async(std::launch::async, [&] { work(two, one); });
    work(one, two);
    there.get();
    back.get();
    EQUAL(inside, 24);
}

TEST_ON_BOTH(threads_share_one_mutex) {
    const leasehold::client client{url};
    leasehold::mutex mutex{client, unused_name()};
    int inside = 0;
    std::uint64_t last = 0;
    std::vector<std::future<void>> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.push_back(std::async(std::launch::async, [&] {
            for (int turn = 0; turn < 10; ++turn) {
                mutex.lock();
                ++inside;
                CHECK(mutex.fence() > last);
                last = mutex.fence();
                mutex.unlock();
                CHECK(!mutex.unlock_error());
            }
        }));
    }
    for (auto &thread : threads) thread.get();
    EQUAL(inside, 40);
}

TEST_ON_BOTH(unlock_ends_only_the_lease_of_its_thread) {
    const leasehold::client client{url};
    leasehold::mutex mutex{client.lock(unused_name()).ttl(100ms).renew(false)};
    mutex.lock();
    const auto fence = mutex.fence();
    EVENTUALLY(!mutex.is_valid());
    std::promise<void> taken;
    std::promise<void> unlocked;
    auto other = std::async(std::launch::async, [&] {
        leasehold::mutex patient{client.lock(mutex.options().name())};
        patient.lock();
        patient.unlock();
        mutex.lock(); // the same object, with the first thread's lost lease still in it
        const auto own = mutex.fence();
        taken.set_value();
        unlocked.get_future().get();
        EQUAL(mutex.fence(), own);
        mutex.unlock();
        return own;
    });
    taken.get_future().get();
    EQUAL(mutex.fence(), fence);
    mutex.unlock();
    EQUAL(mutex.unlock_error().value().status(), LEASEHOLD_LOST);
    unlocked.set_value();
    CHECK(other.get() > fence);
}

TEST_ON_BOTH(locking_again_is_refused) {
    const leasehold::client client{url};
    leasehold::mutex mutex{client, unused_name()};
    leasehold::mutex same{client, mutex.options().name()};
    const std::lock_guard guard{mutex};
    CHECK(would_deadlock([&] { mutex.lock(); }));
    CHECK(would_deadlock([&] { static_cast<void>(mutex.try_lock()); }));
    CHECK(would_deadlock([&] { static_cast<void>(mutex.try_lock_for(1h)); }));
    CHECK(would_deadlock(
        [&] { static_cast<void>(mutex.try_lock_until(std::chrono::steady_clock::now())); }));
    // By another object of the same name, the library refuses what would never end.
    CHECK(would_deadlock([&] { same.lock(); }));
    CHECK(!same.try_lock());
    CHECK(mutex.is_valid());
}

TEST(unlock_after_a_loss_is_remembered) {
    const leasehold::client client{server().url()};
    leasehold::mutex mutex{client, unused_name()};
    const std::string key = mutex.options().name();
    CHECK(!mutex.unlock_error());
    {
        std::unique_lock held{mutex};
        server().ask("DEL " + key);
    }
    const auto error = mutex.unlock_error().value();
    EQUAL(error.status(), LEASEHOLD_LOST);
    EQUAL(error.name(), std::string_view{"lost"});
    CHECK(!error.detail().empty());
    elsewhere([&] { CHECK(!mutex.unlock_error()); });
    CHECK(mutex.unlock_error());
    mutex.lock();
    CHECK(!mutex.unlock_error());
    mutex.unlock();
    CHECK(!mutex.unlock_error());
}

TEST(release_throws_after_a_loss) {
    const leasehold::client client{server().url()};
    leasehold::mutex mutex{client, unused_name()};
    const std::string key = mutex.options().name();
    mutex.lock();
    mutex.release();
    std::unique_lock held{mutex};
    server().ask("DEL " + key);
    THROWS(LEASEHOLD_LOST, held.release()->release());
    CHECK(!held);
    CHECK(!mutex.unlock_error());
    CHECK(mutex.try_lock()); // it is not held any more, so this is no locking again
    mutex.unlock();
}

TEST_ON_BOTH(unlocking_what_is_not_locked_is_told) {
    const leasehold::client client{url};
    leasehold::mutex mutex{client, unused_name()};
    THROWS(LEASEHOLD_LOST, mutex.release());
    mutex.unlock();
    EQUAL(mutex.unlock_error().value().detail(), "this thread has not locked the mutex");
    mutex.lock();
    elsewhere([&] {
        mutex.unlock();
        EQUAL(mutex.unlock_error().value().status(), LEASEHOLD_LOST);
    });
    CHECK(mutex.is_valid());
    mutex.unlock();
}

TEST(unlock_that_nobody_confirms_is_remembered) {
    check::redis own;
    const leasehold::client client{own.url()};
    leasehold::mutex mutex{client, "name"};
    mutex.lock();
    own.stop();
    mutex.unlock();
    own.go_on();
    EQUAL(mutex.unlock_error().value().status(), LEASEHOLD_UNKNOWN);
    CHECK(mutex.try_lock_for(20s));
    mutex.unlock();
}

TEST_ON_BOTH(mutex_releases_what_is_left_in_it) {
    const leasehold::client client{url};
    const auto name = unused_name();
    {
        leasehold::mutex mutex{client, name};
        mutex.lock();
    }
    CHECK(client.lock(name).try_acquire());
}

TEST_ON_BOTH(lock_waits_without_limit) {
    const leasehold::client client{url};
    const auto name = unused_name();
    leasehold::mutex mutex{client.lock(name).wait(0s).wait_mode(leasehold::wait_mode::spin)};
    auto lease = client.lock(name).acquire();
    const auto before = tries(client);
    auto other = std::async(std::launch::async, [&] {
        mutex.lock();
        mutex.unlock();
    });
    EVENTUALLY(tries(client) >= before + 6);
    CHECK(other.wait_for(0s) == std::future_status::timeout);
    CHECK(lease->release() == leasehold::outcome::done);
    other.get();
}

TEST_ON_BOTH(attempts_limit_every_wait) {
    const leasehold::client client{url};
    const auto name = unused_name() + "\x1b\xff";
    leasehold::mutex mutex{client.lock(name).attempts(2).wait_mode(leasehold::wait_mode::spin)};
    const auto lease = client.lock(name).acquire();
    const std::string what = THROWS(LEASEHOLD_TIMEOUT, mutex.lock()).what();
    const auto named = "'" + name.substr(0, name.size() - 2) + "\\u{1b}\\xff', held by ";
    CHECK(what.find(named) != std::string::npos);
    CHECK(what.find("not free within 2 attempts") != std::string::npos);
    const auto before = tries(client);
    CHECK(!mutex.try_lock_for(1h));
    EQUAL(tries(client), before + 2);
    CHECK(!mutex.try_lock_until(std::chrono::system_clock::now() + 1h));
    EQUAL(tries(client), before + 4);
}

TEST(lock_throws_what_is_in_the_way) {
    const leasehold::client nowhere{"unix:///nowhere/at/all?io_timeout=100ms"};
    leasehold::mutex mutex{nowhere, "name"};
    THROWS(LEASEHOLD_ERR_REFUSED, mutex.lock());
    THROWS(LEASEHOLD_ERR_REFUSED, mutex.try_lock());
    EQUAL(mutex.fence(), 0u);
    CHECK(!mutex.unlock_error());
}

TEST_ON_BOTH(close_ends_a_lock_that_waits) {
    leasehold::client client{url};
    leasehold::mutex mutex{client, unused_name()};
    const std::lock_guard guard{mutex};
    const auto before = tries(client);
    auto other =
        std::async(std::launch::async, [&] { THROWS(LEASEHOLD_ERR_CLOSED, mutex.lock()); });
    EVENTUALLY(tries(client) >= before + 2);
    client.close();
    other.get();
    CHECK(!mutex.is_valid());
    CHECK(mutex.fence() > 0);
}

TEST_ON_BOTH(condition_variables_wait_with_it) {
    const leasehold::client client{url};
    leasehold::mutex mutex{client, unused_name()};
    std::condition_variable_any changed;
    bool ready = false;
    auto other = std::async(std::launch::async, [&] {
        const std::lock_guard guard{mutex};
        ready = true;
        changed.notify_one();
    });
    std::unique_lock held{mutex};
    CHECK(changed.wait_for(held, 30s, [&] { return ready; }));
    CHECK(mutex.is_valid());
    held.unlock();
    other.get();
}

TEST_ON_BOTH(exceptions_unlock) {
    const leasehold::client client{url};
    leasehold::mutex mutex{client, unused_name()};
    try {
        const std::scoped_lock guard{mutex};
        throw std::runtime_error{"in the midst of it"};
    } catch (const std::runtime_error &) {}
    CHECK(mutex.try_lock());
    mutex.unlock();
}
