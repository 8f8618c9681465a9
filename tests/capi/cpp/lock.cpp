// Locks and leases.

#include "check.hpp"

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using check::unused_name;
using leasehold::outcome;
using clock_type = std::chrono::steady_clock;

TEST_ON_BOTH(lock_is_taken_and_given_back) {
    const leasehold::client client{url};
    const auto name = unused_name();
    const auto lock = client.lock(name).ttl(10s);
    EQUAL(lock.name(), name);
    auto lease = lock.try_acquire();
    CHECK(lease);
    EQUAL(lease->name(), name);
    EQUAL(lease->token().size(), 32u);
    CHECK(lease->is_valid());
    CHECK(lease->remaining() > 5s && lease->remaining() <= 10s);
    CHECK(!lock.try_acquire());

    const auto fence = lease->fence();
    CHECK(lease->release() == outcome::done);
    CHECK(!lease->is_valid());
    EQUAL(lease->remaining(), 0ms);
    EQUAL(lease->fence(), fence);
    CHECK(lease->release() == outcome::lost);

    const auto next = lock.try_acquire();
    CHECK(next->fence() > fence);
}

TEST_ON_BOTH(lease_is_released_by_its_destructor) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name());
    { const auto lease = lock.try_acquire(); }
    CHECK(lock.try_acquire());
    // The one before was a temporary.
    CHECK(lock.try_acquire());
}

TEST_ON_BOTH(names_may_hold_any_bytes) {
    const leasehold::client client{url};
    const std::string name{"\0a\xff\0{", 5};
    const auto lock = client.lock(name);
    const auto lease = lock.try_acquire();
    CHECK(lock.name() == name);
    CHECK(lease->name() == name);
    CHECK(!client.lock(name).try_acquire());
    CHECK(client.lock(name.substr(0, 4)).try_acquire());
}

TEST(names_are_never_empty_or_endless) {
    const leasehold::client client{check::server().url()};
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.lock(""));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.lock({}));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.lock(std::string(65537, 'a')));
    CHECK(client.lock(std::string(65536, 'a')).try_acquire());
}

TEST_ON_BOTH(wait_ends_by_its_time) {
    const leasehold::client client{url};
    auto lock = client.lock(unused_name()).wait(120ms);
    const auto lease = lock.try_acquire();
    auto start = clock_type::now();
    CHECK(!lock.acquire());
    CHECK(clock_type::now() - start >= 120ms);
    start = clock_type::now();
    CHECK(!lock.acquire_within(0.06s));
    CHECK(clock_type::now() - start >= 60ms);
    CHECK(!lock.wait(0s).acquire());
    CHECK(!lock.acquire_within(0s));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.acquire_within(-1ms));
    CHECK(!lock.attempts(2).wait_mode(leasehold::wait_mode::spin).acquire_within(1h));
}

TEST_ON_BOTH(wait_that_ran_out_says_who_had_the_lock) {
    const leasehold::client client{url}, other{url};
    const auto name = unused_name();
    const auto lease = client.lock(name).acquire();
    const auto waited = [&] {
        CHECK(!other.lock(name).acquire_within(100ms));
        return leasehold::timeout_detail();
    };
    const std::string what = waited();
    CHECK(what.find("'" + name + "'") != std::string::npos);
    CHECK(what.find("not free within wait, 100 ms") != std::string::npos);
    // Clients say in the background who they are.
    const std::string pid = ", pid " + std::to_string(getpid()) + ")";
    EVENTUALLY(waited().find(pid) != std::string::npos);
    std::async(std::launch::async, [] { EQUAL(leasehold::timeout_detail(), ""); }).get();
}

TEST_ON_BOTH(wait_ends_with_the_lock) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name()).wait(leasehold::forever);
    auto lease = lock.try_acquire();
    std::atomic<bool> waits{false};
    auto other = std::async(std::launch::async, [&] {
        auto own = lock.acquire_within(30s, [&] {
            waits = true;
            return false;
        });
        CHECK(own);
        return own->fence();
    });
    EVENTUALLY(waits.load());
    CHECK(lease->release() == outcome::done);
    CHECK(other.get() > lease->fence());
    CHECK(lock.acquire());
}

TEST_ON_BOTH(wait_for_oneself_without_limit_is_refused) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name());
    const auto lease = lock.try_acquire();
    const auto refused =
        THROWS(LEASEHOLD_ERR_WOULD_DEADLOCK, lock.acquire_within(leasehold::forever));
    CHECK(!refused.is_retriable());
}

