//! Host guard: checks that no task begins on a host while scripts of another attempt or action of its job are alive
//! there, or scripts of a released attempt. On an exclusive host tasks run one at a time.

use perilog_core::TaskId;
use perilog_core::task::Lingering;

use super::{Run, Truth};

impl Run {
    /// Returns `true` if the run keeps other tasks from beginning on the host. One of its scripts is alive, or a
    /// lingering process is alive and the action does not let it stay.
    pub(super) fn holds(&self) -> bool {
        self.alive || (self.left_behind && self.lingering != Lingering::Keep)
    }
}

impl Truth {
    pub(crate) fn exclusive(&mut self, nodes: &[usize]) {
        self.exclusive.extend(nodes);
    }

    /// Checks the run with this index when one of its scripts begins: no script or lingering process beside it may be
    /// alive. On an exclusive host no other run may be; elsewhere, none of another attempt or action of the same job.
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

    /// Returns why the agent of node `at` must not start the unit of a task; `None`: the agent may start it. There are
    /// two reasons: the agent has read a Forget of the task, or of another task that is alive on the node.
    /// `incarnation`: the number of the agent's process.
    pub(crate) fn in_the_way(&self, at: usize, incarnation: u64, task: TaskId) -> Option<String> {
        let released =
            |task: &TaskId| self.stops.forgets.get(task) == Some(&(at, incarnation)) && !self.is_cleared(*task);
        if released(&task) {
            return Some("its attempt was released".to_owned());
        }
        let holder = self.runs.iter().find(|run| run.node == at && run.holds() && released(&run.task))?;
        Some(format!("{} of a released attempt lives", holder.stem))
    }
}
