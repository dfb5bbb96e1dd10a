//! `cargo run -p perilog-sim`
fn main() {}
