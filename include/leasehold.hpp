/*
 * Leasehold for C++17 and later: one lock for programs on many machines, or for the processes of
 * one.
 *
 *     #include <leasehold.hpp>
 *     using namespace std::chrono_literals;
 *
 *     leasehold::client client{"redis://127.0.0.1"};
 *
 *     // Where a std::mutex would do, if all of them were in one process:
 *     leasehold::mutex stock{client, "stock:sku-17"};
 *     if (std::unique_lock held{stock, 5s}; held)  // after 5 s without it, `held` is false
 *         charge(order, stock.fence());            // the database refuses a smaller fence
 *
 *     // Where it matters how it ended:
 *     leasehold::lock refunds = client.lock("refunds").ttl(10s);
 *     if (std::optional<leasehold::lease> lease = refunds.try_acquire()) {
 *         refund(order, lease->fence());
 *         if (lease->release() != leasehold::outcome::done) warn("it was lost meanwhile");
 *     }
 *
 * Compile with `c++ -std=c++17 program.cpp $(pkg-config --cflags --libs leasehold)`. There is
 * nothing here but this header, over leasehold.h, which says more about each call.
 *
 * What is thrown. Errors (a status below 0) are thrown as leasehold::error. Outcomes (above 0) are
 * values: an empty std::optional where the lock was taken, leasehold::outcome where a lease ends.
 * Only a try whose outcome is unknown is thrown too, since empty would say that somebody else has
 * it. So exceptions are needed; RTTI is not. std::bad_alloc can come from anything that returns a
 * string or takes a function.
 *
 * Ownership. config, client, lock, waits, lease and events each own a handle of leasehold.h, which their
 * destructors free; destructors never throw. They can be moved and not copied, and destroyed in
 * any order. One that was moved from holds nothing: fence() and remaining() are 0 there, names are
 * empty, everything else throws LEASEHOLD_ERR_HANDLE. For what is only in leasehold.h, handle()
 * lends the handle, disown() gives it away for the caller to free, and adopt() takes one over. No
 * string is borrowed: they all come as copies.
 *
 * Threads. Any thread may call any function of any object at any time, except for what is so with
 * every object of C++: none may be destroyed, moved or assigned to while another thread uses it.
 * client::close() is what makes the others return.
 *
 * Times are std::chrono durations of any kind, rounded up to whole milliseconds. One that is too
 * long to be counted is leasehold::forever. A negative one is refused, but see mutex.
 *
 * Fork. A forked child may go on with the clients, locks and mutexes that it has inherited: the first
 * use of a client there opens the store anew. Leases, events and waits stay the parent's: their calls throw
 * LEASEHOLD_ERR_FORKED in a child, and destructors leave them alone. (A client that was adopted does
 * this if leasehold_client_reopen_after_fork() was called for it.)
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

#include <unistd.h>

#include "leasehold.h"

namespace leasehold {

class lock;
class lease;
class events;
struct event;

/* ---- Errors, outcomes, times ----------------------------------------------------------------- */

/**
 * What is thrown. what() is one sentence that says what went wrong and what to do about it; it
 * never shows a password.
 */
class error : public std::runtime_error {
public:
    explicit error(leasehold_status status, std::string_view detail = {});

    /** One of LEASEHOLD_ERR_..., or LEASEHOLD_UNKNOWN and the like where those are thrown. */
    leasehold_status status() const noexcept { return status_; }
    /** The short, stable name of the status, such as "refused". */
    const char *name() const noexcept { return leasehold_status_name(status_); }
    /** Only what is special about this failure; may be empty. */
    const std::string &detail() const noexcept { return *detail_; }
    /** Whether the same call can succeed later without anybody changing anything. */
    bool is_retriable() const noexcept { return leasehold_status_is_retriable(status_); }

private:
    leasehold_status status_;
    std::shared_ptr<const std::string> detail_; // shared: copying an exception must not throw
};

/**
 * Who had the lock when the last wait of the calling thread ran out, and how long it was: "'n', held
 * by web-3 (c++ worker, pid 4711) since 12 s, not free within wait, 5 s, asked 2 times". Empty before
 * there was any. What ran out itself is no error: an empty std::optional, or a lock that does not own.
 */
