//! Translates between stems and task ids: the daemon's I/O knows units and directories by their stem, the machine knows
//! tasks by their id.

use std::collections::HashMap;

use perilog_core::ids::TaskId;

/// Map between the stems and the tasks of this host. It contains a task from the time at which the agent writes its
/// intent, or finds its unit or directory. The task leaves the map when its directory is removed.
#[derive(Debug, Default)]
pub(super) struct TaskIndex {
    tasks: HashMap<String, TaskId>,
    stems: HashMap<TaskId, String>,
}

impl TaskIndex {
    pub(super) fn enter(&mut self, stem: &str, task: TaskId) {
        if self.tasks.insert(stem.to_owned(), task) != Some(task) {
            self.stems.insert(task, stem.to_owned());
        }
    }

    pub(super) fn leave(&mut self, stem: &str) {
        if let Some(task) = self.tasks.remove(stem) {
            self.stems.remove(&task);
        }
    }

    pub(super) fn task(&self, stem: &str) -> Option<TaskId> {
        self.tasks.get(stem).copied()
    }

    pub(super) fn stem(&self, task: TaskId) -> Option<&str> {
        self.stems.get(&task).map(String::as_str)
    }
}
