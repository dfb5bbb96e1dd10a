//! `perilog`: the library beside this file describes the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    perilog::main()
}
