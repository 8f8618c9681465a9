// Opening, setting up and closing clients, and what errors say.

#include "check.hpp"

#include <atomic>
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;
using check::server;

static bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

TEST(client_opens_by_url_config_and_environment) {
    const std::string url = server().url();
    leasehold::client{url}.ping();
    leasehold::client{std::string_view{url}}.ping();
    leasehold::client{leasehold::config{url}}.ping();

    setenv("LEASEHOLD_URL", url.c_str(), 1);
    EQUAL(leasehold::client::from_env().store(), leasehold::client{url}.store());
    EQUAL(leasehold::config::from_env().store(), leasehold::config{url}.store());
    unsetenv("LEASEHOLD_URL");
}

TEST(client_opens_before_its_server) {
    const leasehold::client client{"unix:///nowhere/at/all"};
    const leasehold::error refused = THROWS(LEASEHOLD_ERR_REFUSED, client.ping());
    CHECK(refused.is_retriable());
    EQUAL(refused.name(), std::string_view{"refused"});
    // Its detail says what to do, in place of the advice of its status.
    CHECK(contains(refused.detail(), ": start the server"));
    EQUAL(std::string{refused.what()},
          leasehold_status_message(LEASEHOLD_ERR_REFUSED) + (": " + refused.detail()));
    THROWS(LEASEHOLD_ERR_REFUSED, client.lock("name").try_acquire());
}

TEST(credentials_are_looked_up_by_a_function) {
    std::atomic<int> calls{0};
    const auto opened = [&](leasehold::credentials_function function) {
        return leasehold::client{
            leasehold::config{server().url()}.credentials(std::move(function))};
    };
    const auto good = [&](const leasehold::endpoint &to) {
        EQUAL(to.host, "127.0.0.1");
        CHECK(to.port != 0 && to.user.empty());
        ++calls;
        // The server lets everybody in, who has any password.
        return leasehold::credentials{"default", "any", std::chrono::system_clock::now() + 1h};
    };
    const leasehold::client client = opened(good);
    CHECK(client.lock(check::unused_name()).try_acquire().has_value());
    EQUAL(calls.load(), 1);

    const auto refused = [&](leasehold::credentials_function function, std::string_view says) {
        const auto failed = opened(std::move(function));
        CHECK(contains(THROWS(LEASEHOLD_ERR_AUTH, failed.ping()).detail(), says));
    };
    refused(
        [](const auto &) -> leasehold::credentials { throw std::runtime_error{"it is sealed"}; },
        ": it is sealed");
    refused([](const auto &) -> leasehold::credentials { throw 7; }, "it does not say why");
    refused(
        [](const auto &) {
            return leasehold::credentials{"", "a", std::chrono::system_clock::time_point{}};
        },
        "ended at 1970");
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::config{"redis://:p@h"}.credentials(good));
    leasehold::config{"redis://:p@h"}.credentials(nullptr);
}

TEST(client_refuses_a_bad_url) {
    const std::string_view url = "redis://user:secret@host?colour=blue";
    leasehold_client *client = nullptr;
    leasehold_error *error = nullptr;
    EQUAL(leasehold_client_open(url.data(), url.size(), &client, &error),
          LEASEHOLD_ERR_BAD_ARGUMENT);
    const std::string sentence = leasehold_error_message(error);
    const std::string detail = leasehold_error_detail(error);
    leasehold_error_free(error);

    const auto thrown = THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::client{url});
    EQUAL(std::string{thrown.what()}, sentence);
    EQUAL(thrown.detail(), detail);
    CHECK(contains(thrown.what(), "colour"));
    CHECK(!contains(thrown.what(), "secret"));
    CHECK(!thrown.is_retriable());
    EQUAL(THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::config{url}).detail(), detail);
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::client{""});
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::client{std::string_view{}});
}

TEST(error_keeps_its_words_when_it_is_copied) {
    std::optional<leasehold::error> copy;
    try {
        throw leasehold::error{LEASEHOLD_ERR_AUTH, "as nobody"};
    } catch (const leasehold::error &error) {
        copy = error;
    }
    EQUAL(copy->status(), LEASEHOLD_ERR_AUTH);
    EQUAL(copy->detail(), "as nobody");
    EQUAL(copy->name(), std::string_view{"auth"});
    const std::string advice = leasehold_status_advice(LEASEHOLD_ERR_AUTH);
    EQUAL(std::string{copy->what()},
          "the store refused the user or the password: as nobody; " + advice);
    EQUAL(std::string{leasehold::error{LEASEHOLD_ERR_AUTH}.what()},
          "the store refused the user or the password; " + advice);
    CHECK(contains(leasehold::error{-12345}.what(), "; "));
}

TEST(config_sets_what_a_url_can) {
    auto config = leasehold::config{server().url()}
                      .prefix(std::string_view{"pre\0fix:", 8})
                      .io_timeout(2s)
                      .pool(2)
                      .close_timeout(500ms)
                      .claim_window(500ms);
    config.prefix("prefixed:");
    const leasehold::client client{config};
    const std::string name = check::unused_name();
    const auto lease = client.lock(name).try_acquire();
    EQUAL(server().ask("EXISTS prefixed:" + name), ":1");
    EQUAL(server().ask("EXISTS " + name), ":0");
}