TEST_ON_BOTH(lease_is_extended) {
    const leasehold::client client{url};
    auto lock = client.lock(unused_name()).ttl(20s).renew(false);
    auto lease = lock.acquire();
    CHECK(lease->extend() == outcome::done);
    CHECK(lease->remaining() <= 20s);
    CHECK(lease->extend_for(2min) == outcome::done);
    CHECK(lease->remaining() > 1min);
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lease->extend_for(367 * 24h));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lease->extend_for(-1s));
    CHECK(lease->is_valid());

    // Somebody else ends it.
    CHECK(lock.attach(lease->token(), lease->fence()).release() == outcome::done);
    CHECK(lease->extend() == outcome::lost);
    CHECK(!lease->is_valid());
    CHECK(lease->release() == outcome::lost);
}

TEST(lease_ends_with_its_key) {
    const leasehold::client client{check::server().url()};
    const auto name = unused_name();
    auto lease = client.lock(name).acquire();
    EQUAL(check::server().ask("DEL " + name), ":1");
    CHECK(lease->release() == outcome::lost);
}

TEST(outcomes_are_unknown_when_the_store_falls_silent) {
    check::redis own;
    const leasehold::client client{own.url()};
    auto lease = client.lock("held").acquire();
    auto extended = client.lock("extended").acquire();
    own.stop();
    CHECK(extended->extend() == outcome::unknown);
    CHECK(extended->is_valid());
    CHECK(lease->release() == outcome::unknown);
    CHECK(!lease->is_valid());
    own.go_on();
    // What was to be given back is, in the background.
    EVENTUALLY(client.lock("held").try_acquire().has_value());
    CHECK(extended->release() == outcome::done);
}

TEST(a_try_whose_outcome_is_unknown_is_thrown) {
    check::redis own;
    const leasehold::client client{own.url()};
    client.ping();
    own.stop();
    const auto unknown = THROWS(LEASEHOLD_UNKNOWN, client.lock("name").try_acquire());
    CHECK(unknown.is_retriable());
    own.go_on();
    EVENTUALLY(client.lock("name").try_acquire().has_value());
}

TEST_ON_BOTH(lease_is_left_to_expire) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name()).ttl(20s);
    auto lease = lock.acquire();
    CHECK(lease->let_expire() == outcome::done);
    CHECK(lease->let_expire() == outcome::lost);
    CHECK(!lease->is_valid());
    lease.reset();
    CHECK(!lock.try_acquire());

    const auto other = client.lock(unused_name());
    auto soon = other.acquire();
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, soon->let_expire_in(367 * 24h));
    CHECK(soon->is_valid());
    CHECK(soon->let_expire_in(50ms) == outcome::done);
    CHECK(soon->let_expire_in(50ms) == outcome::lost);
    CHECK(other.acquire_within(20s));
}

TEST_ON_BOTH(lease_is_handed_on) {
    const auto name = unused_name();
    std::string token;
    std::uint64_t fence = 0;
    {
        const leasehold::client client{url};
        auto lease = client.lock(name).acquire();
        CHECK(lease->detach() == outcome::done);
        CHECK(!lease->is_valid());
        CHECK(lease->detach() == outcome::lost);
        token = lease->token();
        fence = lease->fence();
    }
    const leasehold::client client{url};
    const auto lock = client.lock(name);
    CHECK(!lock.try_acquire());
    auto lease = lock.attach(token, fence);
    CHECK(lease.token() != token);
    EQUAL(lease.fence(), fence);
    CHECK(lease.extend() == outcome::done);
    CHECK(lease.is_valid());
    CHECK(lease.release() == outcome::done);
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.attach("no token", fence));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.attach(token, 0));
}

TEST_ON_BOTH(a_holder_says_who_it_is) {
    const leasehold::client known{leasehold::config{url}.label("billing")}, other{url};
    const std::string name = unused_name();
    auto lease = known.lock(name).acquire();
    leasehold::lock_state state = other.lock(name).inspect();
    for (int i = 0; !state.client && i < 4000; i++) {
        std::this_thread::sleep_for(5ms);
        state = other.lock(name).inspect();
    }
    CHECK(state.client.has_value());
    EQUAL(state.client->language, "c++");
    EQUAL(state.client->label, "billing");
    EQUAL(state.client->pid, static_cast<std::int64_t>(getpid()));
    EQUAL(lease->token().find(state.client->id), 0u);
    CHECK(state.held_for.has_value() && *state.held_for < 60s);
    CHECK(state.who.find("(c++ " + state.client->program + ", pid ") != std::string::npos);
    CHECK(state.waiters.empty() && state.more_waiters == 0);
}

