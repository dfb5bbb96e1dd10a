//! The events of a simulated world, each for one moment of world time.

use perilog_core::agent::Input;
use perilog_core::agent::io::Seen;
use perilog_core::task::Intent;
use perilog_core::{HostName, InvocationId, TaskId};

use crate::plan::Side;

use super::systemd::UnitView;

#[derive(Debug)]
pub(crate) enum Event {
    /// The step of the plan with this index.
    Step(usize),
    /// Faults stop, and the world repairs their damage.
    Quiet,
    /// An operator looks at the world, after faults have stopped, and settles what is stuck.
    TidyUp,
    /// The world checks that every action has its verdict.
    Verdicts,
    /// Every agent says Hello once more.
    Reconnect,
    /// The world checks that no task, attempt or notice is left.
    Rest,

    Boot {
        node: usize,
    },
    AgentUp {
        node: usize,
        boot: u64,
    },
    /// The node goes down, because a script of this boot asked for a reboot.
    Goes {
        node: usize,
        boot: u64,
        down_ms: u64,
        soft: bool,
    },
    Continue {
        node: usize,
        incarnation: u64,
    },
    /// An event for the agent's loop; a stopped agent gets the event later.
    Agent {
        node: usize,
        incarnation: u64,
        event: AgentEvent,
    },
    Dial {
        node: usize,
        incarnation: u64,
    },
    /// The agent has the rest of its answer to a question of the controller, such as a request for its status, and
    /// sends it.
    Answered {
        node: usize,
        incarnation: u64,
        conn: u64,
        question: u64,
    },

    /// A call arrives at PID 1.
    Call {
        node: usize,
        boot: u64,
        from: Caller,
        call: Call,
    },
    /// A unit takes its next step (`act`), such as the end of a script.
    Unit {
        node: usize,
        boot: u64,
        stem: String,
        serial: u64,
        act: Act,
    },

    /// The oldest frame on its way to this side of the connection arrives.
    Deliver {
        conn: u64,
        to: Side,
    },
    /// TCP gives up on a peer that does not answer.
    Silence {
        conn: u64,
        side: Side,
    },

    ControllerUp {
        which: usize,
        incarnation: u64,
    },
    Batch {
        which: usize,
        incarnation: u64,
    },
    /// The drain hook has ended with status 0.
    FailedNotice {
        incarnation: u64,
        host: HostName,
        notice_id: u64,
        lifted: bool,
    },
    /// The hooks look for notices.
    Hooks {
        incarnation: u64,
    },
    /// The service of an external action makes its next request.
    Service {
        index: usize,
    },
    Wake {
        which: usize,
        incarnation: u64,
        mono_ms: u64,
    },
    /// A rollback: an earlier copy of the store, of the directory or of the memory replaces the present one.
    Restored {
        copy: usize,
    },
    /// The resource manager looks at its jobs, and acts on them.
    Scheduler,
    /// An operator looks at the recovery.
    Person,
    /// The second controller is taken down.
    SecondEnds {
        incarnation: u64,
    },
    /// A clone's machine is switched off.
    CloneEnds {
        node: usize,
        boot: u64,
    },
}

/// An event that the agent's loop turns into an input of the agent's machine.
#[derive(Debug, Clone)]
pub(crate) enum AgentEvent {
    /// The agent has a connection to the bus, and asks for all units.
    InspectAll,
    /// systemd has answered with the list of its units (`units`), and the agent now reads the directories of its tasks.
    BusUp {
        units: Vec<(String, UnitView)>,
    },
    Answer {
        call: u64,
        connection: u64,
        input: Input,
    },
    /// The second half of an agent's inspection of a task: PID 1 has answered about the unit (`seen`), and the agent
    /// now reads the files in the task's directory.
    Files {
        call: u64,
        connection: u64,
        stem: String,
        task: TaskId,
        seen: Box<Seen>,
    },
    /// The agent gives up a call to systemd, because the answer is late or the connection to the bus was lost.
    Unanswered {
        call: u64,
        connection: u64,
    },
    Wakeups {
        stem: String,
    },
    LinkUp {
        conn: u64,
    },
    Message {
        conn: u64,
        frame: Vec<u8>,
    },
    LinkDown {
        conn: u64,
    },
    Tick {
        boot_ms: u64,
    },
    Local(Box<Input>),
    /// SIGHUP: the agent reads its configuration again.
    Reload,
}

/// The origin of a call to PID 1: the agent's process, its connection to the bus, and the number of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) incarnation: u64,
    pub(crate) connection: u64,
    pub(crate) call: u64,
    /// Whether PID 1's reply to this call is lost.
    pub(crate) mute: bool,
}

/// A call to PID 1. `of`: the invocation from the last inspection of the unit; `None`: any unit of that name.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Start { stem: String, intent: Box<Intent>, since_boot_ms: u64 },
    Watch { stem: String },
    Inspect { stem: String, task: TaskId },
    SignalRunner { stem: String, signal: u8, of: Option<InvocationId> },
    KillAll { stem: String, of: Option<InvocationId> },
    Unload { stem: String, of: Option<InvocationId> },
}

/// The next event in the life of a task's unit, such as the claim by its runner or the end of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// The start job runs: PID 1 forks the main process.
    JobRuns,
    Claims,
    NextScript,
    /// The script ends; `turn`: the number of the try for which the event was scheduled.
    ScriptEnds {
        turn: u64,
    },
    Limit,
    Grace,
    /// The script reboots the node.
    Boots,
    WritesResult,
    Exits,
    LeftoverEnds,
}