inline std::string timeout_detail() { return leasehold_timeout_detail(); }

/** What became of a lease. More may come. */
enum class outcome : leasehold_status {
    /** Done: the lease was ours to the end. */
    done = LEASEHOLD_OK,
    /** It was not ours any more: ended before, run out, deleted, or somebody else's by now. */
    lost = LEASEHOLD_LOST,
    /** Whether the store did it is not known. */
    unknown = LEASEHOLD_UNKNOWN,
};

/** As a time, says that there is no limit. */
inline constexpr std::chrono::milliseconds forever = std::chrono::milliseconds::max();

/** What every std::chrono::duration turns into on its way to leasehold.h. */
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
    /** Gives the handle away: the caller frees it. This object is as if moved from. */
    [[nodiscard]] Handle *disown() noexcept { return handle_.release(); }

protected:
    explicit owner(Handle *handle) noexcept : handle_{handle} {}

private:
    std::unique_ptr<Handle, freeing<Free>> handle_;
};

} // namespace detail

/* ---- Setting up a client --------------------------------------------------------------------- */

/**
 * How a client is set up: a URL, and what a program would rather set in code.
 *
 *     leasehold::client client{leasehold::config{"redis://cache"}.prefix("shop:").pool(16)};
 *
 * The setters throw for what is out of range, and LEASEHOLD_ERR_SEALED once a client was opened
 * with it.
 */
class config : public detail::owner<leasehold_config, leasehold_config_free> {
public:
    /** Reads a URL; leasehold_config_from_url() lists them. */
    explicit config(std::string_view url);
    /** Reads the URLs of a quorum, one for each member. */
    template <class Urls = std::initializer_list<std::string_view>>
    static config from_urls(const Urls &urls);
    /** The URL in the environment variable LEASEHOLD_URL or in /etc/leasehold.conf, or else the embedded store. */
    static config from_env();
    static config adopt(leasehold_config *handle) noexcept { return config{handle}; }

    /** What is put before every name in the store: any bytes, none by default. */
    config &prefix(std::string_view bytes) &;
    /** How long the store may take to answer one request: 1 s by default. */
    config &io_timeout(time_span most) &;
    /** How many requests may be under way at once: 8 by default. */
    config &pool(std::uint32_t connections) &;
    /** How long closing a client goes on releasing leases: 1 s by default. */
    config &close_timeout(time_span most) &;
    /** What a waiter that died as it was given the lock costs the ones behind it: 1 s by default. */
    config &claim_window(time_span window) &;
    /** The longest ttl that a lock may have: 366 days by default, 60 s with guard_data_loss;
        in a quorum 24 h at most. */
    config &max_ttl(time_span most) &;
    /** Whether a server that may have lost data grants nothing until older leases are over. */
    config &guard_data_loss(bool on) &;
    /** A word of the program's own, which others see beside its name: 100 bytes at most. */
    config &label(std::string_view text) &;
    /** Whether the client says in the store who it is: on by default. */
    config &registers(bool on) &;
    /** Whether the log says where the store could lose grants and nothing guards it: on by default. */
    config &advise(bool on) &;
    /** Counts names apart in client::metrics_text(): a name, or how names begin and a `*`. 32 at most. */
    config &metrics_group(std::string_view pattern) &;

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

    /** The store as people may see it, without user and password. */
    std::string store() const { return leasehold_config_store(handle()); }

private:
    explicit config(leasehold_config *handle) noexcept : owner{handle} {}
    /** Of one that was made just now, so nothing can go wrong. */
    static leasehold_config *of_cpp(leasehold_config *handle) noexcept;
    config &set(const char *what, leasehold_status status);
};

/* ---- Clients --------------------------------------------------------------------------------- */

/** What a client has counted since it was opened. */
struct counters {
    std::uint64_t attempts;      /**< Requests for a lock, every try of a wait included. */
    std::uint64_t granted;       /**< Leases taken. */
    std::uint64_t busy;          /**< Tries that found the lock taken. */
    std::uint64_t timed_out;     /**< Waits that ran out. */
    std::uint64_t unknown;       /**< Requests whose outcome stayed unknown. */
    std::uint64_t renewed;       /**< Renewals that the store confirmed. */
    std::uint64_t lost;          /**< Leases that were lost while held. */
    std::uint64_t released_late; /**< Releases that found the lease gone, or could not tell. */
};

