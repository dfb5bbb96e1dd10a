//! Deliberate defects show that the simulator and the tests can fail. Each is a mistake that a tired engineer would
//! make and a review might miss. `cargo xtask mutate` switches on one defect at a time, and names the seed or the test
//! that failed.
//!
//! A switch is beside the rule that it breaks, and never within the rule's expression (`cargo xtask tidy`). It is a
//! statement before the rule (`if defect!(NoTombstone) { return; }`), an empty branch in front of the rule's own
//! (`if defect!(NoTombstone) {} else if rule { ... }`), a match arm of its own, or a line after the rule, such as
//! `let value = if defect!(NoTombstone) { wrong } else { value };`.
//!
//! Without the feature `defects` the macro is the constant `false`, and the table of defects is not compiled. With the
//! feature, the macro is `true` if `switch_on` has chosen this defect for the process. The feature does not compile
//! without debug assertions: no release build can contain a defect.

#[cfg(all(feature = "defects", not(debug_assertions)))]
compile_error!("deliberate defects are for the simulator and for tests; a release build must not contain them");

/// Returns the constant `false`: without the feature `defects` no defect exists.
#[cfg(not(feature = "defects"))]
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        false
    };
}

/// Returns `true` if this defect is switched on.
#[cfg(feature = "defects")]
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        $crate::defect::is_on($crate::defect::Defect::$name)
    };
}

/// Expands to nothing, and does not evaluate `$name`: without the feature `defects` no defect exists.
#[cfg(not(feature = "defects"))]
#[macro_export]
macro_rules! switch_on_defect {
    ($name:expr) => {};
}

/// Switches on the defect with this name (an `Option<String>`); does nothing for `None`. Panics if no defect has the
/// name.
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
