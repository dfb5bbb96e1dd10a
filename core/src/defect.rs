//! Deliberate defects: what a tired engineer would write and a review might miss. They exist to show that the simulator
//! and the tests can fail: `cargo xtask mutate` switches each on, alone, and names the seed or the test that turned
//! red.
//!
//! A site reads `if defect!(NoTombstone) { ... }`. Without the feature `defects` that is the constant `false`, and this
//! table is not compiled. With it the question is whether that one was switched on, by [`switch_on`], once for the
//! whole process. What no debug assertions are compiled into cannot have it: no release build can contain a defect.

#[cfg(all(feature = "defects", not(debug_assertions)))]
compile_error!("deliberate defects are for the simulator and for tests; a release build must not contain them");

/// Is this the defect that is switched on? The constant `false` without the feature `defects`.
#[cfg(not(feature = "defects"))]
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        false
    };
}

/// Is this the defect that is switched on?
#[cfg(feature = "defects")]
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        $crate::defect::is_on($crate::defect::Defect::$name)
    };
}

/// Switches on the defect of this name (`Option<String>`), if there is one. Nothing, and nothing is evaluated, without
/// the feature `defects`.
#[cfg(not(feature = "defects"))]
#[macro_export]
macro_rules! switch_on_defect {
    ($name:expr) => {};
}

/// Switches on the defect of this name (`Option<String>`), if there is one.
#[cfg(feature = "defects")]
#[macro_export]
macro_rules! switch_on_defect {
    ($name:expr) => {
        if let Some(name) = $name {
            $crate::defect::switch_on(&name).expect("a defect of the table, once");
        }
    };
}

#[cfg(all(test, feature = "defects"))]
pub(crate) use chosen::chosen;
#[cfg(feature = "defects")]
pub use table::{Defect, Hunt, Row, TABLE, is_on, switch_on};

#[cfg(all(test, feature = "defects"))]
mod chosen;
#[cfg(feature = "defects")]
mod table;