/**
 * An open store with its connections and one background thread, which renews leases. Open one for
 * a process and share it. Its destructor closes it.
 */
class client : public detail::owner<leasehold_client, leasehold_client_free> {
public:
    /**
     * Opens the store that a URL names, such as "redis://127.0.0.1" or "sqlite:///path/to/file".
     * A Redis store connects when it is first asked; ping() asks at once.
     */
    explicit client(std::string_view url);
    /** Opens a store that was set up in code. The config can open more, and not be changed. */
    explicit client(const config &setup);
    /** Opens the store that config::from_env() finds. */
    static client from_env();
    static client adopt(leasehold_client *handle) noexcept { return client{handle}; }

    /** Makes a lock: a name of any bytes, and options to be set on it. Asks nobody. */
    leasehold::lock lock(std::string_view name) const;
    /** Reaches the store, credentials included, and throws what is in the way. */
    void ping() const;
    /** Declares new servers that guard against lost data; see leasehold_client_initialize(). */
    void initialize(bool force = false) const;
    /** Subscribes to what happens to the leases of this client from now on. */
    leasehold::events events() const;
    leasehold::counters counters() const;
    /** All that was counted and measured, as Prometheus reads it: "text/plain; version=0.0.4". */
    std::string metrics_text() const;
    /** The store as people may see it, without user and password. */
    std::string store() const { return leasehold_client_store(handle()); }

    /**
     * Makes every lease invalid at once and releases it, for as long as close_timeout at most.
     * Calls that wait throw LEASEHOLD_ERR_CLOSED. Closing twice does no harm.
     */
    void close();
    /** The same with another limit. */
    void close_within(time_span most);

private:
    explicit client(leasehold_client *handle) noexcept : owner{handle} {}
    static leasehold_client *reopening(leasehold_client *handle) noexcept;
    std::uint64_t count(leasehold_counter counter) const;
};

/* ---- Locks ----------------------------------------------------------------------------------- */

/** A command that `leasehold run --once-per` has run, by the clock of its machine. The lock stays taken
 * after it. */
struct client_run {
    std::chrono::system_clock::time_point began;
    /** None while it runs, or where its machine died meanwhile. */
    std::optional<std::chrono::system_clock::time_point> ended;
    std::optional<int> exit_status; /**< 128 + n where signal n ended it. */
};

/** A client, as it has said itself. In no text is anything that a terminal obeys. */
struct client_info {
    std::string id;       /**< 12 hex digits: another number in each process. */
    std::string host;     /**< The machine's name. */
    std::int64_t pid;     /**< The process. */
    std::string program;  /**< What runs there. */
    std::string language; /**< What that is written in. */
    std::string version;  /**< That of this library there. */
    std::string label;    /**< What config::label() has set there. */
    std::int64_t started; /**< When it was opened, in milliseconds since 1970; 0: not known. */
    std::optional<client_run> run; /**< What it has run under a lock that stays taken. */
};

/** A process that waited for a lock. */
struct lock_waiter {
    std::string token_prefix;                        /**< The first digits of its token. */
    std::string who;                                 /**< A sentence: who that is, since when. */
    std::optional<std::chrono::milliseconds> waited; /**< For how long, where it is known. */
    std::optional<client_info> client;               /**< Who that is, where it is known. */
};

/** Who had a lock, and who waited for it, when lock::inspect() asked. */
struct lock_state {
    bool held;
    std::string token_prefix;      /**< Enough to tell holders apart, too little to release with. */
    std::chrono::milliseconds ttl; /**< The lock would be free then if nobody renewed it. */
    std::uint64_t fence;           /**< The holder's; 0 when free, or held without a fence. */
    std::uint64_t last_fence;      /**< The last one given out; 0 where it is not known any more. */
    std::string who;               /**< A sentence: who has it, and since when. Empty when free. */
    std::optional<std::chrono::milliseconds> held_for; /**< By the store's clock, if known. */
    std::optional<client_info> client;                 /**< Who has it, where it is known. */
    std::vector<lock_waiter> waiters;                  /**< In the store's queue, the first 100. */
    std::uint64_t more_waiters;                        /**< Besides those. */
};

