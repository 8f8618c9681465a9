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

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
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
    test(name + " on redis", [body] { body(server().url()); });
    test(name + " on a file", [body] { body("sqlite://" + scratch() + "/" + unused_name()); });
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

redis::redis() : socket_{scratch() + "/" + unused_name()}, process_{fork()} {
    if (process_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, STDOUT_FILENO);
        dup2(nothing, STDERR_FILENO);
        const char *program = std::getenv("REDIS_SERVER");
        if (program == nullptr) program = "redis-server";
        execlp(program, program, "--port", "0", "--unixsocket", socket_.c_str(), "--save", "",
               "--dir", "/tmp", static_cast<char *>(nullptr));
        _exit(127);
    }
    EVENTUALLY(waitpid(process_, nullptr, WNOHANG) != 0 || ask("PING") == "+PONG");
    EQUAL(ask("PING"), "+PONG");
}

redis::~redis() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
}

std::string redis::url(const std::string &parameters) const {
    return "unix://" + socket_ + parameters;
}

std::string redis::ask(const std::string &command) const {
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_.c_str(), sizeof address.sun_path - 1);
    std::string answer;
    if (connect(connection, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) {
        const std::string line = command + "\r\n";
        if (write(connection, line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
            for (char c = 0; read(connection, &c, 1) == 1 && c != '\r';) answer += c;
        }
    }
    close(connection);
    return answer;
}

void redis::stop() { kill(process_, SIGSTOP); }

void redis::go_on() { kill(process_, SIGCONT); }

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
