//! The host guard: no task begins while a script of another attempt or action of its job lives on the host. No task
//! begins beside a script of a released attempt. On an exclusive host all tasks queue.

use perilog_core::TaskId;
use perilog_core::task::Lingering;

use super::{Run, Truth};

impl Run {
    /// Returns `true` if the run's script or a lingering process keeps other tasks off the host.
    pub(super) fn holds(&self) -> bool {
        self.alive || (self.left_behind && self.lingering != Lingering::Keep)
    }
}

impl Truth {
    pub(crate) fn exclusive(&mut self, nodes: &[usize]) {
        self.exclusive.extend(nodes);
    }

    /// Checks a script of this run that begins: no process that excludes the script lives on the host.
    pub(super) fn check_alone(&mut self, index: usize, t: u64) {
        let Some(run) = self.runs.get(index) else { return };
        let exclusive = self.exclusive.contains(&run.node);
        let beside = self.runs.iter().enumerate().find(|(at, other)| {
            let in_the_way = exclusive || (other.job == run.job && other.step != run.step);
            *at != index && other.holds() && other.node == run.node && in_the_way
        });
        if let Some((_, other)) = beside {
            let (stem, other) = (run.stem.clone(), other.stem.clone());
            self.broken(|| format!("host guard: a script of {stem} begins at {t} beside one of {other}"));
        }
    }

    /// Checks the start of a unit by an agent (node, life); returns what is wrong. The task's attempt must not be
    /// forgotten, and no task of a forgotten attempt may live on the node.
    pub(crate) fn in_the_way(&self, at: usize, life: u64, task: TaskId) -> Option<String> {
        let released = |task: &TaskId| self.stops.forgets.get(task) == Some(&(at, life)) && !self.is_cleared(*task);
        if released(&task) {
            return Some("its attempt was released".to_owned());
        }
        let holder = self.runs.iter().find(|run| run.node == at && run.holds() && released(&run.task))?;
        Some(format!("{} of a released attempt lives", holder.stem))
    }
}
