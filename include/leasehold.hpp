/*
 * Leasehold for C++17 and later: one lock for programs on many machines, or for the processes of one.
 *
 *     #include <leasehold.hpp>
 *     using namespace std::chrono_literals;
 *
 *     leasehold::client client{"redis://127.0.0.1"};
 *
 *     // In place of a std::mutex:
 *     leasehold::mutex stock{client, "stock:sku-17"};
 *     if (std::unique_lock held{stock, 5s}; held)  // after 5 s without it, `held` is false
 *         charge(order, stock.fence());            // the database rejects a smaller fence
 *
 *     // If you need to know how the lease ended:
 *     leasehold::lock refunds = client.lock("refunds").ttl(10s);
 *     if (std::optional<leasehold::lease> lease = refunds.try_acquire()) {
 *         refund(order, lease->fence());
 *         if (lease->release() != leasehold::outcome::done) warn("the lock was lost");
 *     }
 *
 * Compile with `c++ -std=c++17 program.cpp $(pkg-config --cflags --libs leasehold)`. The C++ binding
 * is this header only. It calls leasehold.h, which says more about each function.
 *
 * Exceptions. Errors (a status below 0) are thrown as leasehold::error. Outcomes (above 0) are
 * values: an empty std::optional if another client holds the lock, a leasehold::outcome when a lease
 * ends. One outcome is thrown too: LEASEHOLD_UNKNOWN from a call that acquires, since an empty
 * std::optional would say that another client holds the lock. std::bad_alloc can come from any
 * function that returns a string or has a std::function as its argument. RTTI is not needed.
 *
 * Ownership. config, client, lock, waits, lease, events, election and term each own a handle of leasehold.h. Their
 * destructors free it and never throw. Objects can be moved, not copied, and destroyed in any order.
 * A moved-from object holds nothing: fence() and remaining() return 0, names are empty, and every
 * other call throws LEASEHOLD_ERR_HANDLE. For functions that only leasehold.h has, handle() lends the
 * handle, disown() passes it to the caller, who must free it, and adopt() makes an object own a handle.
 * Strings are returned as copies.
 *
 * Threads. Any thread may call any function of any object at any time. As with every C++ object, do
 * not destroy, move or assign to one while another thread uses it. client::close() makes the calls of
 * other threads return.
 *
 * Times are std::chrono durations of any kind, rounded up to whole milliseconds. A duration too long
 * to be counted is leasehold::forever. A negative one throws; mutex is the exception, see there.
 *
 * Fork. A forked child may use the clients, locks and mutexes that it has inherited. A client reopens
 * its store at its first use there. Leases, events and waits belong to the parent: in a child their
 * calls throw LEASEHOLD_ERR_FORKED, and their destructors do nothing. An adopted client behaves like
 * this only after leasehold_client_reopen_after_fork().
 */

#ifndef LEASEHOLD_HPP
#define LEASEHOLD_HPP

#if __cplusplus < 201703L
#error "leasehold.hpp needs C++17; leasehold.h does not"
#endif
#ifndef __cpp_exceptions
#error "leasehold.hpp needs exceptions; leasehold.h does not"
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 202002L && __has_include(<stop_token>)
#include <stop_token>
#endif

#include <signal.h>
#include <unistd.h>

#include "leasehold.h"

namespace leasehold {

class lock;
class lease;
class events;
class election;
struct event;
namespace detail {
class particulars;
}

/* ---- Errors, outcomes, times ----------------------------------------------------------------- */

/**
 * Every exception of this library. what() is one sentence: what went wrong, and what to do about it.
 * It never shows a password.
 */
class error : public std::runtime_error {
public:
    explicit error(leasehold_status status, std::string_view detail = {});

    /** One of LEASEHOLD_ERR_..., or an outcome that was thrown, such as LEASEHOLD_UNKNOWN. */
    leasehold_status status() const noexcept { return status_; }
    /** The short, stable name of the status, such as "refused". */
    const char *name() const noexcept { return leasehold_status_name(status_); }
    /** What is particular to this failure, without the general text; may be empty. */
    const std::string &detail() const noexcept { return *detail_; }
    /** Whether the same call may succeed later, with nothing changed. */
    bool is_retriable() const noexcept { return leasehold_status_is_retriable(status_); }

private:
    friend class detail::particulars;
    /** With the sentence that the library has for it. */
    error(leasehold_status status, const char *message, std::string_view detail);

    leasehold_status status_;
    std::shared_ptr<const std::string> detail_; // shared: copying an exception must not throw
};

/**
 * Who held the lock when the calling thread's last wait ran out: "'n', held by web-3 (c++ worker, pid
 * 4711) since 12 s, not free within wait, 5 s, asked 2 times". Empty if none has run out yet. A wait
 * that runs out throws nothing: it returns an empty std::optional, or a std::unique_lock owns nothing.
 */
inline std::string timeout_detail() { return leasehold_timeout_detail(); }

/** The outcome of a call on a lease. Later versions may add more. */
enum class outcome : leasehold_status {
    /** Done: you held the lock to the end. */
    done = LEASEHOLD_OK,
    /** You no longer held the lock: the lease had ended or expired, was deleted, or another client
        holds the lock now. */
    lost = LEASEHOLD_LOST,
    /** The store did not answer, so the outcome is not known. */
    unknown = LEASEHOLD_UNKNOWN,
};

/** The duration that means no limit. */
inline constexpr std::chrono::milliseconds forever = std::chrono::milliseconds::max();

/** Any std::chrono::duration, in the milliseconds of leasehold.h. */
class time_span {
public:
    template <class Rep, class Period>
    time_span(std::chrono::duration<Rep, Period> span)
        : ms_{whole(std::chrono::duration<long double, std::milli>(span).count())} {}

    std::int64_t ms() const noexcept { return ms_; }

private:
    static std::int64_t whole(long double ms) noexcept;

    std::int64_t ms_;
};

/* ---- How handles are owned ------------------------------------------------------------------- */

namespace detail {

template <auto Free> struct freeing {
    template <class Handle> void operator()(Handle *handle) const noexcept { Free(handle); }
};

/** Owns a handle: what config, client, lock, waits, lease and events have in common. */
template <class Handle, auto Free> class owner {
public:
    /** Lends the handle for a call of leasehold.h. NULL in an object that was moved from. */
    Handle *handle() const noexcept { return handle_.get(); }
    /** Passes the handle to the caller, who must free it. This object is then as if moved from. */
    [[nodiscard]] Handle *disown() noexcept { return handle_.release(); }

protected:
    explicit owner(Handle *handle) noexcept : handle_{handle} {}

private:
    std::unique_ptr<Handle, freeing<Free>> handle_;
};

} // namespace detail

/* ---- Setting up a client --------------------------------------------------------------------- */

/** The server that a login goes to. */
struct endpoint {
    std::string host;   /**< Or the path of a unix socket. */
    std::uint16_t port; /**< 0 for a unix socket. */
    std::string user;   /**< The one in the URL; empty if it has none. */
};

/** A secret, and how long it is good for. */
struct credentials {
    std::string user;   /**< Whose secret it is; empty for the user in the URL. */
    std::string secret; /**< A password or a token. */
    /** When it ends. Without an end it is asked for at each login. */
    std::optional<std::chrono::system_clock::time_point> valid_until{};
    /** Whether connections to PostgreSQL and MySQL that logged in with earlier credentials make way. */
    bool retire_connections{false};
};

/** Looks up credentials. What it throws is the text of an error with LEASEHOLD_ERR_AUTH. */
using credentials_function = std::function<credentials(const endpoint &)>;

/**
 * The options of a client: a URL, and options that you set in code.
 *
 *     leasehold::client client{leasehold::config{"redis://cache"}.prefix("shop:").pool(16)};
 *
 * A setter throws for a value out of range. After a client was opened with it, a setter throws
 * LEASEHOLD_ERR_SEALED.
 */
class config : public detail::owner<leasehold_config, leasehold_config_free> {
public:
    /** Reads a URL; leasehold_config_from_url() lists them. */
    explicit config(std::string_view url);
    /** Reads the URLs of a quorum, one for each member. */
    template <class Urls = std::initializer_list<std::string_view>>
    static config from_urls(const Urls &urls);
    /** Reads the URL in the environment variable LEASEHOLD_URL, else the one in /etc/leasehold.conf. If neither
        is set, it is the embedded store. */
    static config from_env();
    static config adopt(leasehold_config *handle) noexcept { return config{handle}; }

    /** A prefix to every name in the store: any bytes, none by default. */
    config &prefix(std::string_view bytes) &;
    /** How long the store may take to answer one request: 1 s by default. */
    config &io_timeout(time_span most) &;
    /** How many requests may be under way at once: 8 by default. */
    config &pool(std::uint32_t connections) &;
    /** How long client::close() keeps releasing leases: 1 s by default. */
    config &close_timeout(time_span most) &;
    /** If a waiter dies while the lock is handed to it, the next waiter gets the lock after this time: 1 s by
        default. */
    config &claim_window(time_span window) &;
    /** The longest ttl that a lock may have: 366 days by default, 60 s with guard_data_loss;
        in a quorum 24 h at most. */
    config &max_ttl(time_span most) &;
    /** Whether a server that may have lost data grants no lock until older leases have expired. */
    config &guard_data_loss(bool on) &;
    /** A word of your own, at most 100 bytes. Other clients see it beside the program's name. */
    config &label(std::string_view text) &;
    /** Whether the client writes to the store who it is: on by default. */
    config &registers(bool on) &;
    /** Whether the log warns if the store can lose grants and nothing guards against that: on by default. */
    config &advise(bool on) &;
    /** Counts some names separately in client::metrics_text(): a name, or a prefix and a `*`. At most 32. */
    config &metrics_group(std::string_view pattern) &;
    /**
     * Has the credentials of the server looked up while the program runs, such as tokens that end. The URL
     * then has no password. A background thread calls the function, one call at a time: when the first
     * connection needs credentials, and again before they end. See leasehold_config_set_credentials().
     */
    config &credentials(credentials_function function) &;