/** How a wait for a lock goes. */
enum class wait_mode : leasehold_wait_mode {
    /**
     * In a queue where the store has one, in the order of coming; where the server refuses what that
     * needs, by asking again and again.
     */
    automatic = LEASEHOLD_WAIT_MODE_AUTO,
    /** By asking again and again: for names that are shared with other libraries. */
    spin = LEASEHOLD_WAIT_MODE_SPIN,
};

/**
 * A lock that can be taken: a name and options. It holds nothing itself, any number of threads may
 * use it at once, and any number of leases can come from it.
 *
 *     leasehold::lock stock = client.lock("stock:sku-17").ttl(10s).wait(5s);
 *
 * A setter throws for what its option can never be, with the reason. Options that do not go together
 * are refused when the lock is taken. Leases that were taken before stay as they are.
 */
class lock : public detail::owner<leasehold_lock, leasehold_lock_free> {
public:
    static lock adopt(leasehold_lock *handle) noexcept { return lock{handle}; }

    /** How soon the lock is free after its holder died: 30 s by default, from 3 ms to 366 days, or to
     * what the URL has as max_ttl. */
    lock &ttl(time_span span) &;
    /** How long acquire() waits: 60 s by default; 0 tries once. */
    lock &wait(time_span most) &;
    /** How long the store may take to answer when this lock is taken: by default the client's
     * io_timeout, 1 s. While it is silent, so long take try_acquire() and shorter waits. */
    lock &io_timeout(time_span most) &;
    /** How often a wait that spins asks at most: no limit by default. Other modes refuse it. */
    lock &attempts(std::uint32_t most) &;
    /** Whether leases are renewed: yes by default, where the ttl is at least 100 ms. */
    lock &renew(bool yes) &;
    /** How long a living holder may keep a renewed lease: 1 h by default. */
    lock &max_hold(time_span most) &;
    /** How a wait goes: in a queue where the store has one, by default. */
    lock &wait_mode(leasehold::wait_mode how) &;
    /** How long a wait that spins pauses; see leasehold_lock_set_backoff_ms(). Other modes refuse it. */
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

    /** Takes the lock if it is free; empty if somebody else has it. Does not wait for a holder;
     * throws LEASEHOLD_UNKNOWN, or what kept the store from answering, by io_timeout(). */
    [[nodiscard]] std::optional<lease> try_acquire() const;
    /**
     * Takes the lock, waiting as long as wait() says; empty if it stayed taken. While the store is
     * silent, it takes as long as io_timeout() says at least. Throws
     * LEASEHOLD_ERR_WOULD_DEADLOCK when the wait has no limit and this thread took the lock that
     * is held.
     */
    [[nodiscard]] std::optional<lease> acquire() const;
    /** The same with a limit of its own. Who had the lock meanwhile, timeout_detail() says. */
    [[nodiscard]] std::optional<lease> acquire_within(time_span most) const;
    /**
     * As acquire(), with a function that can end the wait: it is asked on this thread, at least
     * every 100 ms while the lock is taken; empty if it returned true, too. What it throws ends the
     * wait and is thrown from here, with nothing held.
     *
     *     stock.acquire_unless([&] { return stop.load(); });
     */
    template <class Interrupt>
    [[nodiscard]] std::optional<lease> acquire_unless(Interrupt &&interrupt) const;
    /** The same with a limit of its own. */
    template <class Interrupt>
    [[nodiscard]] std::optional<lease> acquire_within(time_span most, Interrupt &&interrupt) const;
    /**
     * Goes on with a lease that another process let go of with lease::detach(). Asks nobody; it
     * may be relied on after its first successful lease::extend(), which only one of several gets who
     * attach it, and nobody where it was not detached with this token and fence.
     */
    [[nodiscard]] lease attach(std::string_view token, std::uint64_t fence) const;

    /** Looks who has the lock, without touching it. */
    lock_state inspect() const;

