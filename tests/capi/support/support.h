/* What the tests in C share. Each file beside this one says more. */

#ifndef SUPPORT_H
#define SUPPORT_H

#include <leasehold.h>

#include "check.h"
#include "clock.h"
#include "process.h"
#include "runner.h"
#include "server.h"
#include "shorthand.h"

#endif
