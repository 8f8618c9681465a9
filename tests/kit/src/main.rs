//! Starts servers for the tests in other languages, for scripts, and for trying things out.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::program::main()
}
