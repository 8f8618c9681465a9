// A lost lease stops a thread of C++20. Compiled as C++17 there is nothing of it.

#include "check.hpp"

#ifdef __cpp_lib_jthread

#include <condition_variable>
#include <mutex>
#include <thread>

using namespace std::chrono_literals;
using check::server;
using check::unused_name;

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

#endif
