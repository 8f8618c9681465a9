// A lost lease stops a thread of C++20. Compiled as C++17 there is nothing of it.

#include "check.hpp"

#ifdef __cpp_lib_jthread

#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

using namespace std::chrono_literals;
using check::server;
using check::unused_name;

namespace {

/** Holds up who logs the end of the first term of a name: on_change is told after that. */
class slow_log {
public:
    explicit slow_log(const std::string &name) {
        const auto line = "leadership-ended lock=" + name + " ";
        leasehold::set_log(
            [this, line](leasehold::log_level, std::string_view message) {
                if (message.find(line) == message.npos || is_held_up_.exchange(true)) return;
                std::unique_lock<std::mutex> held{mutex_};
                going_on_.wait(held, [this] { return goes_on_; });
            },
            leasehold::log_level::info);
    }
    ~slow_log() {
        go_on();
        leasehold::set_log(nullptr);
    }

    bool is_held_up() const { return is_held_up_; }
    void go_on() {
        const std::unique_lock<std::mutex> held{mutex_};
        goes_on_ = true;
        going_on_.notify_all();
    }

private:
    std::atomic<bool> is_held_up_{false};
    std::mutex mutex_;
    std::condition_variable going_on_;
    bool goes_on_ = false;
};

} // namespace

TEST(stop_on_loss_stops_a_thread_that_waits) {
    const leasehold::client client{server().url()};
    const auto lock = client.lock(unused_name()).ttl(6s);
    auto lease = lock.acquire();
    std::mutex mutex;
    std::condition_variable_any sleeping;
    std::atomic<bool> was_stopped{false};
    {
        std::jthread worker{[&](const std::stop_token &stop) {
            std::unique_lock<std::mutex> held{mutex};
            sleeping.wait(held, stop, [] { return false; });
            was_stopped = stop.stop_requested();
        }};
        lease->stop_on_loss(worker.get_stop_source());
        CHECK(lock.break_held("an operator"));
        EVENTUALLY(was_stopped.load());
    }
    // At once, when it was lost before.
    std::stop_source late;
    lease->stop_on_loss(late);
    EVENTUALLY(late.stop_requested());
}

TEST(stop_on_loss_stops_nothing_when_the_lease_was_released_or_replaced) {
    const leasehold::client client{server().url()};
    std::stop_source released, replaced;
    auto first = client.lock(unused_name()).acquire();
    first->stop_on_loss(released);
    CHECK(first->release() == leasehold::outcome::done);
    auto second = client.lock(unused_name()).ttl(30ms).renew(false).acquire();
    std::atomic<int> told{0};
    second->stop_on_loss(replaced);
    second->on_lost([&](const leasehold::event &) { ++told; });
    EVENTUALLY(told.load() == 1);
    CHECK(!released.stop_requested() && !replaced.stop_requested());
    THROWS(LEASEHOLD_LOST, first->stop_on_loss(released));
}

TEST(a_stop_is_requested_of_work_whose_term_ends) {
    const leasehold::client client{server().url()};
    const auto name = unused_name();
    auto election = client.election(name).ttl(6s);
    std::mutex mutex;
    std::condition_variable_any sleeping;
    int terms = 0;
    election.run_as_leader([&](const leasehold::term &term, const std::stop_token &stop) {
        CHECK(!stop.stop_requested());
        if (++terms == 3) return;
        if (terms == 1) CHECK(client.lock(name).break_held("an operator"));
        if (terms == 2) election.resign();
        std::unique_lock<std::mutex> held{mutex};
        sleeping.wait(held, stop, [] { return false; });
        CHECK(stop.stop_requested() && !term.is_leader());
    });
    EQUAL(terms, 3);
    CHECK(!election.leader().held);
}

TEST(a_stop_is_requested_before_on_change_is_told_and_of_no_later_term) {
    const leasehold::client client{server().url()};
    const auto name = unused_name();
    std::atomic<int> ends{0};
    auto election = client.election(name).ttl(6s);
    election.on_change([&](const leasehold::leadership &change) {
        if (change.end != leasehold::term_end::none) ++ends;
    });
    std::future<void> resigning;
    slow_log log{name};
    int terms = 0;
    election.run_as_leader([&](const leasehold::term &term, const std::stop_token &stop) {
        if (++terms == 1) {
            resigning = std::async(std::launch::async, [&] { election.resign(); });
            EVENTUALLY(log.is_held_up());
            EVENTUALLY(stop.stop_requested());
            CHECK(!term.is_leader());
            EQUAL(ends.load(), 0);
            return;
        }
        log.go_on();
        resigning.get();
        EQUAL(ends.load(), 1);
        CHECK(!stop.stop_requested() && term.is_leader());
    });
    EQUAL(terms, 2);
    EQUAL(ends.load(), 2);
}

TEST(a_stop_is_requested_when_the_client_is_closed) {
    leasehold::client client{server().url()};
    const auto name = unused_name();
    auto election = client.election(name).ttl(6s);
    slow_log log{name};
    std::stop_token kept;
    int terms = 0;
    const auto work = [&](const leasehold::term &term, const std::stop_token &stop) {
        ++terms;
        kept = stop;
        client.close();
        EVENTUALLY(stop.stop_requested());
        CHECK(!term.is_leader());
    };
    THROWS(LEASEHOLD_ERR_CLOSED, election.run_as_leader(work));
    EQUAL(terms, 1);
    CHECK(kept.stop_requested());
}

TEST(work_with_a_stop_token_returns_and_throws_as_other_work) {
    const leasehold::client client{server().url()};
    auto election = client.election(unused_name()).ttl(6s);
    std::stop_token kept;
    election.run_as_leader(
        [&](const leasehold::term &, const std::stop_token &stop) { kept = stop; });
    // The term ended with the work, and the call has joined the thread that requests the stop.
    CHECK(kept.stop_requested() && !election.leader().held);
    bool thrown = false;
    try {
        election.run_as_leader([](const leasehold::term &, const std::stop_token &) {
            throw std::range_error{"mine"};
        });
    } catch (const std::range_error &) {
        thrown = true;
    }
    CHECK(thrown && !election.leader().held);
}

#endif