    config prefix(std::string_view bytes) && { return std::move(prefix(bytes)); }
    config io_timeout(time_span most) && { return std::move(io_timeout(most)); }
    config pool(std::uint32_t connections) && { return std::move(pool(connections)); }
    config close_timeout(time_span most) && { return std::move(close_timeout(most)); }
    config claim_window(time_span window) && { return std::move(claim_window(window)); }
    config max_ttl(time_span most) && { return std::move(max_ttl(most)); }
    config guard_data_loss(bool on) && { return std::move(guard_data_loss(on)); }
    config label(std::string_view text) && { return std::move(label(text)); }
    config registers(bool on) && { return std::move(registers(on)); }
    config advise(bool on) && { return std::move(advise(on)); }
    config metrics_group(std::string_view pattern) && { return std::move(metrics_group(pattern)); }
    config credentials(credentials_function function) && {
        return std::move(credentials(std::move(function)));
    }

    /** The store's URL without user and password. */
    std::string store() const { return leasehold_config_store(handle()); }

private:
    explicit config(leasehold_config *handle) noexcept : owner{handle} {}
    /** Sets the language of a config that was made just now, so the call cannot fail. */
    static leasehold_config *of_cpp(leasehold_config *handle) noexcept;
    config &set(const char *what, leasehold_status status);
};

/* ---- Clients --------------------------------------------------------------------------------- */

/** What a client has counted since it was opened. */
struct counters {
    std::uint64_t attempts;      /**< Requests for a lock, every try of a wait included. */
    std::uint64_t granted;       /**< Leases acquired. */
    std::uint64_t busy;          /**< Tries that found the lock held by another client. */
    std::uint64_t timed_out;     /**< Waits that timed out. */
    std::uint64_t unknown;       /**< Requests whose outcome stayed unknown. */
    std::uint64_t renewed;       /**< Renewals that the store confirmed. */
    std::uint64_t lost;          /**< Leases that were lost while held. */
    std::uint64_t released_late; /**< Releases that found the lease lost, or got no answer. */
};

/**
 * An open store with its connections and one background thread, which renews leases. Open one per
 * process and share it. Its destructor closes it.
 */
class client : public detail::owner<leasehold_client, leasehold_client_free> {
public:
    /**
     * Opens the store that a URL names, such as "redis://127.0.0.1" or "sqlite:///path/to/file".
     * A Redis store connects at its first use; ping() connects at once.
     */
    explicit client(std::string_view url);
    /** Opens a store with these options. The config can open more clients, but can no longer change. */
    explicit client(const config &setup);
    /** Opens the store that config::from_env() finds. */
    static client from_env();
    static client adopt(leasehold_client *handle) noexcept { return client{handle}; }

    /** Makes a lock: a name of any bytes, and options that you set on it. It does not contact the store. */
    leasehold::lock lock(std::string_view name) const;
    /** Makes a candidate for the leadership of a name, and options that you set on it. It does not contact the
     * store. */
    leasehold::election election(std::string_view name) const;
    /** Connects to the store and logs in. Throws what is in the way. It touches no lock. */
    void ping() const;
    /** Declares that the servers are new, so that they grant locks at once; see leasehold_client_initialize(). */
    void initialize(bool force = false) const;
    /** Subscribes to what happens to the leases of this client from now on. */
    leasehold::events events() const;
    leasehold::counters counters() const;
    /** All counts and measurements in Prometheus's text format, "text/plain; version=0.0.4". */
    std::string metrics_text() const;
    /** The store's URL without user and password. */
    std::string store() const { return leasehold_client_store(handle()); }

    /**
     * Makes every lease invalid at once and releases it. It takes at most close_timeout. Calls that
     * wait throw LEASEHOLD_ERR_CLOSED. Closing twice does no harm.
     */
    void close();
    /** As close(), within `most` instead of close_timeout. */
    void close_within(time_span most);

private:
    explicit client(leasehold_client *handle) noexcept : owner{handle} {}
    static leasehold_client *reopening(leasehold_client *handle) noexcept;
    std::uint64_t count(leasehold_counter counter) const;
};

/* ---- Locks ----------------------------------------------------------------------------------- */

/** A command that `leasehold run --once-per` has run, with times by the clock of its machine. The lock
 * stays held after the command has ended. */
struct client_run {
    std::chrono::system_clock::time_point began;
    /** None while it runs, or if its machine died before it ended. */
    std::optional<std::chrono::system_clock::time_point> ended;
    std::optional<int> exit_status; /**< 128 + n if signal n ended it. */
};

/** What a client has written to the store about itself. No text contains control characters that a
 * terminal would obey. */
struct client_info {
    std::string id;       /**< 12 hexadecimal digits, different in each process. */
    std::string host;     /**< The machine's name. */
    std::int64_t pid;     /**< The process ID. */
    std::string program;  /**< The program that runs there. */
    std::string language; /**< The language of its binding. */
    std::string version;  /**< Its version of this library. */
    std::string label;    /**< Its config::label(). */
    std::int64_t started; /**< When it was opened, in milliseconds since 1970; 0 if not known. */
    std::optional<client_run>
        run; /**< The command that it has run with `leasehold run --once-per`. */
};

/** A process that waited for a lock. */
struct lock_waiter {
    std::string token_prefix;                        /**< The first digits of its token. */
    std::string who;                                 /**< Which process it is, and since when. */
    std::optional<std::chrono::milliseconds> waited; /**< For how long, if known. */
    std::optional<client_info> client;               /**< Its client, if known. */
};

/** Who held a lock, and who waited for it, when lock::inspect() asked. */
struct lock_state {
    bool held;
    std::string token_prefix;      /**< Enough to tell holders apart, too little to release with. */
    std::chrono::milliseconds ttl; /**< When the lock would be free without another renewal. */
    std::uint64_t fence;           /**< The holder's; 0 if it is free, or held without a fence. */
    std::uint64_t last_fence;      /**< The last fence of this name; 0 if no longer known. */
    std::string who;               /**< Its holder and since when; empty if it was free. */
    std::optional<std::chrono::milliseconds> held_for; /**< By the store's clock, if known. */
    std::optional<client_info> client;                 /**< The holder's client, if known. */
    std::vector<lock_waiter> waiters; /**< The first 100 waiters of the store's queue, in order. */
    std::uint64_t more_waiters;       /**< How many waiters there are beyond those. */
};

/** How waiters wait for a lock. */
enum class wait_mode : leasehold_wait_mode {
    /**
     * They queue in the order of arrival, if the store has a queue. If the server denies a right that
     * the queue needs, they poll.
     */
    automatic = LEASEHOLD_WAIT_MODE_AUTO,
    /** They poll, in no order: for names shared with other libraries, whose releases notify no waiter. */
    spin = LEASEHOLD_WAIT_MODE_SPIN,
};

/**
 * A name and options. It holds nothing itself; each time you acquire it, you get a lease. Any number of
 * threads may use it at once.
 *
 *     leasehold::lock stock = client.lock("stock:sku-17").ttl(10s).wait(5s);
 *
 * A setter throws for a value out of range. Options that contradict each other throw when you acquire
 * the lock. A setter does not change leases that were acquired before.
 */
class lock : public detail::owner<leasehold_lock, leasehold_lock_free> {
public:
    static lock adopt(leasehold_lock *handle) noexcept { return lock{handle}; }

    /** The lock is free this long after its holder died: 30 s by default, from 3 ms to 366 days, or to the
     * max_ttl of the URL. */
    lock &ttl(time_span span) &;
    /** How long acquire() waits: 60 s by default; 0 tries once. */
    lock &wait(time_span most) &;
    /** How long the store may take to answer when you acquire this lock: by default the client's
     * io_timeout, 1 s. While the store does not answer, try_acquire() and shorter waits take this long. */
    lock &io_timeout(time_span most) &;
    /** How often a wait with wait_mode::spin tries at most: no limit by default. Other modes reject it. */
    lock &attempts(std::uint32_t most) &;
    /** Whether leases are renewed: by default they are, if the ttl is at least 100 ms. */
    lock &renew(bool yes) &;
    /** How long a living holder may keep a renewed lease: 1 h by default. */
    lock &max_hold(time_span most) &;
    /** How waiters wait: by default in a queue, if the store has one. */
    lock &wait_mode(leasehold::wait_mode how) &;
    /** How long a wait with wait_mode::spin pauses between tries; see leasehold_lock_set_backoff_ms(). Other
     * modes reject it. */
    lock &backoff(time_span first, time_span longest = forever) &;

    lock ttl(time_span span) && { return std::move(ttl(span)); }
    lock wait(time_span most) && { return std::move(wait(most)); }
    lock io_timeout(time_span most) && { return std::move(io_timeout(most)); }
    lock attempts(std::uint32_t most) && { return std::move(attempts(most)); }
    lock renew(bool yes) && { return std::move(renew(yes)); }
    lock max_hold(time_span most) && { return std::move(max_hold(most)); }
    lock wait_mode(leasehold::wait_mode how) && { return std::move(wait_mode(how)); }
    lock backoff(time_span first, time_span longest = forever) && {
        return std::move(backoff(first, longest));
    }

    std::string name() const;

    /** Acquires the lock if it is free. Empty if another client holds it. It never waits for the holder. If
     * the store does not answer within io_timeout(), it throws LEASEHOLD_UNKNOWN or the cause. */
    [[nodiscard]] std::optional<lease> try_acquire() const;
    /**
     * Acquires the lock, and waits for it up to wait(). Empty if the wait runs out. While the store
     * does not answer, it takes at least io_timeout(). Throws LEASEHOLD_ERR_WOULD_DEADLOCK if the wait
     * has no limit and this thread itself acquired the lease that holds the lock.
     */
    [[nodiscard]] std::optional<lease> acquire() const;
    /** As acquire(), but waits up to `most`. timeout_detail() says who held the lock. */
    [[nodiscard]] std::optional<lease> acquire_within(time_span most) const;
    /**
     * As acquire(), with a function that can end the wait. The library calls it on this thread, at
     * least every 100 ms while it waits. If it returns true, the wait ends and the result is empty.
     * If it throws, the wait ends and this function throws the same; you do not hold the lock.
     *
     *     stock.acquire_unless([&] { return stop.load(); });
     */
    template <class Interrupt>
    [[nodiscard]] std::optional<lease> acquire_unless(Interrupt &&interrupt) const;
    /** As acquire_unless(), but waits up to `most`. */
    template <class Interrupt>
    [[nodiscard]] std::optional<lease> acquire_within(time_span most, Interrupt &&interrupt) const;
    /**
     * Continues a lease that another process has handed over with lease::detach(). It does not contact
     * the store. Rely on the lease only after its first successful lease::extend(). If several
     * processes attach the same lease, the extend() of only one succeeds. With a wrong token or fence,
     * none does.
     */
    [[nodiscard]] lease attach(std::string_view token, std::uint64_t fence) const;

