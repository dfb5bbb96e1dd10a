//! Scripts that announce a reboot of their node. Such a script reboots the node after the controller's confirmation,
//! without waiting for it, or never.

use perilog_core::task::Report;

use super::World;
use super::event::{Act, Event};
use super::site::Reboots;
use super::systemd::UnitState;

impl World {
    /// Returns the report with which a script that begins announces a reboot; `None`: this script announces none.
    pub(super) fn announce(&mut self, at: usize, stem: &str, serial: u64) -> Option<Report> {
        let unit = self.nodes[at].systemd.unit(stem, serial)?;
        let boot = unit.runner.behaviour.as_ref()?.boot.clone()?;
        if boot.script + 1 != unit.runner.next {
            return None;
        }
        if let Reboots::Rashly { after_ms } = boot.reboots {
            self.unit_after(after_ms, at, stem, serial, Act::Boots);
        }
        Some(Report::ExpectReboot)
    }

    /// Handles the file `boot-expected` that the agent has created for a running script: the script learns that the
    /// controller knows of the announced reboot. A script that waited for that then reboots the node.
    pub(crate) fn boot_expected(&mut self, at: usize, stem: &str) {
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem).filter(|unit| unit.state == UnitState::Running)
        else {
            return;
        };
        let (serial, run) = (unit.serial, unit.runner.run);
        let boot = unit.runner.behaviour.as_ref().and_then(|behaviour| behaviour.boot.clone());
        let Some(boot) = boot.filter(|_| unit.runner.alive && !std::mem::replace(&mut unit.runner.boot_known, true))
        else {
            return;
        };
        if let Some(run) = run {
            self.truth.boot_known(run);
        }
        if let Reboots::WhenKnown { after_ms } = boot.reboots {
            self.unit_after(after_ms, at, stem, serial, Act::Boots);
        }
    }

    /// Reboots the node for a script: every process gets TERM, and then the node goes down.
    pub(super) fn reboots(&mut self, at: usize, stem: &str, serial: u64) {
        let node = &mut self.nodes[at];
        let (boot, t) = (node.boot, self.t);
        let Some(unit) = node.systemd.unit(stem, serial).filter(|unit| unit.runner.alive) else { return };
        let Some(of) = unit.runner.behaviour.as_ref().and_then(|behaviour| behaviour.boot.clone()) else { return };
        if of.script + 1 != unit.runner.next {
            return;
        }
        self.log_line(|| format!("n{at} {stem}: its script reboots the node"));
        self.disturb(at);
        let stems: Vec<String> = self.nodes[at].systemd.units.keys().cloned().collect();
        for stem in stems {
            self.stopped_by_another(at, &stem);
            self.signal_runner(at, &stem, 15);
        }
        self.after(of.goes_ms, Event::Goes { node: at, boot, down_ms: of.down_ms, soft: of.soft });
        self.log_line(|| format!("n{at} goes down at {}", t + of.goes_ms));
    }

    pub(crate) fn goes(&mut self, at: usize, boot: u64, down_ms: u64, soft: bool) {
        if !self.nodes[at].on || self.nodes[at].boot != boot {
            return;
        }
        self.disturb(at);
        if soft {
            self.soft_reboot(at, down_ms);
        } else {
            self.power_fail(at, down_ms);
        }
    }
}