    /**
     * Frees a lock that somebody else has and does not give: the first waiter is handed it at once,
     * under a larger fence. Nothing stops the holder before its next renewal, when its lease is lost
     * and says who broke it. With an `if_fence`, only the lease with that fence is broken; 0, which
     * inspect() tells of a free lock, is none, and throws. Returns the fence of the lease that is over;
     * nothing when nobody has the lock, or another lease.
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
 * One holder's turn: the proof that a lock is yours, for as long as it says so. It is renewed in
 * the background unless that was switched off. Its destructor releases it if nothing else has
 * ended it, and tells nobody how that went; release() does.
 */
class [[nodiscard]] lease : public detail::owner<leasehold_lease, leasehold_lease_free> {
public:
    static lease adopt(leasehold_lease *handle) noexcept { return lease{handle}; }

    /**
     * Larger than that of every turn on the name before it, from 1 to 2^53 - 1: a std::int64_t and a BIGINT
     * hold its 16 digits. It stays when the lease is over.
     */
    std::uint64_t fence() const noexcept { return leasehold_lease_fence(handle()); }
    /** What marks the grant in the store. Whoever has it can release the lock. */
    std::string token() const { return leasehold_lease_token(handle()); }
    std::string name() const;
    /** For how long it may still be relied on, without asking anybody; 0 when it is over. */
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds{leasehold_lease_remaining_ms(handle())};
    }
    /** Whether it may be relied on at this moment, without asking anybody. */
    bool is_valid() const noexcept { return leasehold_lease_is_valid(handle()); }

    /**
     * Makes it valid for its ttl from now on. Renewed leases do not need it. When the store did not
     * confirm it, which is outcome::unknown or an error, it stays valid for as long as it was.
     */
    [[nodiscard]] outcome extend();
    /** The same for another ttl than the lock's. */
    [[nodiscard]] outcome extend_for(time_span ttl);

    /**
     * Has a function called if this lease is lost; at once if it was lost before. An empty one takes
     * it back, and another takes its place.
     *
     * It is called once at most, and not when the lease was ended or its client was closed. When
     * this returns, or what ends the lease, its destructor for example, the former function is not
     * running any more and was destroyed. (Only within such a function, nobody waits for that.) So
     * it may refer to what outlives the lease, and must not wait for a thread that ends the lease.
     * All functions of a client are called on one thread that does nothing else: a slow one holds up
     * the others, and no renewal. One that throws is logged. Destroying it must not call this
     * library. Throws LEASEHOLD_LOST when a call has ended the lease before.
     */
    void on_lost(lost_function function);

    /** Gives the lock back, and says how that went. The lease is over whatever comes of it. */
    [[nodiscard]] outcome release();
    /**
     * Ends it without giving the lock back, which stays taken until its ttl runs out. Not done where
     * it was handed over a moment ago and the store did not confirm the claim for its whole ttl.
     */
    [[nodiscard]] outcome let_expire();
    /** The same, with the lock free `after` from now, whatever its ttl was. */
    [[nodiscard]] outcome let_expire_in(time_span after);
    /** Ends it here for another process to lock::attach() to, with its token() and fence(). */
    [[nodiscard]] outcome detach();

private:
    explicit lease(leasehold_lease *handle) noexcept : owner{handle} {}
};

/* ---- Many waits at once ---------------------------------------------------------------------- */

/**
 * Waits that no thread stands in: for event loops, and where hundreds of locks are waited for.
 *
 *     leasehold::waits waits = leasehold::waits::open();
 *     waits.start(17, stock);                      // never blocks; 17 is a number of yours
 *     // ... and when waits.descriptor() is readable:
 *     while (std::optional<std::uint64_t> id = waits.try_next())
 *         if (std::optional<leasehold::lease> lease = waits.take(*id)) charge(*id, lease->fence());
 */
class waits : public detail::owner<leasehold_waits, leasehold_waits_free> {
public:
    /** None yet, for locks of any clients. */
    static waits open();
    static waits adopt(leasehold_waits *handle) noexcept { return waits{handle}; }

    /** Begins to wait, for as long as lock::wait() says. No other wait in here may have the number. */
    void start(std::uint64_t id, const lock &what);
    /** The same with a limit of its own. */
    void start_within(std::uint64_t id, const lock &what, time_span most);