    /** Asks the store who holds the lock and who waits for it. It changes nothing. */
    lock_state inspect() const;

    /**
     * Frees a lock whose holder does not release it. The store hands the lock to the first waiter at
     * once, with a larger fence. The holder learns of it at its next renewal: its lease is lost, and its
     * event names `by`. Returns the fence of the lease that it ended, or nothing if the lock was free.
     * With `if_fence`, it ends only the lease with that fence, and returns nothing if another lease
     * holds the lock. An `if_fence` of 0 throws: it is what inspect() returns for a free lock.
     */
    std::optional<std::uint64_t>
    break_held(std::string_view by, std::optional<std::uint64_t> if_fence = std::nullopt) const;

private:
    explicit lock(leasehold_lock *handle) noexcept : owner{handle} {}
    lock &set(const char *what, leasehold_status status);
};

/* ---- Leases ---------------------------------------------------------------------------------- */

using lost_function = std::function<void(const event &)>;

/**
 * The proof that you hold a lock, for as long as is_valid() says so. It is renewed in the background
 * unless you switched that off. Its destructor releases a lease that has not ended, and does not report
 * the outcome; release() does.
 */
class [[nodiscard]] lease : public detail::owner<leasehold_lease, leasehold_lease_free> {
public:
    static lease adopt(leasehold_lease *handle) noexcept { return lease{handle}; }

    /**
     * The fencing token: larger than the fence of every earlier lease on this name. It is from 1 to
     * 2^53 - 1 (16 digits), so a std::int64_t and a BIGINT hold it. It stays after the lease has ended.
     */
    std::uint64_t fence() const noexcept { return leasehold_lease_fence(handle()); }
    /** What identifies this lease in the store. A program that knows it can release the lock. */
    std::string token() const { return leasehold_lease_token(handle()); }
    std::string name() const;
    /** For how much longer you may rely on it; 0 after it has ended. It does not contact the store. */
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds{leasehold_lease_remaining_ms(handle())};
    }
    /** Whether you may rely on it at this moment. It does not contact the store. */
    bool is_valid() const noexcept { return leasehold_lease_is_valid(handle()); }

    /**
     * Makes it valid for its ttl from now on. A renewed lease does not need it. After
     * outcome::unknown or an error, it is valid until the time that it had before.
     */
    [[nodiscard]] outcome extend();
    /** As extend(), for `ttl` instead of the lock's own. */
    [[nodiscard]] outcome extend_for(time_span ttl);

    /**
     * Calls a function if this lease is lost, or at once if it was lost already. Another function
     * replaces it; an empty one removes it.
     *
     * The client calls it at most once. It does not call it after the lease has ended or the client
     * was closed. One thread calls the functions of all leases of a client and does nothing else. A
     * slow function delays the others, but no renewal. If one throws, the library logs that.
     *
     * When this call returns, the former function is no longer running and was destroyed. The same
     * holds when a call that ends the lease returns, or its destructor. The exception are calls from
     * within such a function: they do not wait. So the function may refer to objects that outlive the
     * lease. It must not wait for a thread that ends the lease, and its destructor must not call this
     * library.
     *
     * Throws LEASEHOLD_LOST if a call has ended the lease before.
     */
    void on_lost(lost_function function);

#ifdef __cpp_lib_jthread
    /**
     * From C++20 on: requests a stop if this lease is lost, or at once if it was lost already.
     *
     *     std::jthread worker{[&](std::stop_token stop) { reindex(stop, lease.fence()); }};
     *     lease.stop_on_loss(worker.get_stop_source());
     *
     * It stands in the place of on_lost(): the later one of both counts. A std::stop_callback runs in
     * the thread that calls those functions.
     */
    void stop_on_loss(std::stop_source source) {
        on_lost([source](const event &) mutable { source.request_stop(); });
    }
#endif

    /** Releases the lock, and returns the outcome. The lease has ended, whatever the outcome is. */
    [[nodiscard]] outcome release();
    /**
     * Ends the lease without releasing the lock, which stays held until its ttl has passed. The outcome
     * is not done if the lock was handed over to this lease a moment ago and the store has not
     * confirmed it for its whole ttl.
     */
    [[nodiscard]] outcome let_expire();
    /** As let_expire(), with the lock free `after` from now, whatever its ttl was. */
    [[nodiscard]] outcome let_expire_in(time_span after);
    /** Ends it in this process. Another one continues it by lock::attach(), with its token() and fence(). */
    [[nodiscard]] outcome detach();

private:
    explicit lease(leasehold_lease *handle) noexcept : owner{handle} {}
};

/* ---- Many waits at once ---------------------------------------------------------------------- */

/**
 * Waits that need no thread each: for event loops, and for waiting for hundreds of locks at once.
 *
 *     leasehold::waits waits = leasehold::waits::open();
 *     waits.start(17, stock);                      // never blocks; 17 is a number of yours
 *     // ... and when waits.descriptor() is readable:
 *     while (std::optional<std::uint64_t> id = waits.try_next())
 *         if (std::optional<leasehold::lease> lease = waits.take(*id)) charge(*id, lease->fence());
 */
class waits : public detail::owner<leasehold_waits, leasehold_waits_free> {
public:
    /** Makes an object without waits. It is for locks of any clients. */
    static waits open();
    static waits adopt(leasehold_waits *handle) noexcept { return waits{handle}; }

    /** Begins a wait, up to lock::wait(). No other wait of this object may have the same number. */
    void start(std::uint64_t id, const lock &what);
    /** As start(), but waits up to `most`. */
    void start_within(std::uint64_t id, const lock &what, time_span most);

    /** The number of a wait that has ended, or empty. Each is returned once. */
    std::optional<std::uint64_t> try_next();
    /** Waits up to `most` for a wait to end; empty if none did. */
    std::optional<std::uint64_t> next_within(time_span most);
    /** The result of a wait that next_within() or try_next() has returned. It is that of lock::acquire(). */
    [[nodiscard]] std::optional<lease> take(std::uint64_t id);
    /** Ends a wait, at any time: it leaves the queue, and releases the lock if it has acquired it. */
    void stop(std::uint64_t id);

    /**
     * A descriptor for poll(2) and similar calls. It is readable while next_within() has a result. Only
     * poll it: do not read from it. It is valid as long as this object; -1 in a forked child.
     */
    int descriptor() const noexcept { return leasehold_waits_descriptor(handle()); }

private:
    explicit waits(leasehold_waits *handle) noexcept : owner{handle} {}
};

/* ---- Events ---------------------------------------------------------------------------------- */

/** What happened to a lease that its holder did not cause. Later versions may add more. */
enum class event_kind : std::int32_t {
    /** Less than a third of the ttl is left, or max_hold is near: finish soon. */
    at_risk = LEASEHOLD_EVENT_AT_RISK,
    /** The lease was lost. You hear of it before its validity ends, unless this process was paused. */
    lost = LEASEHOLD_EVENT_LOST,
    /** The release by a destructor found that the lease was lost, or got no answer from the store. */
    released_late = LEASEHOLD_EVENT_RELEASED_LATE,
};

/** Why a lease was lost. Later versions may add more. */
enum class loss_reason : std::int32_t {
    /** No reason: it is another kind of event. */
    none = LEASEHOLD_LOSS_NONE,
    /** The key was deleted or flushed, or another client holds the lock now. */
    not_held = LEASEHOLD_LOSS_NOT_HELD,
    /** Its ttl passed: the store could not be reached, or renewal was off. */
    expired = LEASEHOLD_LOSS_EXPIRED,
    /** max_hold was reached. */
    max_hold = LEASEHOLD_LOSS_MAX_HOLD,
    /** The client's background thread has failed. The client is closed. */
    not_renewed = LEASEHOLD_LOSS_NOT_RENEWED,
    /** An operator broke the lock, as lock::break_held() does: event::detail says who. */
    broken = LEASEHOLD_LOSS_BROKEN,
};

struct event {
    event_kind kind;
    loss_reason reason;
    std::string name;    /**< The name of the lock. */
    std::uint64_t fence; /**< The fence of the lease. Name and fence together identify it. */
    std::string detail;  /**< More in words: who broke the lock, and when. */
};

/**
 * A subscription to the events of a client's leases. A slow reader may miss at_risk events, which
 * dropped() counts, but never lost.
 */
class events : public detail::owner<leasehold_events, leasehold_events_free> {
public:
    static events adopt(leasehold_events *handle) noexcept { return events{handle}; }

    /**
     * Waits for the next event. Throws LEASEHOLD_ERR_CLOSED when the client is closed and every event
     * was read.
     */
    event next();
    /** Returns an unread event, or empty if there is none. Throws as next(). */
    std::optional<event> try_next();
    /** Waits up to `most` for the next event; empty if there was none. Throws as next(). */
    std::optional<event> next_within(time_span most);

    /**
     * A descriptor for poll(2) and similar calls. It is readable while there are unread events, and
     * when the client is closed. Only poll it: do not read from it. It is valid as long as this
     * object; -1 in a forked child.
     */
    int descriptor() const noexcept { return leasehold_events_descriptor(handle()); }
    /** How many at_risk events were dropped because they were not read in time. */
    std::uint64_t dropped() const noexcept { return leasehold_events_dropped(handle()); }

private:
    explicit events(leasehold_events *handle) noexcept : owner{handle} {}
};

/* ---- Leader election ------------------------------------------------------------------------- */

/** What a candidate does at this moment. Later versions may add more. */
enum class election_state : std::int32_t {
    /** It does not stand: it has not begun, its work has ended, or it was stopped. */
    idle = LEASEHOLD_ELECTION_IDLE,
    /** It waits to be elected, or rests first. */
    standby = LEASEHOLD_ELECTION_STANDBY,
    /** It leads. */
    leading = LEASEHOLD_ELECTION_LEADING,
    /** Its leadership has ended and the work was told to stop. No other candidate can be elected yet. */
    stopping = LEASEHOLD_ELECTION_STOPPING,
    /** Its lease is over, and the work has still not stopped: another candidate may lead beside it. */
    overdue = LEASEHOLD_ELECTION_OVERDUE,
};

