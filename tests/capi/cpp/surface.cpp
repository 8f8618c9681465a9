// What the types promise, checked by the compiler, and that two translation units share one header.

#include "check.hpp"

#include <cerrno>

// Included twice on purpose.
#include <leasehold.hpp>
#include <leasehold.hpp>

#include <mutex>
#include <type_traits>

// In surface_too.cpp.
leasehold::log_function &function_of_the_log();

namespace {

template <class Type>
constexpr bool is_a_handle =
    std::is_nothrow_move_constructible_v<Type> && std::is_nothrow_move_assignable_v<Type> &&
    std::is_nothrow_destructible_v<Type> && !std::is_copy_constructible_v<Type> &&
    !std::is_copy_assignable_v<Type> && !std::is_default_constructible_v<Type> &&
    sizeof(Type) == sizeof(void *) && noexcept(std::declval<Type &>().handle()) &&
    noexcept(std::declval<Type &>().disown());

static_assert(is_a_handle<leasehold::config>);
static_assert(is_a_handle<leasehold::client>);
static_assert(is_a_handle<leasehold::lock>);
static_assert(is_a_handle<leasehold::waits>);
static_assert(is_a_handle<leasehold::lease>);
static_assert(is_a_handle<leasehold::events>);

// Handles of one type are not taken for another's.
static_assert(!std::is_convertible_v<leasehold_lock *, leasehold::lock>);
static_assert(!std::is_constructible_v<leasehold::lock, leasehold_lock *>);
static_assert(std::is_same_v<decltype(leasehold::lease::adopt(nullptr)), leasehold::lease>);

static_assert(std::is_base_of_v<std::runtime_error, leasehold::error>);
static_assert(std::is_nothrow_copy_constructible_v<leasehold::error>);
static_assert(std::is_nothrow_copy_assignable_v<leasehold::error>);

static_assert(!std::is_copy_constructible_v<leasehold::mutex>);
static_assert(!std::is_move_constructible_v<leasehold::mutex>);
static_assert(std::is_nothrow_destructible_v<leasehold::mutex>);
static_assert(noexcept(std::declval<leasehold::mutex &>().unlock()));
static_assert(!noexcept(std::declval<leasehold::mutex &>().release()));
static_assert(noexcept(std::declval<const leasehold::mutex &>().fence()));
static_assert(noexcept(std::declval<const leasehold::mutex &>().is_valid()));
static_assert(noexcept(std::declval<const leasehold::mutex &>().remaining()));

// A lock holds nothing, so taking it changes nothing of it.
static_assert(std::is_same_v<decltype(std::declval<const leasehold::lock &>().acquire()),
                             std::optional<leasehold::lease>>);

// Options chain in place, and out of what client::lock() returns, without leaving a reference to a
// temporary behind.
static_assert(
    std::is_same_v<decltype(std::declval<leasehold::lock &>().ttl(std::chrono::seconds{1})),
                   leasehold::lock &>);
static_assert(std::is_same_v<decltype(std::declval<leasehold::lock>().ttl(std::chrono::seconds{1})),
                             leasehold::lock>);
static_assert(
    std::is_same_v<decltype(std::declval<leasehold::config>().pool(1)), leasehold::config>);

// A time needs its unit.
static_assert(std::is_convertible_v<std::chrono::hours, leasehold::time_span>);
static_assert(std::is_convertible_v<std::chrono::duration<float>, leasehold::time_span>);
static_assert(!std::is_convertible_v<int, leasehold::time_span>);

// What a URL is made from has to be said; a config is no URL.
static_assert(!std::is_convertible_v<const char *, leasehold::client>);
static_assert(std::is_constructible_v<leasehold::client, std::string>);
static_assert(std::is_constructible_v<leasehold::mutex, leasehold::client &, std::string_view>);
static_assert(!std::is_constructible_v<leasehold::mutex, leasehold::lock &>);

static_assert(std::is_same_v<std::unique_lock<leasehold::mutex>::mutex_type, leasehold::mutex>);
static_assert(std::is_copy_constructible_v<leasehold::event>);
static_assert(std::is_copy_constructible_v<leasehold::lock_state>);

} // namespace

TEST(surface_two_translation_units_share_what_the_header_keeps) {
    leasehold::set_log([](leasehold::log_level, std::string_view) {});
    CHECK(leasehold::detail::log_target::here().function.get() == &function_of_the_log());
    leasehold::set_log(nullptr);
}
