//! `perilog`: see the library beside this file.

use std::process::ExitCode;

fn main() -> ExitCode {
    perilog::main()
}