/** Why a term has ended. Later versions may add more. */
enum class term_end : std::int32_t {
    /** It lasts. */
    none = LEASEHOLD_TERM_LASTS,
    /** The candidate resigned, or its election was stopped. */
    resigned = LEASEHOLD_TERM_RESIGNED,
    /** The lease could not be renewed, and only what the work needs to stop in is left. */
    at_risk = LEASEHOLD_TERM_AT_RISK,
    /** The lease was lost; loss() says how. */
    lost = LEASEHOLD_TERM_LOST,
};

/** What has become of a candidate, as election::on_change() is told. */
struct leadership {
    std::uint64_t fence; /**< The fence of its term. */
    term_end end;        /**< term_end::none if it was elected; else its term has ended. */
    loss_reason loss;    /**< How the lease was lost, if `end` is term_end::lost. */
};

using change_function = std::function<void(const leadership &)>;

/**
 * The time for which a candidate leads, from election::stand() or in the hands of the work. It ends before
 * its lease does: when only as much validity is left as the work needs to stop. A term that has ended does
 * not begin again. The lock stays held until the term is resigned, which its destructor does, too.
 */
class [[nodiscard]] term : public detail::owner<leasehold_term, leasehold_term_free> {
public:
    static term adopt(leasehold_term *handle) noexcept { return term{handle}; }

    /** The fencing token: larger than that of every earlier leader. Send it with each write, and let the
     * resource reject a smaller one. */
    std::uint64_t fence() const noexcept { return leasehold_term_fence(handle()); }
    /** Whether the work may go on. It does not contact the store. */
    bool is_leader() const noexcept { return leasehold_term_is_leader(handle()); }
    /** Sleeps for `wait`, and returns whether the work may go on then. If the term ends, it returns false at
     * once. */
    bool leads_after(time_span wait) const noexcept {
        return leasehold_term_leads_after_ms(handle(), wait.ms());
    }
    /** For how long no other candidate can be elected, by this lease; 0 once it is over. */
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds{leasehold_term_remaining_ms(handle())};
    }
    term_end end() const noexcept {
        return static_cast<term_end>(leasehold_term_end_reason(handle()));
    }
    loss_reason loss() const noexcept {
        return static_cast<loss_reason>(leasehold_term_loss(handle()));
    }
    /** Releases the lock, and waits until the store confirms it. Another candidate is elected then, so call it
     * when the work has stopped. outcome::lost: another candidate may have led before. */
    outcome resign();

private:
    explicit term(leasehold_term *handle) noexcept : owner{handle} {}
};

namespace detail {
struct changes;
}

/**
 * One candidate for the leadership of a name. One thread stands, and others resign, stop it, or ask whether
 * it leads. Its destructor stops it, so it must outlive a thread that stands.
 *
 *     leasehold::election election = client.election("collector").ttl(15s);
 *     election.run_as_leader([&](const leasehold::term &term) {
 *         do collect(term.fence());      // the database rejects a smaller fence
 *         while (term.leads_after(1s));  // sleeps, and wakes when the term ends
 *     });
 *
 * A setter throws for a value out of range. It does not change a term that has begun.
 */
class election : public detail::owner<leasehold_election, leasehold_election_free> {
public:
    static election adopt(leasehold_election *handle) noexcept { return election{handle}; }

    /** How soon another candidate is elected after the leader died: 30 s by default, from 100 ms. */
    election &ttl(time_span span) &;
    /** How long the work needs to stop: 10 s by default. If the lease cannot be renewed, the work is told to
     * stop when that much validity is left and half a second more, or a third of the ttl if that is less. */
    election &grace(time_span span) &;
    /** Whether run_as_leader() stands again when the work has returned by itself. By default it does not. */
    election &stand_again(bool yes) &;
    /**
     * Calls a function when this candidate is elected, on the thread that stands, and when its leadership ends,
     * on whichever thread notices. It must be quick, and may resign or stop the election. What it throws is
     * dropped. Another function replaces it for terms that begin later; an empty one removes it.
     */
    election &on_change(change_function function) &;

    election ttl(time_span span) && { return std::move(ttl(span)); }
    election grace(time_span span) && { return std::move(grace(span)); }
    election stand_again(bool yes) && { return std::move(stand_again(yes)); }
    election on_change(change_function function) && {
        return std::move(on_change(std::move(function)));
    }

    std::string name() const;

    /**
     * Stands by, calls `work(term)` on this thread when elected, and stands again when the leadership was lost,
     * until stop(). The work asks whether it may go on: term::is_leader(), or term::leads_after(). From C++20
     * on, it can be `work(term, stop_token)` instead. Then this call starts a thread that requests a stop when
     * the term ends.
     *
     * - If the work returns after its term has ended, the lock is released and the candidate stands again.
     * - If it returns while it leads, the lock is released and this call returns. With stand_again(), the
     *   candidate stands again instead.
     * - If it throws, the lock is released and this call throws the same.
     * - If it does not stop when its term has ended, the lock stays held and is renewed if that is possible.
     *   Else another candidate is elected when validity ends, with a larger fence.
     *
     * It waits through outages of the store. It throws what waiting does not mend, such as
     * LEASEHOLD_ERR_AUTH; LEASEHOLD_LOST if the work returned while it seemed to lead and the lock was lost
     * before; LEASEHOLD_ERR_WOULD_DEADLOCK if this thread leads already; LEASEHOLD_ERR_EXHAUSTED if there is
     * no thread that would request a stop.
     */
    template <class Work> void run_as_leader(Work &&work);

    /** Waits until this candidate is elected, without limit. Empty if the election was stopped. After a term of
     * its own it rests for about a second first. It throws as run_as_leader() does. */
    [[nodiscard]] std::optional<term> stand() { return stand_within(forever); }
    /** As stand(), but waits up to `most`. Empty also if it was not elected by then. Throws what was wrong with
     * the store to the end. */
    [[nodiscard]] std::optional<term> stand_within(time_span most);

    /** Asks the store who leads: lock_state::held, fence and who. */
    lock_state leader() const;
    /** The fence of the term in which this candidate leads; 0 while it does not. */
    std::uint64_t fence() const noexcept { return leasehold_election_fence(handle()); }
    /** What this candidate does at this moment. It does not contact the store. */
    election_state state() const noexcept {
        return static_cast<election_state>(leasehold_election_state(handle()));
    }
    bool is_leader() const noexcept { return state() == election_state::leading; }
    /** The answer to /healthz: false while the work still runs after its lease has ended, and nothing but the
     * end of the process stops it. A standby is healthy. */
    bool is_healthy() const noexcept { return leasehold_election_is_healthy(handle()); }
    /** Tells the work to stop, if this candidate leads; the lock is released when it has stopped. This candidate
     * rests for about a second before it stands again, so others are elected first. */
    void resign();
    /** Ends the election for this candidate, for good: it resigns, and run_as_leader() returns when the work has
     * stopped. */
    void stop();

private:
    explicit election(leasehold_election *handle) noexcept : owner{handle} {}
    election &set(const char *what, leasehold_status status);
    detail::changes &changes();

    /** What C tells of; made when it is first needed. */
    std::shared_ptr<detail::changes> changes_{};
};

/* ---- A mutex for the standard library -------------------------------------------------------- */

/**
 * A lock for the standard library. It meets Lockable and TimedLockable, so use it with std::unique_lock,
 * std::lock_guard, std::scoped_lock (also of several) and std::condition_variable_any.
 *
 * Threads may share one object, as they share a std::mutex. The object has a lease for each thread.
 * unlock() ends that of the calling thread, so unlock in the thread that locked. A thread that locks a
 * mutex that it holds gets std::system_error, resource_deadlock_would_occur, also from the functions
 * that only try. Two objects of one name are one lock: std::scoped_lock of both never returns.
 *
 * Unlike a std::mutex, a held mutex can be lost. Check is_valid() before you do what cannot be undone,
 * and send fence() to the resource. To learn how it ended, call unlock_error() after unlocking, or
 * unlock with release(), which throws. With a std::unique_lock named `held`:
 *
 *     held.release()->release();   // the first lets go of the mutex, the second releases the lock
 */
class mutex {
public:
    mutex(const client &store, std::string_view name) : mutex{store.lock(name)} {}
    /**
     * With the options of a lock, except wait(), which the functions below replace:
     *
     *     leasehold::mutex stock{client.lock("stock:sku-17").ttl(10s)};
     */
    explicit mutex(leasehold::lock options);
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;
    /** Releases the leases that the object still has. */
    ~mutex();

    /**
     * Waits without limit. Throws leasehold::error if it cannot acquire the lock: for example, the store
     * was never reached, the client is closed, or attempts() are used up.
     */
    void lock();
    /** Acquires the lock if it is free. */
    [[nodiscard]] bool try_lock();
    /** Waits up to `most`; zero and negative values try once. */
    [[nodiscard]] bool try_lock_for(time_span most);
    /** Waits until `when` by `Clock`, even if that clock is set during the wait. A past time tries once. */
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(std::chrono::time_point<Clock, Duration> when);

    /** Releases the lock. Never throws; unlock_error() has what went wrong. */
    void unlock() noexcept;
    /**
     * What went wrong in this thread's last unlock() of this mutex, until the thread locks it again. The
     * status is LEASEHOLD_LOST if the lease had been lost, LEASEHOLD_UNKNOWN if the store did not
     * confirm the release.
     */
    std::optional<error> unlock_error() const;
    /** Releases the lock as unlock() does, and throws what goes wrong. In any case the mutex is unlocked. */
    void release();

    /** The fence of the calling thread's lease; 0 if it has none. */
    std::uint64_t fence() const noexcept;
    /** Whether the calling thread has a lease on which it may rely at this moment. */
    bool is_valid() const noexcept;
    /** For how long the calling thread may rely on its lease; 0 if it has none. */
    std::chrono::milliseconds remaining() const noexcept;
    /** The lock, for its name() and inspect(). */
    const leasehold::lock &options() const noexcept { return options_; }

private:
    struct turns {
        const pid_t process = getpid();
        std::mutex gate;
        std::map<std::thread::id, lease> held;
        std::map<std::thread::id, error> failed;
    };

    turns &here() const;
    template <class Take> bool take(Take take_it);
    void remember(const error &failure);
    template <class Value> Value mine(Value (lease::*look)() const noexcept) const noexcept;

