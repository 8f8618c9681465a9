// The driver of C++; see README.md here.
#include <atomic>
#include <condition_variable>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <queue>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <leasehold.hpp>

namespace {

using namespace std::chrono_literals;
using words = std::vector<std::string>;
using leasehold::outcome;

std::string url;
std::optional<leasehold::client> client;
std::optional<leasehold::events> events;
std::map<std::string, leasehold::lock> locks;
std::map<std::string, leasehold::lease> leases;
std::atomic<bool> interrupted{false};
// The thread that stands sets it, before the flag.
std::optional<leasehold::election> candidate;
std::atomic<bool> stands{false};

void say(const std::string &answer) { std::cout << "@@ " << answer << std::endl; }

words split(const std::string &line) {
    std::istringstream text{line};
    words found;
    for (std::string word; text >> word;) found.push_back(word);
    return found;
}

std::string decoded(const std::string &name) {
    std::string bytes;
    for (std::size_t at = 0; at < name.size(); at++) {
        if (name[at] == '%') {
            bytes += static_cast<char>(std::stoi(name.substr(at + 1, 2), nullptr, 16));
            at += 2;
        } else {
            bytes += name[at];
        }
    }
    return bytes;
}

std::chrono::milliseconds ms(const std::string &count) {
    return std::chrono::milliseconds{std::stoll(count)};
}

std::string spelled(outcome how) {
    return leasehold_status_name(static_cast<leasehold_status>(how));
}

std::string keep(const std::string &key, std::optional<leasehold::lease> taken,
                 const std::string &otherwise) {
    if (!taken) return otherwise;
    std::string answer = "ok " + std::to_string(taken->fence());
    leases.insert_or_assign(key, std::move(*taken));
    return answer;
}

leasehold::wait_mode mode_of(const std::string &how) {
    return how == "spin" ? leasehold::wait_mode::spin : leasehold::wait_mode::automatic;
}

std::string make_lock(const words &word) {
    leasehold::lock lock = client->lock(decoded(word[2]));
    for (std::size_t at = 3; at < word.size(); at++) {
        const std::string option = word[at].substr(0, word[at].find('='));
        const std::string value = word[at].substr(option.size() + 1);
        if (option == "ttl") lock.ttl(ms(value));
        if (option == "wait") lock.wait(ms(value));
        if (option == "io_timeout") lock.io_timeout(ms(value));
        if (option == "wait_mode") lock.wait_mode(mode_of(value));
        if (option == "renew") lock.renew(value != "no");
    }
    locks.insert_or_assign(word[1], std::move(lock));
    return "ok";
}

std::string take_name(std::size_t length) {
    auto lease = client->lock(std::string(length, 'n')).try_acquire();
    return lease ? spelled(lease->release()) : "busy";
}

std::string spelled(const leasehold::event &event) {
    static const char *const kinds[] = {"none", "at_risk", "lost", "released_late"};
    static const char *const reasons[] = {"-", "not_held", "expired", "max_hold", "not_renewed"};
    return std::string{kinds[static_cast<int>(event.kind)]} + " " +
           reasons[static_cast<int>(event.reason)] + " " + std::to_string(event.fence);
}

std::string next_event() {
    const auto event = events->next_within(20s);
    return event ? spelled(*event) : "timeout";
}

/** What leases have called, and not been asked for yet. */
class calls {
public:
    void add(const leasehold::event &event) {
        const std::lock_guard guard{mutex_};
        told_.push(spelled(event));
        came_.notify_one();
    }

