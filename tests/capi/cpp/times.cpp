// Durations of every kind on their way to milliseconds.

#include "check.hpp"

#include <limits>

using namespace std::chrono;
using namespace std::chrono_literals;

static std::int64_t ms(leasehold::time_span span) { return span.ms(); }

TEST(times_are_rounded_up) {
    EQUAL(ms(5s), 5000);
    EQUAL(ms(0s), 0);
    EQUAL(ms(1ns), 1);
    EQUAL(ms(1'000'000ns), 1);
    EQUAL(ms(1'000'001ns), 2);
    EQUAL(ms(1500us), 2);
    EQUAL(ms(24h), 86'400'000);
    EQUAL(ms(duration<int, std::ratio<1, 3>>{1}), 334);
}

TEST(times_with_a_fraction_mean_what_they_say) {
    EQUAL(ms(duration<double>{0.1}), 100);
    EQUAL(ms(duration<double>{0.1 + 0.2}), 300);
    EQUAL(ms(duration<double, std::milli>{1.5}), 2);
    EQUAL(ms(duration<double>{1e-9}), 1);
    EQUAL(ms(duration<double>{std::numeric_limits<double>::quiet_NaN()}), 0);
}

TEST(times_below_zero_stay_below) {
    EQUAL(ms(-5s), -5000);
    EQUAL(ms(-1ns), -1);
    EQUAL(ms(duration<double>{-0.1}), -100);
}

TEST(times_that_cannot_be_counted_are_for_ever) {
    EQUAL(ms(leasehold::forever), LEASEHOLD_FOREVER);
    EQUAL(ms(hours::max()), LEASEHOLD_FOREVER);
    EQUAL(ms(duration<std::int64_t, std::ratio<86400 * 365>>::max()), LEASEHOLD_FOREVER);
    EQUAL(ms(duration<double>{std::numeric_limits<double>::infinity()}), LEASEHOLD_FOREVER);
    EQUAL(ms(duration<double>{1e300}), LEASEHOLD_FOREVER);
    CHECK(ms(hours::min()) < 0);
    CHECK(ms(duration<double>{-std::numeric_limits<double>::infinity()}) < 0);
    // 292 years, which can be.
    CHECK(ms(nanoseconds::max()) < LEASEHOLD_FOREVER);
    CHECK(ms(nanoseconds::max()) > ms(291 * 365 * 24h));
}

TEST(times_are_read_as_people_write_them) {
    EQUAL(leasehold::parse_duration("250ms"), 250ms);
    EQUAL(leasehold::parse_duration("1.5s"), 1500ms);
    EQUAL(leasehold::parse_duration(std::string_view{"1hour"}.substr(0, 2)), 1h);
    EQUAL(leasehold::parse_duration("0"), 0ms);
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::parse_duration("5"));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::parse_duration(""));
    THROWS(LEASEHOLD_ERR_BAD_ARGUMENT, leasehold::parse_duration({}));
}