    leasehold::lock options_;
    const pid_t made_in_;
    mutable std::atomic<turns *> turns_;
};

/* ---- The log --------------------------------------------------------------------------------- */

/** How important a record of the log is. */
enum class log_level : leasehold_log_level {
    off = LEASEHOLD_LOG_OFF,
    error = LEASEHOLD_LOG_ERROR,
    warn = LEASEHOLD_LOG_WARN,
    info = LEASEHOLD_LOG_INFO,
    debug = LEASEHOLD_LOG_DEBUG,
    trace = LEASEHOLD_LOG_TRACE,
};

using log_function = std::function<void(log_level, std::string_view message)>;

/**
 * Sends the library's log to a function: records of level `from` and more severe ones. An empty function,
 * or log_level::off, ends that. There is one function per process. Without one, nothing is logged.
 *
 * The library calls the function on any thread, its own included, and on several at once. What the
 * function throws is dropped. When set_log() returns, the former function is no longer running and was
 * destroyed.
 *
 * Within the function you can only end the log, not set another function; the function is then destroyed
 * when the next one is set. It must not wait for a thread that is in set_log(). The last function is never
 * destroyed, so end the log before an object that the function refers to is destroyed.
 */
void set_log(log_function function, log_level from = log_level::warn);

/* ---- A store for tests ----------------------------------------------------------------------- */

namespace testing {

/** What goes on in a store for tests until this is destroyed: a lock that another client holds, or
    requests that fail. */
class [[nodiscard]] effect
    : public detail::owner<leasehold_testing_effect, leasehold_testing_effect_free> {
public:
    static effect adopt(leasehold_testing_effect *handle) noexcept { return effect{handle}; }

private:
    explicit effect(leasehold_testing_effect *handle) noexcept : owner{handle} {}
};

/**
 * A store in the memory of this process, for the tests of a program, and the controls of a test. All
 * clients that open its url() exclude each other, as on a server. A control that is called mistakenly
 * throws LEASEHOLD_ERR_BAD_ARGUMENT, such as lose() of a lock that no client holds. Names are those of
 * the store: with the prefix of the client, if it has one.
 *
 *     leasehold::testing::memory memory;
 *     const leasehold::client client{memory.url()}; // what your program does
 *     const auto busy = memory.busy("orders:42");   // another client holds it
 */
class memory : public detail::owner<leasehold_testing_memory, leasehold_testing_memory_free> {
public:
    /** A store that no other test has. */
    memory();
    /** The store of this name in this process: for a program whose URL stands in a file. */
    explicit memory(std::string_view name);

    /** What a program opens, in this process. Options may follow, such as "?io_timeout=50ms". */
    std::string url() const { return leasehold_testing_memory_url(handle()); }
    /** A client on this store. */
    leasehold::client client() const { return leasehold::client{url()}; }

    /** Ends the lease of the holder, as if its ttl had run out. When this returns, it has been told. */
    void lose(std::string_view name) const;
    /** Holds the lock as another client would, until the effect is destroyed. */
    effect busy(std::string_view name) const;
    /** Fails the next request of a call with this status; a call may try again. */
    void fail_next(leasehold_status status) const;
    /** Fails every request of a call with this status, until the effect is destroyed. */
    effect failing(leasehold_status status) const;
    /** The store answers nothing, neither calls nor renewals, until resume(). */
    void pause() const;
    /** The store answers again. So does one whose object is destroyed. */
    void resume() const;
    /** Moves the clock of the store forward, so that leases expire. That of the client stays. */
    void advance(time_span by) const;
    /** The names of the locks that are held, in the order of their bytes, also by busy(). */
    std::vector<std::string> held() const;
    /** Whether a client holds the lock. */
    bool is_held(std::string_view name) const;
};

} // namespace testing

/* ---- Durations, versions, handles ------------------------------------------------------------ */

/** Parses a duration such as "250ms", "10s", "1.5s", "5m", "1h30m", "1d" or "0". */
std::chrono::milliseconds parse_duration(std::string_view text);

/** The version of the library that runs; LEASEHOLD_VERSION is that of the header. */
inline const char *version() noexcept { return leasehold_version(); }
/** The LEASEHOLD_ABI_VERSION of the library that runs. */
inline std::uint32_t abi_version() noexcept { return leasehold_abi_version(); }
/** How many handles are open in this process. For tests: leak detectors do not see handles. */
inline std::size_t handle_count() noexcept { return leasehold_handle_count(); }

/* ==== How it is done: nothing below is needed to use it ======================================= */

static_assert(forever.count() == LEASEHOLD_FOREVER, "the library's word for no limit");

inline error::error(leasehold_status status, const char *message, std::string_view detail)
    : std::runtime_error{message}, status_{status},
      detail_{std::make_shared<const std::string>(detail)} {}

inline error::error(leasehold_status status, std::string_view detail)
    : error{status,
            (std::string{leasehold_status_message(status)} + (detail.empty() ? "" : ": ") +
             std::string{detail} + (*leasehold_status_advice(status) ? "; " : "") +
             leasehold_status_advice(status))
                .c_str(),
            detail} {}

inline std::int64_t time_span::whole(long double ms) noexcept {
    constexpr long double most = 9223372036854775807.0L;
    // What binary fractions are off by: 0.1 s shall be 100 ms, not 101.
    constexpr long double noise = 1e-7L;
    if (std::isnan(ms)) return 0;
    ms = ms < 0 ? std::floor(ms + noise) : std::ceil(ms - noise);
    if (ms >= most) return forever.count();
    return ms <= -most ? -forever.count() : static_cast<std::int64_t>(ms);
}

namespace detail {

/** The last argument of a call, and what is thrown if it fails. */
class particulars {
public:
    particulars() = default;
    particulars(const particulars &) = delete;
    particulars &operator=(const particulars &) = delete;
    ~particulars() { leasehold_error_free(error_); }

    leasehold_error **out() noexcept { return &error_; }

    [[noreturn]] void raise(leasehold_status status) const {
        if (error_ == nullptr) throw error{status};
        throw error{status, leasehold_error_message(error_), leasehold_error_detail(error_)};
    }
    void check(leasehold_status status) const {
        if (status != LEASEHOLD_OK) raise(status);
    }

private:
    leasehold_error *error_ = nullptr;
};

/** What a call says that has no output. */
template <class... Parameters, class... Arguments>
leasehold_status ask(leasehold_status (*function)(Parameters...), Arguments... arguments) {
    particulars error;
    const leasehold_status status = function(arguments..., error.out());
    if (status < 0) error.raise(status);
    return status;
}

/** What a call writes to its output, which is the last argument but the error. */
template <class Output, class... Parameters, class... Arguments>
Output get(leasehold_status (*function)(Parameters...), Arguments... arguments) {
    Output output{};
    particulars error;
    error.check(function(arguments..., &output, error.out()));
    return output;
}

/** The lease that a call took, if the lock was free. */
template <class... Parameters, class... Arguments>
std::optional<lease> acquired(leasehold_status (*function)(Parameters...), Arguments... arguments) {
    leasehold_lease *taken = nullptr;
    particulars error;
    const leasehold_status status = function(arguments..., &taken, error.out());
    if (status == LEASEHOLD_OK) return lease::adopt(taken);
    // Other outcomes, those that this header does not know too, say that nothing is held.
    if (status < 0 || status == LEASEHOLD_UNKNOWN) error.raise(status);
    return std::nullopt;
}

/** Asks a function of C++ whether to go on, from C: what it throws waits in here. */
template <class Interrupt> struct asking {
    Interrupt &interrupt;
    std::exception_ptr thrown{};

    static int ask(void *self) noexcept {
        auto &asked = *static_cast<asking *>(self);
        if (asked.thrown) return 1;
        try {
            return asked.interrupt() ? 1 : 0;
        } catch (...) {
            asked.thrown = std::current_exception();
            return 1;
        }
    }
};

/** Waits with such a function. */
template <class Interrupt, class Acquire>
std::optional<lease> unless(Interrupt &interrupt, Acquire acquire) {
    static_assert(std::is_invocable_r_v<bool, Interrupt &>, "it is asked: bool interrupt()");
    asking<Interrupt> asked{interrupt};
    std::optional<lease> taken;
    try {
        taken = acquire(&asking<Interrupt>::ask, &asked);
    } catch (const error &) {
        if (!asked.thrown) throw;
    }
    if (asked.thrown) {
        taken.reset(); // the lock may have come meanwhile
        std::rethrow_exception(asked.thrown);
    }
    return taken;
}

/** A name, which may hold zero bytes. */
template <class Handle>
std::string name_of(const char *(*name)(const Handle *, std::size_t *), const Handle *handle) {
    std::size_t length = 0;
    const char *bytes = name(handle, &length);
    return {bytes, length};
}

} // namespace detail

/* ---- config ---- */

inline config::config(std::string_view url)
    : config{of_cpp(
          detail::get<leasehold_config *>(leasehold_config_from_url, url.data(), url.size()))} {}

inline config config::from_env() {
    return config{of_cpp(detail::get<leasehold_config *>(leasehold_config_from_env))};
}

inline leasehold_config *config::of_cpp(leasehold_config *handle) noexcept {
    static_cast<void>(leasehold_config_set_language(handle, "c++", 3));
    return handle;
}

template <class Urls> config config::from_urls(const Urls &urls) {
    std::string all;
    for (const std::string_view url : urls) (all += all.empty() ? "" : ",") += url;
    return config{std::string_view{all}};
}

inline config &config::set(const char *what, leasehold_status status) {
    if (status != LEASEHOLD_OK) {
        detail::ask(leasehold_config_check, handle());
        throw error{status, what}; // nothing was refused for its value
    }
    return *this;
}

inline config &config::prefix(std::string_view bytes) & {
    return set("prefix", leasehold_config_set_prefix(handle(), bytes.data(), bytes.size()));
}

inline config &config::io_timeout(time_span most) & {
    return set("io_timeout", leasehold_config_set_io_timeout_ms(handle(), most.ms()));
}

inline config &config::pool(std::uint32_t connections) & {
    return set("pool", leasehold_config_set_pool(handle(), connections));
}

inline config &config::close_timeout(time_span most) & {
    return set("close_timeout", leasehold_config_set_close_timeout_ms(handle(), most.ms()));
}

inline config &config::claim_window(time_span window) & {
    return set("claim_window", leasehold_config_set_claim_window_ms(handle(), window.ms()));
}