    std::string next(std::chrono::milliseconds wait) {
        std::unique_lock guard{mutex_};
        if (!came_.wait_for(guard, wait, [this] { return !told_.empty(); })) return "timeout";
        const std::string first = told_.front();
        told_.pop();
        return first;
    }

private:
    std::mutex mutex_;
    std::condition_variable came_;
    std::queue<std::string> told_;
} called;

std::string contend(const words &word) {
    const std::size_t names = word.size() - 2;
    for (int turn = 0; turn < std::stoi(word[1]); turn++) {
        const std::string &name = word[2 + static_cast<std::size_t>(getpid() + turn) % names];
        auto lease = client->lock(name).ttl(10s).acquire_within(60s);
        if (!lease) return "timeout";
        const std::string entered = name + " " + std::to_string(lease->fence());
        std::string reply;
        say("enter " + entered);
        std::getline(std::cin, reply);
        say("leave " + entered + " " + std::to_string(std::stoull(reply) + 1));
        std::getline(std::cin, reply);
        if (const outcome how = lease->release(); how != outcome::done) return spelled(how);
    }
    return "done";
}

std::string elect(const leasehold::lock &lock, std::chrono::milliseconds ttl) {
    candidate.emplace(client->election(lock.name()).ttl(ttl));
    stands = true;
    candidate->run_as_leader([](const leasehold::term &term) {
        while (term.leads_after(20s)) {}
    });
    return "ok";
}

std::string leads() {
    for (int asked = 0; asked < 4000; asked++) {
        if (const std::uint64_t fence = stands ? candidate->fence() : 0)
            return "ok " + std::to_string(fence);
        std::this_thread::sleep_for(5ms);
    }
    return "timeout";
}

std::string do_it(const words &word) {
    const std::string &what = word[0];
    const auto lease = [&]() -> leasehold::lease & { return leases.at(word[1]); };
    if (what == "open" && word[1].rfind("memory:", 0) == 0)
        leasehold::testing::memory{word[1].substr(7, word[1].find('?') - 7)};
    if (what == "open") return url = word[1], client.emplace(url), "ok";
    if (what == "lock") return make_lock(word);
    if (what == "try") return keep(word[1], locks.at(word[2]).try_acquire(), "busy");
    if (what == "acquire") {
        auto taken = locks.at(word[2]).acquire_unless([] { return interrupted.load(); });
        return keep(word[1], std::move(taken), interrupted ? "interrupted" : "timeout");
    }
    if (what == "acquire_within")
        return keep(word[1], locks.at(word[2]).acquire_within(ms(word[3])), "timeout");
    if (what == "attach")
        return keep(word[1], locks.at(word[2]).attach(word[3], std::stoull(word[4])), "");
    if (what == "extend")
        return spelled(word.size() > 2 ? lease().extend_for(ms(word[2])) : lease().extend());
    if (what == "release") return spelled(lease().release());
    if (what == "let_expire") return spelled(lease().let_expire_in(ms(word[2])));
    if (what == "detach") {
        const std::string answer = " " + lease().token() + " " + std::to_string(lease().fence());
        return spelled(lease().detach()) + answer;
    }
    if (what == "valid") return lease().is_valid() ? "yes" : "no";
    if (what == "remaining") return "ok " + std::to_string(lease().remaining().count());
    if (what == "events") return events.emplace(client->events()), "ok";
    if (what == "event") return next_event();
    if (what == "on_lost") {
        lease().on_lost([](const leasehold::event &event) { called.add(event); });
        return "ok";
    }
    if (what == "called") return called.next(word.size() > 1 ? ms(word[1]) : 20s);
    if (what == "inspect") {
        const auto seen = locks.at(word[1]).inspect();
        return seen.held ? "held " + std::to_string(seen.fence) : "free";
    }
    if (what == "break") {
        std::optional<std::uint64_t> fence;
        if (word.size() > 2) fence = std::stoull(word[2]);
        const auto broken = locks.at(word[1]).break_held("c++", fence);
        return broken ? "ok " + std::to_string(*broken) : "none";
    }
    if (what == "elect") return elect(locks.at(word[1]), ms(word[2]));
    if (what == "leads") return leads();
    if (what == "leader") {
        const auto seen = candidate->leader();
        return seen.held ? "held " + std::to_string(seen.fence) : "free";
    }
    if (what == "withdraw") return candidate->stop(), "ok";
    if (what == "metric") {
        std::istringstream lines{client->metrics_text()};
        for (std::string line; std::getline(lines, line);)
            if (line.rfind(word[1] + " ", 0) == 0) return "ok " + line.substr(word[1].size() + 1);
        return "none";
    }
    if (what == "take_empty_name") return take_name(0);
    if (what == "take_long_name") return take_name(std::stoul(word[1]));
    if (what == "fresh") {
        auto taken = leasehold::client{url}.lock(word[1]).try_acquire();
        return taken ? "ok " + std::to_string(taken->fence()) : "busy";
    }
    if (what == "close") return client->close(), "ok";
    if (what == "contend") return contend(word);
    return "unsupported";
}

std::string obey(const std::string &line) {
    try {
        return do_it(split(line));
    } catch (const leasehold::error &failure) {
        return failure.name();
    }
}

std::string in_a_child(std::string line) {
    // Its name is the parent's to tell.
    if (line.rfind("fresh ", 0) == 0) line = "fresh " + locks.at(line.substr(6)).name();
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const pid_t child = fork();
    if (child == 0) {
        const std::string answer = obey(line);
        _exit(write(ends[1], answer.data(), answer.size()) < 0);
    }
    close(ends[1]);
    std::string answer(256, '\0');
    const ssize_t got = read(ends[0], answer.data(), answer.size());
    answer.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return answer;
}

} // namespace

int main() {
    std::future<std::string> begun;
    for (std::string line; std::getline(std::cin, line);) {
        if (line.rfind("begin ", 0) == 0) {
            interrupted = false;
            begun = std::async(std::launch::async, obey, line.substr(6));
            say("begun");
        } else if (line == "end") {
            say(begun.get());
        } else if (line == "interrupt") {
            interrupted = true;
            say("ok");
        } else if (line.rfind("fork ", 0) == 0) {
            say(in_a_child(line.substr(5)));
        } else {
            say(obey(line));
        }
    }
}