TEST_ON_BOTH(lock_is_shown) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name()).ttl(10s);
    leasehold::lock_state state = lock.inspect();
    CHECK(!state.held && state.token_prefix.empty() && state.ttl == 0ms);
    EQUAL(state.fence, 0u);
    auto lease = lock.acquire();
    state = lock.inspect();
    CHECK(state.held);
    CHECK(!state.token_prefix.empty() && state.token_prefix.size() < 32);
    EQUAL(lease->token().find(state.token_prefix), 0u);
    CHECK(state.ttl > 5s && state.ttl <= 10s);
    EQUAL(state.fence, lease->fence());
    EQUAL(state.last_fence, lease->fence());
    CHECK(lease->release() == outcome::done);
    state = lock.inspect();
    CHECK(!state.held);
    EQUAL(state.last_fence, lease->fence());
}

TEST_ON_BOTH(options_are_set_in_place_and_in_a_chain) {
    const leasehold::client client{url};
    auto chained = client.lock(unused_name())
                       .ttl(200ms)
                       .wait(1s)
                       .attempts(100)
                       .renew(true)
                       .max_hold(400ms)
                       .wait_mode(leasehold::wait_mode::spin)
                       .backoff(1ms, 5ms);
    auto lease = chained.acquire();
    EVENTUALLY(!lease->is_valid()); // by max_hold

    auto set = client.lock(unused_name());
    set.ttl(80ms).renew(false).wait_mode(leasehold::wait_mode::spin).backoff(2ms);
    auto brief = set.acquire();
    EVENTUALLY(!brief->is_valid()); // by its ttl
    CHECK(set.max_hold(leasehold::forever).ttl(1min).acquire_within(20s)->remaining() > 30s);
}

TEST(options_that_cannot_be_are_refused) {
    const leasehold::client client{check::server().url()};
    auto lock = client.lock(unused_name());
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.ttl(-1s));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.wait(-1ns));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.io_timeout(-1h));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.max_hold(-1h));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.wait_mode(static_cast<leasehold::wait_mode>(77)));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.backoff(-1ms));
    const auto named = THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.lock("name").ttl(-1s));
    EQUAL(named.detail(), "the ttl is -1000 ms; 0 is the least");
    const auto refused =
        THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.lock(unused_name()).ttl(367 * 24h));
    CHECK(refused.detail().find("ttl") != std::string::npos);
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT,
           client.lock("name").wait_mode(leasehold::wait_mode::spin).attempts(0));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.lock("name").attempts(2).acquire());
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.lock("name").backoff(1ms).acquire());
    // Setting it well makes up for it.
    lock.ttl(1s).wait(1s).io_timeout(1s).max_hold(1h).wait_mode(leasehold::wait_mode::spin);
    lock.backoff(1ms);
    CHECK(lock.acquire());
}

TEST_ON_BOTH(one_lock_serves_many_threads) {
    const leasehold::client client{url};
    const leasehold::lock lock = client.lock(unused_name());
    int inside = 0;
    std::vector<std::future<void>> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.push_back(std::async(std::launch::async, [&] {
            for (int turn = 0; turn < 10; ++turn) {
                auto lease = lock.acquire_within(60s);
                CHECK(lease);
                ++inside;
                CHECK(lease->release() == outcome::done);
            }
        }));
    }
    for (auto &thread : threads) thread.get();
    EQUAL(inside, 40);
}

TEST_ON_BOTH(fence_of_a_free_lock_breaks_nothing) {
    const leasehold::client client{url};
    const auto lock = client.lock(unused_name());
    const auto free = lock.inspect().fence;
    const auto lease = lock.acquire();
    EQUAL(free, 0u);
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, lock.break_held("an operator", free));
    CHECK(!lock.break_held("an operator", lease->fence() + 1));
    CHECK(lock.break_held("an operator", lease->fence()) == lease->fence());
}

TEST(handles_are_lent_given_away_and_taken_over) {
    leasehold::client client{check::server().url()};
    EQUAL(leasehold_client_ping(client.handle(), nullptr), LEASEHOLD_OK);

    auto lock = client.lock(unused_name());
    leasehold_lock *raw = lock.disown();
    CHECK(lock.handle() == nullptr);
    auto again = leasehold::lock::adopt(raw);
    CHECK(again.handle() == raw);
    auto lease = again.try_acquire();
    leasehold_lease *raw_lease = lease->disown();
    lease.reset();
    CHECK(!again.try_acquire());
    leasehold_lease_free(raw_lease);
    CHECK(again.try_acquire());

    auto config = leasehold::config::adopt(leasehold::config{check::server().url()}.disown());
    CHECK(config.handle() != nullptr);
    auto events = leasehold::events::adopt(client.events().disown());
    CHECK(!events.try_next());
    leasehold::client::adopt(client.disown()).ping();
}