inline config &config::max_ttl(time_span most) & {
    return set("max_ttl", leasehold_config_set_max_ttl_ms(handle(), most.ms()));
}

inline config &config::guard_data_loss(bool on) & {
    return set("guard_data_loss", leasehold_config_set_guard_data_loss(handle(), on));
}

inline config &config::label(std::string_view text) & {
    return set("label", leasehold_config_set_label(handle(), text.data(), text.size()));
}

inline config &config::registers(bool on) & {
    return set("register", leasehold_config_set_register(handle(), on));
}

inline config &config::advise(bool on) & {
    return set("advise", leasehold_config_set_advise(handle(), on));
}

inline config &config::metrics_group(std::string_view pattern) & {
    return set("metrics group",
               leasehold_config_add_metrics_group(handle(), pattern.data(), pattern.size()));
}

namespace detail {

/** A function for credentials, and what it answered last, which C reads when it has returned. */
struct looking_up {
    credentials_function function;
    credentials answer{};
    std::string failure{};
};

inline int call_look_up(void *data, const char *host, std::uint16_t port, const char *user,
                        leasehold_credentials *answer) noexcept {
    auto &kept = *static_cast<looking_up *>(data);
    try {
        try {
            kept.answer = kept.function(endpoint{host, port, user != nullptr ? user : ""});
        } catch (const std::exception &thrown) {
            kept.failure = thrown.what();
            answer->failure = kept.failure.c_str();
            return 1;
        }
        const credentials &found = kept.answer;
        if (!found.user.empty()) answer->user = found.user.c_str();
        answer->secret = found.secret.c_str();
        answer->retire_connections = found.retire_connections;
        if (found.valid_until) {
            using std::chrono::duration_cast;
            const auto since = found.valid_until->time_since_epoch();
            const auto ms = duration_cast<std::chrono::milliseconds>(since).count();
            answer->valid_until_ms = ms > 0 ? ms : 1; // 0 says that there is no end.
        }
        return 0;
    } catch (...) {
        return 1;
    }
}

inline void drop_look_up(void *data) noexcept { delete static_cast<looking_up *>(data); }

} // namespace detail

inline config &config::credentials(credentials_function function) & {
    // Whatever comes of it, C deletes the copy.
    auto *copy = function ? new detail::looking_up{std::move(function)} : nullptr;
    return set("credentials", leasehold_config_set_credentials(
                                  handle(), copy != nullptr ? detail::call_look_up : nullptr, copy,
                                  detail::drop_look_up));
}

/* ---- client ---- */

inline client::client(std::string_view url) : client{config{url}} {}

inline client::client(const config &setup)
    : client{reopening(
          detail::get<leasehold_client *>(leasehold_client_open_config, setup.handle()))} {}

inline client client::from_env() { return client{config::from_env()}; }

/** It was opened just now, so nothing can go wrong. */
inline leasehold_client *client::reopening(leasehold_client *handle) noexcept {
    static_cast<void>(leasehold_client_reopen_after_fork(handle, nullptr));
    return handle;
}

inline leasehold::lock client::lock(std::string_view name) const {
    return leasehold::lock::adopt(
        detail::get<leasehold_lock *>(leasehold_client_lock, handle(), name.data(), name.size()));
}

inline void client::ping() const { detail::ask(leasehold_client_ping, handle()); }

inline void client::initialize(bool force) const {
    detail::ask(leasehold_client_initialize, handle(), force);
}

inline leasehold::events client::events() const {
    return leasehold::events::adopt(
        detail::get<leasehold_events *>(leasehold_client_events, handle()));
}

inline std::uint64_t client::count(leasehold_counter counter) const {
    return detail::get<std::uint64_t>(leasehold_client_counter, handle(), counter);
}

inline leasehold::counters client::counters() const {
    return {count(LEASEHOLD_COUNTER_ATTEMPTS), count(LEASEHOLD_COUNTER_GRANTED),
            count(LEASEHOLD_COUNTER_BUSY),     count(LEASEHOLD_COUNTER_TIMED_OUT),
            count(LEASEHOLD_COUNTER_UNKNOWN),  count(LEASEHOLD_COUNTER_RENEWED),
            count(LEASEHOLD_COUNTER_LOST),     count(LEASEHOLD_COUNTER_RELEASED_LATE)};
}

inline std::string client::metrics_text() const {
    const std::unique_ptr<leasehold_metrics, detail::freeing<leasehold_metrics_free>> metrics{
        detail::get<leasehold_metrics *>(leasehold_client_metrics, handle())};
    std::size_t length = 0;
    const char *text = leasehold_metrics_text(metrics.get(), &length);
    return {text, length};
}

inline void client::close() { detail::ask(leasehold_client_close, handle()); }

inline void client::close_within(time_span most) {
    detail::ask(leasehold_client_close_within, handle(), most.ms());
}

/* ---- lock ---- */

inline lock &lock::set(const char *what, leasehold_status status) {
    if (status != LEASEHOLD_OK) {
        detail::ask(leasehold_lock_check, handle());
        throw error{status, what}; // nothing was refused for its value
    }
    return *this;
}

inline lock &lock::ttl(time_span span) & {
    return set("ttl", leasehold_lock_set_ttl_ms(handle(), span.ms()));
}

inline lock &lock::wait(time_span most) & {
    return set("wait", leasehold_lock_set_wait_ms(handle(), most.ms()));
}

inline lock &lock::io_timeout(time_span most) & {
    return set("io_timeout", leasehold_lock_set_io_timeout_ms(handle(), most.ms()));
}

inline lock &lock::attempts(std::uint32_t most) & {
    return set("attempts", leasehold_lock_set_attempts(handle(), most));
}

inline lock &lock::renew(bool yes) & {
    return set("renew", leasehold_lock_set_renew(handle(), yes));
}

inline lock &lock::max_hold(time_span most) & {
    return set("max_hold", leasehold_lock_set_max_hold_ms(handle(), most.ms()));
}

inline lock &lock::wait_mode(leasehold::wait_mode how) & {
    return set("wait_mode",
               leasehold_lock_set_wait_mode(handle(), static_cast<leasehold_wait_mode>(how)));
}

inline lock &lock::backoff(time_span first, time_span longest) & {
    return set("backoff", leasehold_lock_set_backoff_ms(handle(), first.ms(), longest.ms()));
}

inline std::string lock::name() const {
    return detail::name_of<leasehold_lock>(leasehold_lock_name, handle());
}

inline std::optional<lease> lock::try_acquire() const {
    return detail::acquired(leasehold_lock_try_acquire, handle());
}

inline std::optional<lease> lock::acquire() const {
    return detail::acquired(leasehold_lock_acquire, handle());
}

inline std::optional<lease> lock::acquire_within(time_span most) const {
    return detail::acquired(leasehold_lock_acquire_within, handle(), most.ms(), nullptr, nullptr);
}

template <class Interrupt> std::optional<lease> lock::acquire_unless(Interrupt &&interrupt) const {
    return detail::unless(interrupt, [this](leasehold_interrupt_fn ask, void *asked) {
        return detail::acquired(leasehold_lock_acquire_unless, handle(), ask, asked);
    });
}

template <class Interrupt>
std::optional<lease> lock::acquire_within(time_span most, Interrupt &&interrupt) const {
    return detail::unless(interrupt, [&](leasehold_interrupt_fn ask, void *asked) {
        return detail::acquired(leasehold_lock_acquire_within, handle(), most.ms(), ask, asked);
    });
}

inline lease lock::attach(std::string_view token, std::uint64_t fence) const {
    return lease::adopt(detail::get<leasehold_lease *>(leasehold_lock_attach, handle(),
                                                       token.data(), token.size(), fence));
}

namespace detail {

/** Reads what C has seen of a lock, and frees it. */
inline lock_state read_state(leasehold_lock_state *owned) {
    const std::unique_ptr<leasehold_lock_state, freeing<leasehold_lock_state_free>> seen{owned};
    const auto fact = [&](std::size_t place, leasehold_fact what) {
        return std::string{leasehold_lock_state_fact(seen.get(), place, what)};
    };
    const auto number = [&](std::size_t place, leasehold_fact what) {
        return std::strtoll(leasehold_lock_state_fact(seen.get(), place, what), nullptr, 10);
    };
    const auto since = [&](std::size_t place) {
        return fact(place, LEASEHOLD_FACT_SINCE_MS).empty()
                   ? std::nullopt
                   : std::optional{
                         std::chrono::milliseconds{number(place, LEASEHOLD_FACT_SINCE_MS)}};
    };
    const auto moment = [&](std::size_t place, leasehold_fact what) {
        const std::chrono::milliseconds passed{number(place, what)};
        return fact(place, what).empty()
                   ? std::nullopt
                   : std::optional{std::chrono::system_clock::time_point{passed}};
    };
    const auto run = [&](std::size_t place) -> std::optional<client_run> {
        const auto began = moment(place, LEASEHOLD_FACT_RUN_BEGAN_MS);
        if (!began) return std::nullopt;
        const auto status = fact(place, LEASEHOLD_FACT_RUN_EXIT_STATUS);
        return client_run{*began, moment(place, LEASEHOLD_FACT_RUN_ENDED_MS),
                          status.empty() ? std::nullopt : std::optional{std::stoi(status)}};
    };
    const auto client = [&](std::size_t place) -> std::optional<client_info> {
        if (fact(place, LEASEHOLD_FACT_CLIENT).empty()) return std::nullopt;
        return client_info{fact(place, LEASEHOLD_FACT_CLIENT),
                           fact(place, LEASEHOLD_FACT_HOST),
                           number(place, LEASEHOLD_FACT_PID),
                           fact(place, LEASEHOLD_FACT_PROGRAM),
                           fact(place, LEASEHOLD_FACT_LANGUAGE),
                           fact(place, LEASEHOLD_FACT_VERSION),
                           fact(place, LEASEHOLD_FACT_LABEL),
                           number(place, LEASEHOLD_FACT_STARTED_MS),
                           run(place)};
    };
    std::vector<lock_waiter> waiters;
    for (std::size_t place = 1; place <= leasehold_lock_state_waiters(seen.get()); place++)
        waiters.push_back({fact(place, LEASEHOLD_FACT_TOKEN_PREFIX),
                           fact(place, LEASEHOLD_FACT_WHO), since(place), client(place)});
    return {leasehold_lock_state_is_held(seen.get()),
            leasehold_lock_state_token_prefix(seen.get()),
            std::chrono::milliseconds{leasehold_lock_state_ttl_ms(seen.get())},
            leasehold_lock_state_fence(seen.get()),
            leasehold_lock_state_last_fence(seen.get()),
            fact(0, LEASEHOLD_FACT_WHO),
            since(0),
            client(0),
            std::move(waiters),
            leasehold_lock_state_more_waiters(seen.get())};
}

} // namespace detail

