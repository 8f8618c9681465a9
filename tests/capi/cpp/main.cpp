// Runs all tests, or those whose names contain the first argument. One line for each, and the
// count as the last one.

#include "check.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace check {

namespace {

std::vector<std::pair<std::string, std::function<void()>>> &tests() {
    static std::vector<std::pair<std::string, std::function<void()>>> all;
    return all;
}

std::string place(const char *file, int line) {
    return std::filesystem::path{file}.filename().string() + ":" + std::to_string(line) + ": ";
}

/** What the last line of the program counts. */
struct count {
    int passed = 0;
    int failed = 0;

    void run(const std::string &name, const std::function<void()> &body) {
        try {
            body();
            std::printf("ok %s\n", name.c_str());
            passed += 1;
        } catch (const std::exception &problem) {
            std::printf("not ok %s: %s\n", name.c_str(), problem.what());
            failed += 1;
        }
        std::fflush(stdout);
    }
};

std::unique_ptr<redis> shared_server;
std::string shared_scratch;

} // namespace

test::test(std::string name, std::function<void()> body) {
    tests().emplace_back(std::move(name), std::move(body));
}

on_both::on_both(const std::string &name, void (*body)(const std::string &url)) {
    // Where many contend on a busy machine, a second may be too short for one of them.
    const std::string patient = "?io_timeout=10s";
    test(name + " on redis", [body, patient] { body(server().url() + patient); });
    test(name + " on a file",
         [body, patient] { body("sqlite://" + scratch() + "/" + unused_name() + patient); });
}

failure::failure(const char *file, int line, const std::string &what)
    : std::runtime_error{place(file, line) + what} {}

leasehold::error thrown(const char *file, int line, const char *what, leasehold_status status,
                        const std::function<void()> &body) {
    try {
        body();
    } catch (const leasehold::error &error) {
        equal(file, line, what, error.status(), status);
        return error;
    }
    throw failure(file, line, std::string{"nothing was thrown by "} + what);
}

void eventually(const char *file, int line, const char *what, const std::function<bool()> &is_so) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    for (bool late = false; !is_so(); std::this_thread::sleep_for(2ms)) {
        // Asked once more after the end: this thread may have been kept from asking before it.
        if (late) throw failure(file, line, std::string{"never so: "} + what);
        late = std::chrono::steady_clock::now() > end;
    }
}

std::string scratch() {
    if (shared_scratch.empty()) {
        std::string folder = std::filesystem::temp_directory_path() / "leasehold-XXXXXX";
        if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error{"no scratch folder"};
        shared_scratch = folder;
    }
    return shared_scratch;
}

std::string unused_name() {
    static std::atomic<int> names{0};
    return "name-" + std::to_string(++names);
}

namespace {

/** A line of what comes from a socket, without its end. */
std::string line_from(int socket) {
    std::string line;
    for (char c = 0; read(socket, &c, 1) == 1 && c != '\n';)
        if (c != '\r') line += c;
    return line;
}

void send_line(int socket, const std::string &line) {
    const std::string whole = line + "\r\n";
    EQUAL(send(socket, whole.data(), whole.size(), MSG_NOSIGNAL),
          static_cast<ssize_t>(whole.size()));
}

} // namespace

redis::redis() {
    int ends[2];
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const char *kit = std::getenv("KIT_PROGRAM");
    if (kit == nullptr) throw std::runtime_error{"KIT_PROGRAM does not name the kit's program"};
    kit_ = fork();
    if (kit_ == 0) {
        dup2(ends[1], STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        execl(kit, kit, "redis", static_cast<char *>(nullptr));
        _exit(127);
    }
    close(ends[1]);
    channel_ = ends[0];
    const std::string line = line_from(channel_);
    EQUAL(std::sscanf(line.c_str(), "url=%*s ports=%d", &port_), 1);
}

redis::~redis() {
    // Not only by the end of the channel, which a forked child may still have open.
    kill(kit_, SIGKILL);
    waitpid(kit_, nullptr, 0);
    close(channel_);
}

std::string redis::url(const std::string &parameters) const {
    return "redis://127.0.0.1:" + std::to_string(port_) + parameters;
}

std::string redis::ask(const std::string &command) const {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EQUAL(connect(connection, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
    send_line(connection, command);
    std::string answer = line_from(connection);
    close(connection);
    return answer;
}

void redis::tell(const std::string &word) {
    send_line(channel_, word);
    EQUAL(line_from(channel_), "ok");
}

void redis::stop() { tell("pause"); }

void redis::go_on() { tell("resume"); }

redis &server() {
    if (!shared_server) shared_server = std::make_unique<redis>();
    return *shared_server;
}

} // namespace check

int main(int argc, char **argv) {
    check::count count;
    for (const auto &[name, body] : check::tests()) {
        if (argc < 2 || name.find(argv[1]) != std::string::npos) count.run(name, body);
    }
    count.run("no_handle_is_left", [] { EQUAL(leasehold::handle_count(), 0u); });
    check::shared_server.reset();
    if (!check::shared_scratch.empty()) std::filesystem::remove_all(check::shared_scratch);
    std::printf("%d passed, %d failed\n", count.passed, count.failed);
    return count.failed == 0 ? 0 : 1;
}
