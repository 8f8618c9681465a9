// Leader election: who leads, what the work is told, and what ends it.

#include "check.hpp"

#include <atomic>
#include <future>
#include <mutex>
#include <vector>

using namespace std::chrono_literals;
using check::unused_name;
using leasehold::election_state;
using leasehold::leadership;
using leasehold::term_end;

/** Of a lease that stays held on a busy machine. */
constexpr auto TTL = 6s;

/** Runs work as a leader beside the test. */
template <class Work> std::future<void> lead(leasehold::election &election, Work work) {
    return std::async(std::launch::async,
                      [&election, work]() mutable { election.run_as_leader(work); });
}

TEST_ON_BOTH(one_leads_and_another_one_follows_with_a_larger_fence) {
    const leasehold::client first{url}, second{url};
    const auto name = unused_name();
    auto one = first.election(name).ttl(TTL);
    auto two = second.election(name).ttl(TTL);
    std::atomic<std::uint64_t> first_fence{0}, second_fence{0};
    const auto until_it_ends = [](std::atomic<std::uint64_t> &fence) {
        return [&fence](const leasehold::term &term) {
            fence = term.fence();
            while (term.leads_after(1s)) {}
            EQUAL(term.end(), term_end::resigned);
        };
    };
    auto leads = lead(one, until_it_ends(first_fence));
    EVENTUALLY(first_fence != 0);
    auto stands = lead(two, until_it_ends(second_fence));
    EVENTUALLY(two.state() == election_state::standby);
    CHECK(one.is_leader() && one.is_healthy() && two.is_healthy());
    EQUAL(one.fence(), first_fence.load());
    EQUAL(two.leader().fence, first_fence.load());
    one.resign();
    EVENTUALLY(second_fence > first_fence);
    one.stop();
    leads.get();
    two.stop();
    stands.get();
    CHECK(!two.leader().held);
    EQUAL(two.state(), election_state::idle);
    EQUAL(two.name(), name);
}

TEST_ON_BOTH(work_that_returns_or_throws_gives_the_leadership_up) {
    const leasehold::client client{url};
    const auto name = unused_name();
    auto election = client.election(name).ttl(TTL);
    int terms = 0;
    election.run_as_leader([&](const leasehold::term &) { ++terms; });
    EQUAL(terms, 1);
    CHECK(!election.leader().held);
    const auto failing = [](const leasehold::term &) { throw std::range_error{"mine"}; };
    bool thrown = false;
    try {
        election.run_as_leader(failing);
    } catch (const std::range_error &) {
        thrown = true;
    }
    CHECK(thrown && !election.leader().held);
    election.stand_again(true).run_as_leader([&](const leasehold::term &) {
        if (++terms == 3) election.stop();
    });
    EQUAL(terms, 3);
    CHECK(!election.stand());
}

TEST_ON_BOTH(a_loss_is_told_to_the_work_and_to_on_change) {
    const leasehold::client client{url}, operator_{url};
    const auto name = unused_name();
    std::mutex mutex;
    std::vector<leadership> told;
    auto election = client.election(name).ttl(TTL).on_change([&](const leadership &change) {
        const std::unique_lock<std::mutex> held{mutex};
        told.push_back(change);
        throw 1; // is dropped
    });
    std::atomic<int> terms{0};
    auto leads = lead(election, [&](const leasehold::term &term) {
        if (++terms == 2) return;
        CHECK(operator_.lock(name).break_held("an operator"));
        CHECK(!term.leads_after(20s));
        EVENTUALLY(term.loss() == leasehold::loss_reason::broken);
        EQUAL(term.end(), term_end::lost);
        EQUAL(term.remaining(), 0ms);
    });
    leads.get();
    EQUAL(terms.load(), 2);
    const std::unique_lock<std::mutex> held{mutex};
    EQUAL(told.size(), 4u);
    EQUAL(told[0].end, term_end::none);
    EQUAL(told[1].end, term_end::lost);
    EQUAL(told[1].loss, leasehold::loss_reason::broken);
    EQUAL(told[2].end, term_end::none);
    EQUAL(told[3].end, term_end::resigned);
    CHECK(told[2].fence > told[0].fence);
}

TEST_ON_BOTH(a_term_of_ones_own_resigns_at_its_end) {
    const leasehold::client client{url}, other{url};
    const auto name = unused_name();
    auto election = client.election(name).ttl(TTL);
    auto standby = other.election(name).ttl(TTL);
    {
        const auto term = election.stand();
        CHECK(term && term->is_leader() && term->remaining() > 0ms);
        CHECK(!standby.stand_within(20ms));
    }
    EVENTUALLY(!standby.leader().held);
    auto term = standby.stand();
    CHECK(other.lock(name).break_held("an operator"));
    EQUAL(term->resign(), leasehold::outcome::lost);
    const auto moved = std::move(*term);
    CHECK(!term->is_leader() && term->fence() == 0);
}

TEST(bad_input_of_an_election_throws) {
    leasehold::client client{check::server().url()};
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.election(""));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.election("n").ttl(99ms));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.election("n").grace(-1ms));
    auto election = client.election(unused_name()).grace(1s);
    election.run_as_leader([&](const leasehold::term &) {
        THROWS(LEASEHOLD_ERR_WOULD_DEADLOCK, static_cast<void>(election.stand()));
    });
    client.close();
    THROWS(LEASEHOLD_ERR_CLOSED, static_cast<void>(election.stand()));
    const auto moved = std::move(election);
    THROWS(LEASEHOLD_ERR_HANDLE, election.stop());
}