inline lock_state lock::inspect() const {
    return detail::read_state(
        detail::get<leasehold_lock_state *>(leasehold_lock_inspect, handle()));
}

inline std::optional<std::uint64_t> lock::break_held(std::string_view by,
                                                     std::optional<std::uint64_t> if_fence) const {
    if (if_fence == 0u) throw error{LEASEHOLD_ERR_BAD_ARGUMENT, "if_fence is 0, which is no fence"};
    std::uint64_t fence = 0;
    detail::particulars error;
    const leasehold_status status = leasehold_lock_break(handle(), if_fence.value_or(0), by.data(),
                                                         by.size(), &fence, error.out());
    if (status == LEASEHOLD_OK) return fence;
    if (status < 0 || status == LEASEHOLD_UNKNOWN) error.raise(status);
    return std::nullopt;
}

/* ---- lease ---- */

inline std::string lease::name() const {
    return detail::name_of<leasehold_lease>(leasehold_lease_name, handle());
}

inline outcome lease::extend() {
    return static_cast<outcome>(detail::ask(leasehold_lease_extend, handle()));
}

inline outcome lease::extend_for(time_span ttl) {
    return static_cast<outcome>(detail::ask(leasehold_lease_extend_for_ms, handle(), ttl.ms()));
}

inline outcome lease::release() {
    return static_cast<outcome>(detail::ask(leasehold_lease_release, handle()));
}

inline outcome lease::let_expire() {
    return static_cast<outcome>(detail::ask(leasehold_lease_let_expire, handle()));
}

inline outcome lease::let_expire_in(time_span after) {
    return static_cast<outcome>(
        detail::ask(leasehold_lease_let_expire_in_ms, handle(), after.ms()));
}

inline outcome lease::detach() {
    return static_cast<outcome>(detail::ask(leasehold_lease_detach, handle()));
}

/* ---- waits ---- */

inline waits waits::open() { return adopt(detail::get<leasehold_waits *>(leasehold_waits_open)); }

inline void waits::start(std::uint64_t id, const lock &what) {
    detail::ask(leasehold_waits_start, handle(), what.handle(), id);
}

inline void waits::start_within(std::uint64_t id, const lock &what, time_span most) {
    detail::ask(leasehold_waits_start_within, handle(), what.handle(), most.ms(), id);
}

inline std::optional<std::uint64_t> waits::try_next() {
    return next_within(std::chrono::milliseconds{0});
}

inline std::optional<std::uint64_t> waits::next_within(time_span most) {
    std::uint64_t id = 0;
    detail::particulars error;
    const leasehold_status status =
        leasehold_waits_next_within(handle(), most.ms(), &id, error.out());
    if (status < 0) error.raise(status);
    return status == LEASEHOLD_OK ? std::optional{id} : std::nullopt;
}

inline std::optional<lease> waits::take(std::uint64_t id) {
    leasehold_turn turn{};
    detail::particulars error;
    const leasehold_status status = leasehold_waits_take(handle(), id, &turn, error.out());
    if (status == LEASEHOLD_OK) return lease::adopt(turn.lease);
    if (status < 0 || status == LEASEHOLD_UNKNOWN) error.raise(status);
    return std::nullopt;
}

inline void waits::stop(std::uint64_t id) { detail::ask(leasehold_waits_stop, handle(), id); }

/* ---- events ---- */

namespace detail {

inline event read(const leasehold_event *told) {
    return event{static_cast<event_kind>(leasehold_event_kind(told)),
                 static_cast<loss_reason>(leasehold_event_reason(told)),
                 name_of<leasehold_event>(leasehold_event_name, told), leasehold_event_fence(told),
                 leasehold_event_detail(told)};
}

/** Calls a function of C++, from C; what it throws is a failure there. */
inline int call_lost(void *function, const leasehold_event *told) noexcept {
    try {
        (*static_cast<lost_function *>(function))(read(told));
        return 0;
    } catch (...) {
        return 1;
    }
}

inline void drop_lost(void *function) noexcept { delete static_cast<lost_function *>(function); }

} // namespace detail

inline void lease::on_lost(lost_function function) {
    // Whatever comes of it, C deletes the copy.
    lost_function *copy = function ? new lost_function{std::move(function)} : nullptr;
    detail::particulars error;
    error.check(leasehold_lease_on_lost(handle(), copy ? detail::call_lost : nullptr, copy,
                                        detail::drop_lost, error.out()));
}

inline event events::next() { return next_within(forever).value(); }

inline std::optional<event> events::try_next() { return next_within(std::chrono::milliseconds{0}); }

inline std::optional<event> events::next_within(time_span most) {
    leasehold_event *next = nullptr;
    detail::particulars error;
    const leasehold_status status =
        leasehold_events_next_within(handle(), most.ms(), &next, error.out());
    if (status < 0) error.raise(status);
    if (status != LEASEHOLD_OK) return std::nullopt;
    const std::unique_ptr<leasehold_event, detail::freeing<leasehold_event_free>> owned{next};
    return detail::read(next);
}

/* ---- election ---- */

inline outcome term::resign() {
    return static_cast<outcome>(detail::ask(leasehold_term_resign, handle()));
}

namespace detail {

/** The function of the program that is to hear what becomes of a candidate. */
struct changes {
    std::mutex mutex{};
    change_function function{};

    static void call(void *self, std::uint64_t fence, std::int32_t end,
                     std::int32_t loss) noexcept {
        try {
            (*static_cast<std::shared_ptr<changes> *>(self))
                ->tell({fence, static_cast<term_end>(end), static_cast<loss_reason>(loss)});
        } catch (...) { // nothing that the program could be told
        }
    }
    static void drop(void *self) noexcept { delete static_cast<std::shared_ptr<changes> *>(self); }

private:
    void tell(const leadership &change) {
        std::unique_lock<std::mutex> held{mutex};
        const auto told = function;
        held.unlock();
        if (told) told(change);
    }
};

/** Calls work of C++, from C: what it throws waits in here. */
template <class Work> struct leading {
    Work &work;
    std::exception_ptr thrown{};

    static int lead(void *self, leasehold_term *lent) noexcept {
        auto &led = *static_cast<leading *>(self);
        term borrowed = term::adopt(lent);
        int result = 0;
        try {
            led.work(static_cast<const term &>(borrowed));
        } catch (...) {
            led.thrown = std::current_exception();
            result = 1;
        }
        static_cast<void>(borrowed.disown()); // it is the library's
        return result;
    }
};

#ifdef __cpp_lib_jthread
/** Calls work that has a stop token. */
template <class Work> class stopping {
public:
    explicit stopping(Work &given) noexcept : work{given} {}
    stopping(const stopping &) = delete;
    stopping &operator=(const stopping &) = delete;
    ~stopping() {
        // A forked child does not have the thread, and would wait for it for ever.
        if (process != getpid()) static_cast<void>(new std::jthread{std::move(watcher)});
    }

    void operator()(const term &term) {
        std::stop_source source;
        if (!term.is_leader()) source.request_stop();
        watcher = watch(term.handle(), source);
        work(term, source.get_token());
    }

private:
    /** Not on_change(): a slow log function, or the search for the reason, delays that. */
    static std::jthread watch(leasehold_term *term, std::stop_source source) {
        try {
            return std::jthread{[term, source]() mutable {
                sigset_t all; // signals are for the threads of the program
                sigfillset(&all);
                pthread_sigmask(SIG_SETMASK, &all, nullptr);
                // It is false, too, when the work has returned and the handle was freed.
                while (leasehold_term_leads_after_ms(term, LEASEHOLD_FOREVER)) {}
                source.request_stop();
            }};
        } catch (const std::system_error &failure) {
            throw error{LEASEHOLD_ERR_EXHAUSTED, failure.what()};
        }
    }

    Work &work;
    const pid_t process = getpid();
    /** Joined when its term was resigned, which wakes it: before the next term, or with this object. */
    std::jthread watcher{};
};
#endif

} // namespace detail

inline leasehold::election client::election(std::string_view name) const {
    return leasehold::election::adopt(detail::get<leasehold_election *>(
        leasehold_client_election, handle(), name.data(), name.size()));
}

inline election &election::set(const char *what, leasehold_status status) {
    if (status != LEASEHOLD_OK) {
        detail::ask(leasehold_election_check, handle());
        throw error{status, what}; // nothing was refused for its value
    }
    return *this;
}

inline election &election::ttl(time_span span) & {
    return set("ttl", leasehold_election_set_ttl_ms(handle(), span.ms()));
}

inline election &election::grace(time_span span) & {
    return set("grace", leasehold_election_set_grace_ms(handle(), span.ms()));
}

inline election &election::stand_again(bool yes) & {
    return set("stand_again", leasehold_election_set_stand_again(handle(), yes));
}

inline detail::changes &election::changes() {
    if (!changes_) {
        auto made = std::make_shared<detail::changes>();
        // Whatever comes of it, C deletes the copy.
        set("on_change", leasehold_election_on_change(handle(), detail::changes::call,
                                                      new std::shared_ptr<detail::changes>{made},
                                                      detail::changes::drop));
        changes_ = std::move(made);
    }
    return *changes_;
}

inline election &election::on_change(change_function function) & {
    detail::changes &told = changes();
    const std::unique_lock<std::mutex> held{told.mutex};
    told.function.swap(function);
    return *this;
}

inline std::string election::name() const {
    return detail::name_of<leasehold_election>(leasehold_election_name, handle());
}