    /** The next wait that has ended, if there is one. Each one is told once. */
    std::optional<std::uint64_t> try_next();
    /** Waits for it for `most`; empty if there was none. */
    std::optional<std::uint64_t> next_within(time_span most);
    /** What a wait that was told came to: as lock::acquire(), which see. */
    [[nodiscard]] std::optional<lease> take(std::uint64_t id);
    /** Ends a wait, told or not: it leaves the queue, and a lock that it has got is given back. */
    void stop(std::uint64_t id);

    /**
     * Readable while there is a wait to be told: for poll(2) and the like. Only poll it. It is valid
     * as long as this object is there; -1 in a forked child.
     */
    int descriptor() const noexcept { return leasehold_waits_descriptor(handle()); }

private:
    explicit waits(leasehold_waits *handle) noexcept : owner{handle} {}
};

/* ---- Events ---------------------------------------------------------------------------------- */

/** What happened to a lease without its holder's doing. More may come. */
enum class event_kind : std::int32_t {
    /** Less than a third of the ttl is left, or max_hold is near. Time to finish. */
    at_risk = LEASEHOLD_EVENT_AT_RISK,
    /** The lease is over. Told before its validity ends, unless this process did not run. */
    lost = LEASEHOLD_EVENT_LOST,
    /** A lease that was destroyed unreleased was gone already, or the store did not say. */
    released_late = LEASEHOLD_EVENT_RELEASED_LATE,
};

/** Why a lease was lost. More may come. */
enum class loss_reason : std::int32_t {
    /** No reason: it is another kind of event. */
    none = LEASEHOLD_LOSS_NONE,
    /** The lock was deleted, flushed, or is somebody else's by now. */
    not_held = LEASEHOLD_LOSS_NOT_HELD,
    /** Its ttl ran out: the store could not be reached, or renewal was off. */
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
    std::string name;    /**< Of the lock. */
    std::uint64_t fence; /**< Of the lease: with the name, it says which one it was. */
    std::string detail;  /**< What is known besides: who broke the lock, and when. */
};

/**
 * A subscription to what happens to a client's leases. A slow reader may miss at_risk (they are
 * counted), never lost.
 */
class events : public detail::owner<leasehold_events, leasehold_events_free> {
public:
    static events adopt(leasehold_events *handle) noexcept { return events{handle}; }

    /**
     * Waits for the next event. Throws LEASEHOLD_ERR_CLOSED when the client is closed and nothing
     * is left to read.
     */
    event next();
    /** The next event if there is one already. Throws as next(). */
    std::optional<event> try_next();
    /** Waits for it for `most`; empty if there was none. Throws as next(). */
    std::optional<event> next_within(time_span most);

    /**
     * Readable while events wait, and when the client is closed: for poll(2) and the like. Only
     * poll it. It is valid as long as this object is there; -1 in a forked child.
     */
    int descriptor() const noexcept { return leasehold_events_descriptor(handle()); }
    /** How many at_risk events were dropped because nobody read them in time. */
    std::uint64_t dropped() const noexcept { return leasehold_events_dropped(handle()); }

private:
    explicit events(leasehold_events *handle) noexcept : owner{handle} {}
};

/* ---- A mutex for the standard library -------------------------------------------------------- */

/**
 * A lock as the standard library knows them: it meets Lockable and TimedLockable, so it goes with
 * std::unique_lock, std::lock_guard, std::scoped_lock (of several, too) and
 * std::condition_variable_any.
 *
 * Threads may share one object, as they do with a std::mutex. Each has its own lease in here, so
 * that unlock() ends only the caller's: unlock in the thread that locked. A thread that locks again
 * what it holds gets std::system_error, resource_deadlock_would_occur, from the functions that
 * only try, too. Two objects of one name are one lock: std::scoped_lock of both would never end.
 *
 * A held mutex can be lost, which no std::mutex can. Look at is_valid() before what cannot be
 * undone, and give fence() to the resource. To learn how it ended, ask unlock_error() after
 * unlocking, or unlock with release(), which throws; from a std::unique_lock named `held`:
 *
 *     held.release()->release();   // std's lets go of the mutex, ours gives the lock back
 */
class mutex {
public:
    mutex(const client &store, std::string_view name) : mutex{store.lock(name)} {}
    /**
     * With the options of a lock, but for wait(), which the functions below replace:
     *
     *     leasehold::mutex stock{client.lock("stock:sku-17").ttl(10s)};
     */
    explicit mutex(leasehold::lock options);
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;
    /** Releases leases that are still in here. */
    ~mutex();

