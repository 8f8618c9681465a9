// A forked child goes on with its parent's clients, locks and mutexes, and owns none of its leases.

#include "check.hpp"

#include <atomic>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using check::server;
using check::unused_name;

/** Runs something in a forked child; fails with what it threw there. */
template <class Body> static void in_a_child(Body body) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        std::string said = "done";
        try {
            body();
        } catch (const std::exception &problem) {
            said = problem.what();
        }
        if (write(ends[1], said.data(), said.size()) < 0) _exit(1);
        // Nothing of the parent's is to be ended here: neither its files nor a tool's report.
        kill(getpid(), SIGKILL);
    }
    close(ends[1]);
    std::string said;
    for (char c = 0; read(ends[0], &c, 1) == 1;) said += c;
    close(ends[0]);
    waitpid(child, nullptr, 0);
    EQUAL(said, "done");
}

TEST_ON_BOTH(forked_child_is_told) {
    const std::string url_of_this{url};
    leasehold_client *opened = nullptr;
    CHECK(leasehold_client_open(url_of_this.data(), url_of_this.size(), &opened, nullptr) == 0);
    auto client = leasehold::client::adopt(opened);
    auto lock = client.lock(unused_name());
    auto events = client.events();
    auto lease = lock.acquire();
    in_a_child([&] {
        THROWS(LEASEHOLD_ERR_FORKED, client.ping());
        THROWS(LEASEHOLD_ERR_FORKED, client.lock("name"));
        THROWS(LEASEHOLD_ERR_FORKED, lock.try_acquire());
        THROWS(LEASEHOLD_ERR_FORKED, lock.ttl(1s));
        THROWS(LEASEHOLD_ERR_FORKED, lease->extend());
        THROWS(LEASEHOLD_ERR_FORKED, lease->release());
        THROWS(LEASEHOLD_ERR_FORKED, events.try_next());
        EQUAL(events.descriptor(), -1);
        CHECK(!lease->is_valid());
        lease.reset();
        const leasehold::client gone = std::move(client);
    });
    CHECK(lease->is_valid());
    CHECK(!lock.try_acquire());
    CHECK(lease->release() == leasehold::outcome::done);
}

TEST_ON_BOTH(forked_child_goes_on_with_clients_and_locks) {
    leasehold::client client{url};
    auto lock = client.lock(unused_name()).wait(0s);
    auto mine = client.lock(unused_name());
    auto events = client.events();
    auto lease = lock.acquire();
    in_a_child([&] {
        THROWS(LEASEHOLD_ERR_FORKED, lease->extend());
        THROWS(LEASEHOLD_ERR_FORKED, events.try_next());
        CHECK(!lock.acquire());
        auto own = mine.ttl(20s).acquire();
        CHECK(client.lock(lock.name()).inspect().held);
        CHECK(!client.events().try_next());
        EQUAL(client.counters().granted, 1u);
        CHECK(own->release() == leasehold::outcome::done);
        const leasehold::client gone = std::move(client);
    });
    CHECK(lease->release() == leasehold::outcome::done);
}

TEST_ON_BOTH(forked_child_does_not_hold_its_parents_mutex) {
    const leasehold::client client{url};
    auto mutex = std::make_unique<leasehold::mutex>(client, unused_name());
    std::unique_lock held{*mutex};
    leasehold::mutex other{client, unused_name()};
    in_a_child([&] {
        EQUAL(mutex->fence(), 0u);
        CHECK(!mutex->is_valid());
        CHECK(!mutex->try_lock_for(-1s));
        THROWS(LEASEHOLD_ERR_FORKED, mutex->release());
        held.unlock();
        EQUAL(mutex->unlock_error().value().status(), LEASEHOLD_ERR_FORKED);
        CHECK(other.try_lock());
        CHECK(other.is_valid());
        other.unlock();
        CHECK(!other.unlock_error());
        mutex.reset();
    });
    CHECK(mutex->is_valid());
    held.unlock();
    CHECK(!mutex->unlock_error());
}

TEST(forked_child_does_not_wait_for_its_parents_threads) {
    const leasehold::client client{server().url()};
    auto mutex = std::make_unique<leasehold::mutex>(client, unused_name());
    std::atomic<bool> stop{false};
    const auto busy = std::async(std::launch::async, [&] {
        while (!stop) static_cast<void>(mutex->is_valid());
    });
    const struct stopping {
        std::atomic<bool> &stop;
        ~stopping() { stop = true; }
    } at_the_end{stop};
    for (int turn = 0; turn < 40; ++turn) {
        in_a_child([&] {
            alarm(20); // instead of waiting for ever
            static_cast<void>(mutex->fence());
            mutex->unlock();
            CHECK(mutex->unlock_error());
            mutex.reset();
        });
    }
}

TEST(forked_child_has_a_client_of_its_own) {
    const leasehold::client client{server().url()};
    const auto name = unused_name();
    const auto lease = client.lock(name).acquire();
    const std::string other = unused_name();
    in_a_child([&] {
        const leasehold::client own{server().url()};
        CHECK(!own.lock(name).try_acquire());
        leasehold::mutex mutex{own, other};
        const std::scoped_lock held{mutex};
        CHECK(mutex.is_valid());
    });
    CHECK(client.lock(other).try_acquire());
}
