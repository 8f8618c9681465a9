// A store for tests: each control, with the client that it happens to and another one.

#include "check.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using leasehold::testing::memory;
using names = std::vector<std::string>;

static_assert(!std::is_copy_constructible_v<memory> &&
              !std::is_convertible_v<const char *, memory>);
static_assert(std::is_nothrow_move_constructible_v<leasehold::testing::effect>);

static bool is_free(const leasehold::client &client, const std::string &name) {
    return client.lock(name).try_acquire().has_value();
}

TEST(each_memory_is_a_store_of_its_own_and_its_clients_exclude_each_other) {
    const memory store, apart;
    const auto one = store.client(), other = store.client();
    auto lease = one.lock("a").acquire();
    CHECK(!is_free(other, "a"));
    CHECK(is_free(apart.client(), "a"));
    CHECK(lease->release() == leasehold::outcome::done);
    CHECK(is_free(other, "a"));
}

TEST(clients_of_several_threads_are_never_inside_at_once) {
    const memory store;
    std::atomic<int> inside{0}, most{0}, turns{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            const leasehold::client client{store.url() + "?io_timeout=20s"};
            for (int turn = 0; turn < 50; turn++) {
                const auto lease = client.lock("shared").acquire();
                most = std::max(most.load(), ++inside);
                ++turns;
                --inside;
            }
        });
    }
    for (auto &thread : threads) thread.join();
    EQUAL(most.load(), 1);
    EQUAL(turns.load(), 200);
}

TEST(a_memory_that_has_a_name_is_the_store_of_this_url) {
    const memory store{"50 %?"}, again{"50 %?"}, nameless{""};
    EQUAL(store.url(), "memory:50%20%25%3F");
    EQUAL(nameless.url(), "memory:");
    const auto busy = store.busy("a");
    CHECK(!is_free(leasehold::client{again.url()}, "a"));
    CHECK(is_free(nameless.client(), "a"));
}

TEST(a_lease_that_the_test_loses_is_told_at_once) {
    const memory store;
    const auto client = store.client(), other = store.client();
    auto events = client.events();
    auto lease = client.lock("a").acquire(), kept = client.lock("b").acquire();
    store.lose("a");
    CHECK(!lease->is_valid() && kept->is_valid());
    const auto event = events.next_within(20s);
    CHECK(event && event->reason == leasehold::loss_reason::not_held);
    const auto next = other.lock("a").try_acquire();
    CHECK(next && next->fence() > lease->fence());
    CHECK(lease->release() == leasehold::outcome::lost);
    CHECK(next->is_valid());
}

TEST(an_effect_lasts_until_it_is_destroyed_also_where_it_was_moved) {
    const memory store;
    const auto client = store.client();
    std::optional<leasehold::testing::effect> kept;
    {
        auto busy = store.busy("a");
        kept = std::move(busy);
    }
    store.advance(24h * 1000);
    CHECK(!is_free(client, "a") && store.is_held("a"));
    kept.reset();
    CHECK(is_free(client, "a") && !store.is_held("a"));

    const leasehold::client hasty{store.url() + "?io_timeout=60ms"};
    {
        const auto failing = store.failing(LEASEHOLD_ERR_UNAVAILABLE);
        THROWS(LEASEHOLD_ERR_UNAVAILABLE, hasty.lock("a").try_acquire());
    }
    EVENTUALLY(is_free(hasty, "a"));
    store.fail_next(LEASEHOLD_ERR_PERMISSION);
    THROWS(LEASEHOLD_ERR_PERMISSION, hasty.lock("a").try_acquire());
    CHECK(is_free(hasty, "a"));
}

TEST(a_paused_store_answers_nobody_until_it_is_resumed_or_destroyed) {
    auto store = std::make_unique<memory>();
    const leasehold::client hasty{store->url() + "?io_timeout=60ms"};
    store->pause();
    THROWS(LEASEHOLD_ERR_NO_ANSWER, hasty.ping());
    store->resume();
    hasty.ping();
    store->pause();
    store.reset();
    hasty.ping();
}

TEST(leases_end_as_the_clock_of_the_store_goes_on) {
    const memory store;
    const auto client = store.client();
    const auto brief = client.lock("short").ttl(60s).acquire();
    const auto lasting = client.lock("long").ttl(1h).acquire();
    CHECK(store.held() == names{"long", "short"});
    store.advance(30min);
    CHECK(!brief->is_valid() && lasting->is_valid());
    CHECK(store.held() == names{"long"});
}

TEST(a_mistaken_control_says_what_is_held) {
    const memory store;
    const std::string binary{"a\0\xff", 3};
    const auto busy = store.busy(binary);
    CHECK(store.held() == names{binary} && store.is_held(binary) && !store.is_held("a"));
    const auto lose = THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, store.lose("orders:42"));
    CHECK(lose.detail().find("lose('orders:42'): no client holds this lock") == 0);
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, store.busy(binary));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, store.fail_next(LEASEHOLD_LOST));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, store.failing(LEASEHOLD_OK));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, store.advance(-1s));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, memory{"\xff"});
}
