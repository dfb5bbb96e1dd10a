//! Facts: read-only questions that need more than one part of the machine, such as "does recovery hold this task
//! back?". The code of each fact is in the folder of its subject.

use std::ops::Deref;

use crate::controller::machine::Machine;

/// Read-only view of the machine. Its methods answer questions that need more than one part of the machine.
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