TEST(config_is_sealed_once_a_client_was_opened_with_it) {
    leasehold::config config{server().url()};
    const leasehold::client first{config};
    const auto sealed = THROWS(LEASEHOLD_ERR_SEALED, config.pool(3));
    CHECK(contains(sealed.what(), "pool"));
    leasehold::client{config}.ping();
}

TEST(config_refuses_what_cannot_be) {
    leasehold::config negative{server().url()};
    CHECK(contains(THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, negative.io_timeout(-1s)).what(),
                   "io_timeout"));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, negative.close_timeout(-1ns));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, negative.claim_window(-1s));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::client{negative});
    const auto empty =
        THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::config{server().url()}.pool(0));
    EQUAL(empty.detail(), std::string{"pool is 0; it goes from 1 to 1024"});
}

TEST(config_has_max_ttl_and_the_guard_and_takes_a_quorum) {
    const leasehold::client brief{leasehold::config{server().url()}.max_ttl(5s)};
    const auto longer = THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, brief.lock("n").ttl(6s));
    EQUAL(longer.detail(),
          std::string{"the ttl is 6 s; it goes from 3 ms to 5 s, this store's max_ttl; for more, "
                      "all programs need ?max_ttl=6s in the URL"});
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, brief.initialize());
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::config{"sqlite:x"}.guard_data_loss(true));
    EQUAL(leasehold::config::from_urls({"redis://a", "redis://b", "redis://c"}).store(),
          std::string{"redis://a:6379/0,redis://b:6379/0,redis://c:6379/0"});
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::config::from_urls({"redis://a", "redis://b"}));
}

TEST(store_is_shown_without_its_password) {
    const leasehold::config config{"redis://user:secret@127.0.0.1:1/2"};
    const leasehold::client client{config};
    EQUAL(config.store(), client.store());
    CHECK(contains(client.store(), "127.0.0.1"));
    CHECK(!contains(client.store(), "secret"));
}

TEST_ON_BOTH(metrics_tell_groups_of_names_apart) {
    const auto name = check::unused_name();
    const leasehold::client client{leasehold::config{url}.metrics_group(name + "*")};
    CHECK(client.lock(name + "1").acquire()->release() == leasehold::outcome::done);
    const auto lease = client.lock(check::unused_name()).acquire();
    const auto text = client.metrics_text();
    CHECK(contains(text, "\nleasehold_hold_seconds_count{lock=\"" + name + "*\"} 1\n"));
    CHECK(contains(text, "\nleasehold_held{lock=\"*\"} 1\n"));
    EQUAL(text.back(), '\n');
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::config{url}.metrics_group("*"));
}

TEST_ON_BOTH(counters_count) {
    const leasehold::client client{url};
    const auto lock = client.lock(check::unused_name());
    EQUAL(client.counters().granted, 0u);
    auto lease = lock.try_acquire();
    CHECK(!lock.try_acquire());
    CHECK(!lock.acquire_within(1ms));
    CHECK(lease->release() == leasehold::outcome::done);
    const leasehold::counters counters = client.counters();
    EQUAL(counters.granted, 1u);
    CHECK(counters.busy >= 2);
    EQUAL(counters.timed_out, 1u);
    CHECK(counters.attempts >= 3);
    EQUAL(counters.unknown + counters.renewed + counters.lost + counters.released_late, 0u);
}

TEST_ON_BOTH(close_ends_everything) {
    leasehold::client client{url};
    const auto name = check::unused_name();
    const auto lock = client.lock(name);
    auto events = client.events();
    auto lease = lock.try_acquire();
    std::atomic<bool> waits{false};
    auto waiter = std::async(std::launch::async, [&] {
        THROWS(LEASEHOLD_ERR_CLOSED, lock.acquire_within(leasehold::forever, [&] {
            waits = true;
            return false;
        }));
    });
    EVENTUALLY(waits.load());
    client.close();
    waiter.get();
    CHECK(!lease->is_valid());
    EQUAL(lease->remaining(), 0ms);
    CHECK(lease->fence() > 0);
    THROWS(LEASEHOLD_ERR_CLOSED, lease->release());
    THROWS(LEASEHOLD_ERR_CLOSED, lock.try_acquire());
    THROWS(LEASEHOLD_ERR_CLOSED, events.next());
    THROWS(LEASEHOLD_ERR_CLOSED, client.ping());
    EQUAL(client.counters().granted, 1u);
    client.close();
    client.close_within(1s);
    // Who waited may keep a place among the waiters for a moment.
    const leasehold::client next{url};
    EVENTUALLY(next.lock(name).try_acquire().has_value());
}

TEST(close_within_refuses_a_negative_time) {
    leasehold::client client{server().url()};
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, client.close_within(-1s));
    client.ping();
    client.close_within(200ms);
    THROWS(LEASEHOLD_ERR_CLOSED, client.ping());
}

TEST(versions_of_header_and_library_are_one) {
    EQUAL(leasehold::version(), std::string_view{LEASEHOLD_VERSION});
    EQUAL(leasehold::abi_version(), LEASEHOLD_ABI_VERSION + 0u);
}
