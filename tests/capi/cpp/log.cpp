// The library's log in a function of ours.

#include "check.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using check::server;
using check::unused_name;
using leasehold::log_level;

namespace {

/** The log ends with the test, also if that fails. */
struct ends_the_log {
    ~ends_the_log() { leasehold::set_log(nullptr); }
};

/** Loses a lease, which is worth a warning. */
struct loss {
    leasehold::client client{server().url()};
    leasehold::events events = client.events();

    void happens() {
        const auto name = unused_name();
        const auto lease = client.lock(name).ttl(150ms).acquire();
        server().ask("DEL " + name);
        while (events.next().kind != leasehold::event_kind::lost) {}
    }
};

} // namespace

TEST(log_comes_to_a_function) {
    const ends_the_log end;
    std::mutex gate;
    std::vector<std::string> records;
    const auto count = [&] {
        const std::lock_guard guard{gate};
        return records.size();
    };
    leasehold::set_log([&](log_level level, std::string_view message) {
        const std::lock_guard guard{gate};
        CHECK(level == log_level::warn || level == log_level::error);
        records.emplace_back(message);
    });
    loss loss;
    loss.happens();
    EVENTUALLY(count() > 0);
    leasehold::set_log(nullptr);
    CHECK(!records.at(0).empty());
    const auto before = records.size();
    loss.happens();
    EQUAL(records.size(), before);
}

TEST(log_function_is_destroyed_when_it_is_replaced_or_ended) {
    const ends_the_log end;
    const auto set = [](log_level from = log_level::warn) {
        auto owned = std::make_shared<int>(1);
        std::weak_ptr<int> watched = owned;
        leasehold::set_log([owned](log_level, std::string_view) {}, from);
        return watched;
    };
    const auto first = set();
    CHECK(!first.expired());
    const auto second = set(log_level::trace);
    CHECK(first.expired() && !second.expired());
    leasehold::set_log(nullptr);
    CHECK(second.expired());
    CHECK(set(log_level::off).expired());
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, set(static_cast<log_level>(99)));
}

TEST(log_function_may_throw_and_call_the_library) {
    const ends_the_log end;
    loss loss;
    std::atomic<int> called{0};
    leasehold::set_log([&](log_level, std::string_view) {
        loss.client.counters();
        ++called;
        throw std::runtime_error{"from the log"};
    });
    loss.happens();
    loss.happens();
    EVENTUALLY(called.load() >= 2);
}

TEST(log_is_ended_but_not_replaced_from_within) {
    const ends_the_log end;
    loss loss;
    std::atomic<int> called{0};
    std::atomic<int> refused{0};
    std::atomic<bool> still_there{false};
    std::promise<void> done;
    auto owned = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = owned;
    leasehold::set_log([&, mine = std::move(owned)](log_level, std::string_view) {
        if (++called > 1) return;
        try {
            leasehold::set_log([](log_level, std::string_view) {});
        } catch (const leasehold::error &error) {
            refused = error.status();
        }
        leasehold::set_log(nullptr);
        still_there = !watched.expired();
        done.set_value();
    });
    loss.happens();
    done.get_future().get();
    EQUAL(refused.load(), LEASEHOLD_ERR_BAD_ARGUMENT);
    CHECK(still_there); // what runs is not destroyed
    loss.happens();
    EQUAL(called.load(), 1);
    leasehold::set_log([&](log_level, std::string_view) { ++called; });
    loss.happens();
    EVENTUALLY(called.load() >= 2);
    CHECK(watched.expired());
}

TEST(log_is_set_by_many_threads_while_it_is_written) {
    const ends_the_log end;
    loss loss;
    std::atomic<bool> stop{false};
    std::vector<std::future<void>> threads;
    for (int thread = 0; thread < 3; ++thread) {
        threads.push_back(std::async(std::launch::async, [&] {
            while (!stop) {
                auto alive = std::make_shared<std::string>("alive");
                leasehold::set_log(
                    [alive](log_level, std::string_view) { CHECK(*alive == "alive"); },
                    log_level::trace);
                // Valgrind runs one thread at a time, and these would have every turn.
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            }
        }));
    }
    for (int turn = 0; turn < 50; ++turn) {
        const auto lease = loss.client.lock(unused_name()).acquire();
    }
    loss.happens();
    stop = true;
    for (auto &thread : threads) thread.get();
}
