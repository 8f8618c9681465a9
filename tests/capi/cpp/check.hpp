// A few lines in place of a test framework, and what the tests need of the world: a scratch folder,
// Redis servers, waiting for something to become true.

#ifndef CHECK_HPP
#define CHECK_HPP

#include <leasehold.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace check {

using namespace std::chrono_literals;

/** A test is a function; making one of these has main() run it. */
struct test {
    test(std::string name, std::function<void()> body);
};

/** What a failed check throws. In other threads than main's, futures carry it there. */
struct failure : std::runtime_error {
    failure(const char *file, int line, const std::string &what);
};

template <class Value> std::string text(const Value &value) {
    if constexpr (std::is_enum_v<Value>) {
        return std::to_string(static_cast<long long>(value));
    } else {
        std::ostringstream out;
        out << std::boolalpha << value;
        return out.str();
    }
}

template <class Rep, class Period> std::string text(std::chrono::duration<Rep, Period> value) {
    return text(std::chrono::duration<double, std::milli>(value).count()) + " ms";
}

template <class Left, class Right>
void equal(const char *file, int line, const char *what, const Left &left, const Right &right) {
    if (left == right) return;
    throw failure(file, line, std::string{what} + ": " + text(left) + " is not " + text(right));
}

/** The leasehold::error that `body` has to throw. */
leasehold::error thrown(const char *file, int line, const char *what, leasehold_status status,
                        const std::function<void()> &body);

/** Waits until something is so, and fails if that takes more than 20 s. */
void eventually(const char *file, int line, const char *what, const std::function<bool()> &is_so);

/** A folder for files of this program; it is removed at the end. */
std::string scratch();

/** A name that no other test uses. */
std::string unused_name();

/** A Redis of our own, which ends with this object or with this process. */
class redis {
public:
    redis();
    ~redis();
    redis(const redis &) = delete;
    redis &operator=(const redis &) = delete;

    std::string url(const std::string &parameters = {}) const;
    /** Asks something whose answer is a line, in the server's own words. */
    std::string ask(const std::string &command) const;
    /** While it is stopped, it accepts connections and answers nothing. */
    void stop();
    void go_on();

private:
    void tell(const std::string &word);

    pid_t kit_;
    int channel_ = -1;
    int port_ = 0;
};

/** The server that the tests share. */
redis &server();

/** Runs a test once on Redis and once on a file. */
struct on_both {
    on_both(const std::string &name, void (*body)(const std::string &url));
};

} // namespace check

#define TEST(name)                                                                                 \
    static void name();                                                                            \
    static const check::test test_##name{#name, name};                                             \
    static void name()

#define TEST_ON_BOTH(name)                                                                         \
    static void name(const std::string &url);                                                      \
    static const check::on_both test_##name{#name, name};                                          \
    static void name(const std::string &url)

#define CHECK(...)                                                                                 \
    do {                                                                                           \
        if (!(__VA_ARGS__)) throw check::failure(__FILE__, __LINE__, "not so: " #__VA_ARGS__);     \
    } while (false)

#define EQUAL(left, right) check::equal(__FILE__, __LINE__, #left, left, right)

#define THROWS(status, ...)                                                                        \
    check::thrown(__FILE__, __LINE__, #__VA_ARGS__, status, [&] { static_cast<void>(__VA_ARGS__); })

#define EVENTUALLY(...)                                                                            \
    check::eventually(__FILE__, __LINE__, #__VA_ARGS__, [&] { return __VA_ARGS__; })

#endif
