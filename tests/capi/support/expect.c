#include <stdio.h>
#include <string.h>

#include "check.h"

_Thread_local leasehold_error *problem;
_Thread_local char said[512];

void check_status(const char *file, int line, const char *what, leasehold_status expected,
                  leasehold_status actual)
{
    if (actual == expected)
        return;
    fail_at(file, line, "%s says %s, not %s", what, leasehold_status_name(actual),
            leasehold_status_name(expected));
}

static bool says_everything(leasehold_status status)
{
    return status == LEASEHOLD_OK || status == LEASEHOLD_BUSY || status == LEASEHOLD_TIMEOUT ||
           status == LEASEHOLD_INTERRUPTED;
}

void expect(const char *file, int line, const char *what, bool is_mended, leasehold_status expected,
            leasehold_status actual)
{
    leasehold_error *error = problem;
    problem = NULL;
    if (error == UNTOUCHED)
        fail_at(file, line, "%s left its error as it was", what);
    const char *message = leasehold_error_message(error);
    snprintf(said, sizeof said, "%s", error ? message : "");
    if (actual != expected)
        fail_at(file, line, "%s says %s (%s), not %s", what, leasehold_status_name(actual), said,
                leasehold_status_name(expected));
    if (says_everything(actual)) {
        if (error)
            fail_at(file, line, "%s says %s, and an error: %s", what, leasehold_status_name(actual),
                    message);
        return;
    }
    if (!error)
        fail_at(file, line, "%s says %s, and no error", what, leasehold_status_name(actual));
    if (leasehold_error_status(error) != actual)
        fail_at(file, line, "the error of %s has the status %s", what,
                leasehold_status_name(leasehold_error_status(error)));
    const char *advice = leasehold_status_advice(actual);
    bool is_advised = !*advice || (strstr(message, advice) != NULL) == !is_mended;
    if (!strstr(message, leasehold_status_message(actual)) || !is_advised ||
        strpbrk(message, "\r\n"))
        fail_at(file, line, "%s says '%s'", what, message);
    if (!strstr(message, leasehold_error_detail(error)))
        fail_at(file, line, "%s says '%s', without '%s'", what, message,
                leasehold_error_detail(error));
    leasehold_error_free(error);
}
