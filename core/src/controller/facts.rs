//! Facts: questions to which several parts of the machine hold the answer together. A fact changes nothing and calls
//! no act. Each fact stands in the folder of its subject, beside the acts that ask.

use std::ops::Deref;

use crate::controller::machine::Machine;

/// The machine for reading.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a>(pub(super) &'a Machine);

impl Deref for Facts<'_> {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        self.0
    }
}

impl Machine {
    pub(super) const fn facts(&self) -> Facts<'_> {
        Facts(self)
    }
}