    /**
     * Waits without limit. Throws leasehold::error when it cannot be taken: the store was never
     * reached, for example, the client is closed, or attempts() are used up.
     */
    void lock();
    /** Takes it if it is free. */
    [[nodiscard]] bool try_lock();
    /** Waits for `most` at most; zero and less try once. */
    [[nodiscard]] bool try_lock_for(time_span most);
    /** Waits until `when` as `Clock` has it, also if that is set meanwhile; what is past tries. */
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(std::chrono::time_point<Clock, Duration> when);

    /** Gives it back. Never throws; unlock_error() has what went wrong. */
    void unlock() noexcept;
    /**
     * What went wrong in this thread's last unlock() of this mutex, until it locks it again. Its
     * status is LEASEHOLD_LOST when the lease had been lost, LEASEHOLD_UNKNOWN when the store
     * did not confirm it.
     */
    std::optional<error> unlock_error() const;
    /** Gives it back as unlock() does, and throws what goes wrong. It is not held afterwards. */
    void release();

    /** The fence of the calling thread's lease; 0 if it has none. */
    std::uint64_t fence() const noexcept;
    /** Whether the calling thread has a lease that may be relied on at this moment. */
    bool is_valid() const noexcept;
    /** For how long the calling thread may rely on its lease; 0 if it has none. */
    std::chrono::milliseconds remaining() const noexcept;
    /** What it takes; for its name() and inspect(). */
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
 * Sends the library's log to a function, from a level on. An empty function, or log_level::off,
 * ends that. There is one for the process; without it, nothing is written anywhere.
 *
 * The function is called on any thread, the library's own included, and on several at once. What
 * it throws is dropped. When this returns, the former function is not running any more and was
 * destroyed. From within the function, it can only be ended (it is destroyed when the next one is
 * set), and it must not wait for a thread that is in here. The last one is never destroyed: before
 * what it refers to goes, end it.
 */
void set_log(log_function function, log_level from = log_level::warn);

/* ---- Durations, versions, handles ------------------------------------------------------------ */

/** Reads a duration as people write it: "250ms", "10s", "1.5s", "5m", "1h30m", "1d" or "0". */
std::chrono::milliseconds parse_duration(std::string_view text);

/** The version of the library that runs; LEASEHOLD_VERSION is that of the header. */
inline const char *version() noexcept { return leasehold_version(); }
/** The LEASEHOLD_ABI_VERSION of the library that runs. */
inline std::uint32_t abi_version() noexcept { return leasehold_abi_version(); }
/** How many handles are open in this process, for tests: tools do not see them leak. */
inline std::size_t handle_count() noexcept { return leasehold_handle_count(); }

/* ==== How it is done: nothing below is needed to use it ======================================= */

static_assert(forever.count() == LEASEHOLD_FOREVER, "the library's word for no limit");

inline error::error(leasehold_status status, std::string_view detail)
    : std::runtime_error{std::string{leasehold_status_message(status)} +
                         (detail.empty() ? "" : ": ") + std::string{detail} +
                         (*leasehold_status_advice(status) ? "; " : "") +
                         leasehold_status_advice(status)},
      status_{status}, detail_{std::make_shared<const std::string>(detail)} {}

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
        throw error{status, leasehold_error_detail(error_)};
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

inline lock_state lock::inspect() const {
    const std::unique_ptr<leasehold_lock_state, detail::freeing<leasehold_lock_state_free>> seen{
        detail::get<leasehold_lock_state *>(leasehold_lock_inspect, handle())};
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

inline std::optional<std::uint64_t> lock::break_held(std::string_view by,
                                                     std::optional<std::uint64_t> if_fence) const {
    if (if_fence == 0u) throw error{LEASEHOLD_ERR_BAD_ARGUMENT, "0 is no fence"};
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
                        "a log function can be ended from within, not replaced"};
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

/* ---- durations ---- */

inline std::chrono::milliseconds parse_duration(std::string_view text) {
    return std::chrono::milliseconds{
        detail::get<std::int64_t>(leasehold_duration_parse, text.data(), text.size())};
}

} // namespace leasehold

#endif
