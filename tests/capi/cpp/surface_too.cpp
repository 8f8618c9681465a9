// A second translation unit of the program, which includes the header alone.

#include <leasehold.hpp>

leasehold::log_function &function_of_the_log();

leasehold::log_function &function_of_the_log() {
    return *leasehold::detail::log_target::here().function;
}