template <class Work> void election::run_as_leader(Work &&work) {
    using Given = std::remove_reference_t<Work>;
#ifdef __cpp_lib_jthread
    if constexpr (std::is_invocable_v<Given &, const term &, std::stop_token>) {
        detail::stopping<Given> stopping{work};
        return run_as_leader([&](const term &term) { stopping(term); });
    } else
#endif
    {
        static_assert(
            std::is_invocable_v<Given &, const term &>,
            "the work is called: work(const term &), or work(const term &, std::stop_token)");
        detail::leading<Given> led{work};
        detail::particulars error;
        int returned = 0;
        const leasehold_status status = leasehold_election_run_as_leader(
            handle(), &detail::leading<Given>::lead, nullptr, &led, &returned, error.out());
        if (led.thrown) std::rethrow_exception(led.thrown);
        error.check(status);
    }
}

inline std::optional<term> election::stand_within(time_span most) {
    leasehold_term *begun = nullptr;
    detail::particulars error;
    const leasehold_status status =
        leasehold_election_stand_within(handle(), most.ms(), nullptr, nullptr, &begun, error.out());
    if (status == LEASEHOLD_OK) return term::adopt(begun);
    if (status < 0 || status == LEASEHOLD_UNKNOWN) error.raise(status);
    return std::nullopt;
}

inline lock_state election::leader() const {
    return detail::read_state(
        detail::get<leasehold_lock_state *>(leasehold_election_leader, handle()));
}

inline void election::resign() { detail::ask(leasehold_election_resign, handle()); }

inline void election::stop() { detail::ask(leasehold_election_stop, handle()); }

/* ---- mutex ---- */

inline mutex::mutex(leasehold::lock options)
    : options_{std::move(options)}, made_in_{getpid()}, turns_{nullptr} {
    // No lock has an empty name; trying says what is wrong.
    if (options_.name().empty()) static_cast<void>(options_.try_acquire());
    turns_ = new turns;
}

inline mutex::~mutex() {
    const turns *last = turns_;
    if (last->process == getpid()) delete last;
}

/** In a forked child they are other ones: a thread of the parent's may have had the gate. */
inline mutex::turns &mutex::here() const {
    turns *found = turns_.load();
    while (found->process != getpid()) {
        auto made = std::make_unique<turns>();
        if (turns_.compare_exchange_strong(found, made.get())) found = made.release();
    }
    return *found;
}

template <class Take> bool mutex::take(Take take_it) {
    const auto deadlock = [] {
        return std::system_error{std::make_error_code(std::errc::resource_deadlock_would_occur),
                                 "this thread holds the leasehold::mutex"};
    };
    const std::thread::id me = std::this_thread::get_id();
    turns &own = here();
    {
        const std::lock_guard<std::mutex> guard{own.gate};
        if (own.held.count(me) > 0) throw deadlock();
    }
    std::optional<lease> taken;
    try {
        taken = take_it();
    } catch (const error &failure) {
        // By another mutex of the same name.
        if (failure.status() == LEASEHOLD_ERR_WOULD_DEADLOCK) throw deadlock();
        throw;
    }
    if (!taken) return false;
    const std::lock_guard<std::mutex> guard{own.gate};
    own.held.emplace(me, std::move(*taken));
    own.failed.erase(me);
    return true;
}

inline void mutex::lock() {
    if (!take([this] { return options_.acquire_within(forever); })) {
        // Its attempts are used up.
        throw error{LEASEHOLD_TIMEOUT, timeout_detail()};
    }
}

inline bool mutex::try_lock() {
    return take([this] { return options_.try_acquire(); });
}

inline bool mutex::try_lock_for(time_span most) {
    if (most.ms() <= 0) return try_lock();
    return take([&] { return options_.acquire_within(most); });
}

template <class Clock, class Duration>
bool mutex::try_lock_until(std::chrono::time_point<Clock, Duration> when) {
    // Whole numbers could overflow here.
    using span = std::chrono::duration<long double, std::milli>;
    const auto left = [&] {
        return span(when.time_since_epoch()) - span(Clock::now().time_since_epoch());
    };
    const auto is_over = [&] { return !(left() > span::zero()); };
    if (is_over()) return try_lock();
    do {
        const auto start = std::chrono::steady_clock::now();
        const span most = std::max(left(), span::zero());
        if (take([&] { return options_.acquire_within(most, is_over); })) return true;
        // Its attempts are used up, or the clock was set forward.
        if (std::chrono::steady_clock::now() - start < most) return false;
    } while (!is_over()); // the clock was set back
    return false;
}

inline void mutex::release() {
    turns &own = here();
    std::unique_lock<std::mutex> guard{own.gate};
    const auto turn = own.held.extract(std::this_thread::get_id());
    guard.unlock();
    if (!turn) {
        const bool is_child = made_in_ != own.process;
        throw error{is_child ? LEASEHOLD_ERR_FORKED : LEASEHOLD_LOST,
                    "this thread has not locked the mutex"};
    }
    detail::particulars particulars;
    particulars.check(leasehold_lease_release(turn.mapped().handle(), particulars.out()));
}

inline void mutex::unlock() noexcept {
    try {
        try {
            release();
        } catch (const error &failure) {
            remember(failure);
        }
    } catch (...) {
        // There is no memory to remember it in. The lease is over all the same.
    }
}

inline void mutex::remember(const error &failure) {
    turns &own = here();
    const std::lock_guard<std::mutex> guard{own.gate};
    own.failed.insert_or_assign(std::this_thread::get_id(), failure);
}

inline std::optional<error> mutex::unlock_error() const {
    turns &own = here();
    const std::lock_guard<std::mutex> guard{own.gate};
    const auto found = own.failed.find(std::this_thread::get_id());
    if (found == own.failed.end()) return std::nullopt;
    return found->second;
}

template <class Value> Value mutex::mine(Value (lease::*look)() const noexcept) const noexcept {
    turns &own = here();
    const std::lock_guard<std::mutex> guard{own.gate};
    const auto found = own.held.find(std::this_thread::get_id());
    return found == own.held.end() ? Value{} : (found->second.*look)();
}

inline std::uint64_t mutex::fence() const noexcept { return mine(&lease::fence); }

inline bool mutex::is_valid() const noexcept { return mine(&lease::is_valid); }

inline std::chrono::milliseconds mutex::remaining() const noexcept {
    return mine(&lease::remaining);
}

/* ---- the log ---- */

namespace detail {

/** The function that is set, for the whole process. Never destroyed: it may be called at exit. */
struct log_target {
    std::mutex gate;
    std::unique_ptr<log_function> function;
    pid_t process = getpid();

    /** In a forked child another one: a thread of the parent's may have had the gate. */
    static log_target &here() {
        static std::atomic<log_target *> target{nullptr};
        log_target *found = target.load();
        while (found == nullptr || found->process != getpid()) {
            auto made = std::make_unique<log_target>();
            if (target.compare_exchange_strong(found, made.get())) found = made.release();
        }
        return *found;
    }
};

/** Whether this thread is in the log function. */
inline bool &in_log() noexcept {
    thread_local bool inside = false;
    return inside;
}

inline void log(void *function, leasehold_log_level level, const char *message) noexcept {
    in_log() = true;
    try {
        (*static_cast<const log_function *>(function))(static_cast<log_level>(level), message);
    } catch (...) {
        // Nothing may be thrown into the library, and nobody else could be told.
    }
    in_log() = false;
}

} // namespace detail

inline void set_log(log_function function, log_level from) {
    const bool ends = !function || from == log_level::off;
    if (detail::in_log()) {
        // Nothing here may wait for others: they may wait for this call of the function to end.
        if (!ends) {
            throw error{LEASEHOLD_ERR_BAD_ARGUMENT,
                        "a log function can end the log, not replace itself"};
        }
        detail::ask(leasehold_log_set, nullptr, nullptr, LEASEHOLD_LOG_OFF);
        return;
    }
    auto next = ends ? nullptr : std::make_unique<log_function>(std::move(function));
    std::unique_ptr<log_function> former; // destroyed when the gate is open again
    detail::log_target &target = detail::log_target::here();
    const std::lock_guard<std::mutex> guard{target.gate};
    detail::ask(leasehold_log_set, ends ? nullptr : detail::log, next.get(),
                static_cast<leasehold_log_level>(ends ? log_level::off : from));
    former = std::exchange(target.function, std::move(next));
}

/* ---- a store for tests ---- */

namespace testing {

inline memory::memory()
    : owner{detail::get<leasehold_testing_memory *>(leasehold_testing_memory_open, nullptr,
                                                    std::size_t{0})} {}

// NULL would be no name, and an empty std::string_view may have it.
inline memory::memory(std::string_view name)
    : owner{detail::get<leasehold_testing_memory *>(leasehold_testing_memory_open,
                                                    name.empty() ? "" : name.data(), name.size())} {
}

inline void memory::lose(std::string_view name) const {
    detail::ask(leasehold_testing_memory_lose, handle(), name.data(), name.size());
}

inline effect memory::busy(std::string_view name) const {
    return effect::adopt(detail::get<leasehold_testing_effect *>(
        leasehold_testing_memory_busy, handle(), name.data(), name.size()));
}

inline void memory::fail_next(leasehold_status status) const {
    detail::ask(leasehold_testing_memory_fail_next, handle(), status);
}

inline effect memory::failing(leasehold_status status) const {
    return effect::adopt(detail::get<leasehold_testing_effect *>(leasehold_testing_memory_failing,
                                                                 handle(), status));
}

inline void memory::pause() const { detail::ask(leasehold_testing_memory_pause, handle()); }

inline void memory::resume() const { detail::ask(leasehold_testing_memory_resume, handle()); }

inline void memory::advance(time_span by) const {
    detail::ask(leasehold_testing_memory_advance_ms, handle(), by.ms());
}

inline std::vector<std::string> memory::held() const {
    const std::unique_ptr<leasehold_testing_names, detail::freeing<leasehold_testing_names_free>>
        names{detail::get<leasehold_testing_names *>(leasehold_testing_memory_held, handle())};
    std::vector<std::string> held;
    for (std::size_t i = 0; i < leasehold_testing_names_count(names.get()); ++i) {
        std::size_t length = 0;
        const char *name = leasehold_testing_names_get(names.get(), i, &length);
        held.emplace_back(name, length);
    }
    return held;
}

inline bool memory::is_held(std::string_view name) const {
    const auto names = held();
    return std::find(names.begin(), names.end(), name) != names.end();
}

} // namespace testing

/* ---- durations ---- */

inline std::chrono::milliseconds parse_duration(std::string_view text) {
    return std::chrono::milliseconds{
        detail::get<std::int64_t>(leasehold_duration_parse, text.data(), text.size())};
}

} // namespace leasehold

#endif
