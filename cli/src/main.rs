//! The program `perilog`. `lib.rs` in this directory describes it.

use std::process::ExitCode;

fn main() -> ExitCode {
    perilog::main()
}
