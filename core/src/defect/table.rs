//! Table of all deliberate defects: mistakes in the code that a test run switches on, to show that a test finds them.
//! Each defect has at least one `defect!` in the product, or in the simulator where the simulator stands in for the
//! daemon around a machine. `cargo xtask tidy` checks that.

use std::sync::OnceLock;

use serde::Serialize;

/// The test or simulation that must fail while a defect is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hunt {
    /// The simulator finds a violation: it plays random histories, each with a fresh seed, until one fails with the
    /// defect.
    Simulator,
    /// A test without nodes fails with the defect. `program`: the test program, as `cargo xtask test` names it, for
    /// example `core`. `filter`: a part of the test's name.
    Unit { program: &'static str, filter: &'static str },
    /// A test on real nodes fails with the defect. `module`: the file in `tests/tests`, without `.rs`.
    Nodes { module: &'static str },
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Row {
    #[serde(skip)]
    pub defect: Defect,
    /// The name of the defect's variant in [`Defect`], such as `AckBeforeCommit`.
    pub ident: &'static str,
    pub wrong: &'static str,
    pub breaks: &'static str,
    pub hunt: Hunt,
}

macro_rules! table {
    ($($ident:ident: $wrong:literal, $breaks:literal, $hunt:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Defect { $($ident),* }

        pub const TABLE: &[Row] =
            &[$(Row {
                defect: Defect::$ident,
                ident: stringify!($ident),
                wrong: $wrong,
                breaks: $breaks,
                hunt: $hunt,
            }),*];
    };
}

// A number in `breaks` is the number of an invariant in ARCHITECTURE.md.
#[rustfmt::skip]
table! {
    AckBeforeCommit: "an acknowledgement leaves before its batch is committed (the order in the simulator's writer)",
        "5: what was acknowledged survives a crash", Hunt::Simulator;
    EffectsAfterFailedCommit:
        "a commit fails, and what the batch wanted said is said all the same (the simulator's writer)",
        "5: what was acknowledged survives a crash", Hunt::Simulator;
    BeginUnclaimed: "a restarted agent begins what it finds unclaimed, without a Welcome",
        "nothing begins unconfirmed", Hunt::Simulator;
    StallUnseen:
        "a task whose first script does not begin, because systemd or its runner hangs, is not watched",
        "docs/semantics.md T3: the limit counts from the start call", Hunt::Simulator;
    FrozenIsInTime: "a script that was frozen with its runner past its limit ended in time",
        "docs/semantics.md T3: what ended past its limit is a timeout",
        Hunt::Unit { program: "agent: perilog-runner", filter: "long_past_a_limit" };
    TrustMissingUnit: "a unit that is gone reads success, 0, and is believed",
        "3: unknown is never success", Hunt::Simulator;
    AdoptByName: "a unit of the right name is adopted, no matter whose it is",
        "3: the outcome is what the unit did; nothing of others is touched", Hunt::Simulator;
    ForgetAttempt: "the attempt is no part of an action's id",
        "6: nothing of one attempt changes another", Hunt::Simulator;
    ReopenOlderAttempt: "a request for an attempt that is over opens it again",
        "6: attempts are ordered", Hunt::Simulator;
    DropFinishedOnReconnect: "an end that was sent into a broken session is not sent again",
        "2: what was accepted ends", Hunt::Simulator;
    ExitedIsEnded: "the main process is gone, so the task has ended, whatever it left behind",
        "4: nothing is over while a process of it runs",
        Hunt::Unit { program: "core", filter: "lingering_processes_are_killed_by_plan" };
    RunnerLeavesProcesses: "a runner exits once its scripts have ended, whatever they left behind elsewhere",
        "4: nothing is over while a process of it runs", Hunt::Simulator;
    NoTombstone: "nothing stays of a task that was acknowledged", "1: a task is claimed once", Hunt::Simulator;
    IgnoreEpoch: "an agent accepts any controller that welcomes it, also an outdated controller",
        "epoch: a lower one is refused", Hunt::Simulator;
    IgnoreNonce: "two controllers of the same epoch are both accepted",
        "epoch: an equal one with another nonce is refused", Hunt::Simulator;
    BootKeepsProlog: "a node reboots before the verdict, and its prolog stays ok",
        "3: what a boot undid is not ok", Hunt::Simulator;
    KernelIsTheBoot: "a boot is known by the kernel's boot id alone, which a container keeps when it restarts",
        "3: what a boot undid is not ok", Hunt::Simulator;
    RestartIsAlive: "a unit that systemd restarts counts as alive, though the runner with the claim has ended",
        "2: what was accepted ends",
        Hunt::Unit { program: "core", filter: "a_unit_that_systemd_restarts_has_ended_with_its_runner" };
    UnitAsItComes: "scripts run in the unit that a drop-in for all services made, whatever is in it",
        "3: unknown is never success", Hunt::Nodes { module: "drop_ins_for_all_services" };
    ExpectedBootForgotten: "a boot that a script announced is a boot like any other",
        "docs/semantics.md T6: it is the task's end, not its loss", Hunt::Simulator;
    BootNotAwaited: "scripts that announced a boot and ended are not waited for to boot",
        "3: unknown is never success", Hunt::Simulator;
    AnyDrainIsCleaned: "a boot lifts any drain, an operator's too",
        "reboot-cleans: only what a stuck script was drained for", Hunt::Simulator;
    RebootUnnoticed: "another boot of a node passes for the one before", "1: a task is claimed once", Hunt::Simulator;
    EarlyTombstoneSweep: "a tombstone goes as soon as it is forgotten, before its not-after",
        "tombstones stay until not-after", Hunt::Simulator;
    CancelLeavesNothing: "a cancel of a task that is not there yet is answered and forgotten",
        "it refuses a later Start", Hunt::Simulator;
    BeginEnded: "what a node shows as not begun is begun, also when it has ended for the controller",
        "2: a task ends in exactly one outcome", Hunt::Simulator;
    AnyBoot: "a Start is accepted, and an intent begun, in a boot that it was not meant for",
        "2: one outcome, the one that the controller knows", Hunt::Simulator;
    NoGuard: "tasks of one job begin beside each other", "the host guard", Hunt::Simulator;
    GuardForgetsFound: "the guard knows only what this agent began, not what it found",
        "the host guard", Hunt::Simulator;
    UnloadBeforeOutcome: "the unit is unloaded before its outcome is on disk",
        "2: the outcome is what the unit did", Hunt::Simulator;
    CloneReplaces: "a second machine with this host's certificate takes its place unasked",
        "sessions: the old one is probed", Hunt::Simulator;
    VerdictTooEarly: "the verdict does not wait for ranks that are still accepted",
        "2: the verdict is that of all outcomes", Hunt::Simulator;
    LateOverwrites: "a result that comes after the outcome takes its place", "2: exactly one outcome", Hunt::Simulator;
    LateDropped: "a result that comes after the outcome is thrown away", "2: later facts are appended", Hunt::Simulator;
    LimitsOnWallClock: "start-grace counts from the wall clock's begin of the action",
        "docs/semantics.md T8: a restart or a clock step makes no task late", Hunt::Simulator;
    WakeupLostAfterReexec: "after the bus came back the agent follows no running unit",
        "8: what waits comes to its end", Hunt::Simulator;
    EventsRepeat: "after a restart events are numbered from 1 again", "5: what was shown stays", Hunt::Simulator;
    OutboxDropsUnapplied: "one entry is applied, all are dropped", "5: at least once", Hunt::Simulator;
    NodesLimitUnknown: "the limit that a node has of its own counts for nothing here",
        "a dead node cannot keep a job for ever",
        Hunt::Unit { program: "core", filter: "an_absent_node_is_unreachable_past_limit_and_grace" };
    AcceptBeforeIntent: "Accepted leaves before the intent is on disk",
        "5: what was acknowledged survives a crash", Hunt::Simulator;
    WithdrawWithoutClaim: "what must not begin ends without the claim being taken",
        "1: who has the claim decides", Hunt::Simulator;
    OrphanNotRebuilt: "a loaded unit with our ids whose directory is gone is ignored",
        "its intent is rebuilt, and it is adopted", Hunt::Simulator;
    AcceptedSentAgain: "an accepted task that its node does not know is sent again",
        "3: what is unknown is lost", Hunt::Simulator;
    LostClaimTaken: "the claim is another's, and is taken for ours", "3: unknown is never success", Hunt::Simulator;
    CancelledBegins: "what a node shows as not begun is begun, also when its cancel was asked for",
        "a cancel reaches the runner", Hunt::Simulator;
    CancelSentOnce: "a node that comes back with a cancelled task does not get the cancel again",
        "a cancel reaches the runner", Hunt::Simulator;
    SerializeIgnored: "tasks of different jobs run beside each other on an exclusive host",
        "the host guard", Hunt::Simulator;
    ResolveBeforeDrain: "an operator's resolution is the outcome before the drain of its node is in force",
        "4: where it cannot be known, after a confirmed drain", Hunt::Simulator;
    ResolvedForgotten: "a script that goes on after its task was resolved is forgotten, and its node is shown as free",
        "8: what is, is shown",
        Hunt::Unit { program: "core", filter: "a_script_that_outlives_its_resolution_is_shown" };
    StragglerEndDropped: "the own end of a script that was given up is dropped as known, if it is a timeout too",
        "2: later facts are appended", Hunt::Unit { program: "core", filter: "the_own_end_of_a_straggler_is_late" };
    ServiceFollows: "a service's action has an after-action's name, and what it does not cover is not drained",
        "4: a rank is released when it was cleaned up",
        Hunt::Unit { program: "core", filter: "no_service_cleans_up_for" };
    ResolvedBegins: "what waits in its node's queue is resolved, and its node is not notified",
        "2: one outcome", Hunt::Simulator;
    QuietForgotten: "a controller that comes up again is no longer quiesced",
        "5: what was shown survives a crash", Hunt::Simulator;
    MilestonesForgotten: "a controller that comes up again knows of no milestone that was reported",
        "5: what was shown survives a crash", Hunt::Simulator;
    LeaseOnWallClock: "a lease runs on the wall clock",
        "docs/semantics.md X3: a restart or a clock step makes no task late", Hunt::Simulator;
    ReportAgainChanges: "a second report of what has ended takes the place of the first",
        "2: exactly one outcome", Hunt::Simulator;
    ResourceReleasedEarly: "a resource of an external action is released before its service has reported it",
        "4: when nothing holds it", Hunt::Simulator;
    ReleaseAtFirst: "the first rank of an action that ends drops all its ranks",
        "4: a rank is released when nothing holds it", Hunt::Simulator;
    UndrainUnseen: "an undrain lifts a fault whose drain no hook has carried out yet",
        "docs/semantics.md: an undrain lifts what its operator could have seen",
        Hunt::Unit { program: "core", filter: "an_undrain_leaves_a_fault_that_nobody_can_have_seen" };
    EdgeAsksForAll: "an edge ends a job of a hook, or lifts a drain that its resource manager does not show",
        "docs/security.md: the role of an edge ends at its jobs and its drains",
        Hunt::Unit { program: "core", filter: "an_edge_asks_about_its_own_jobs_and_drains_only" };
    AnyEpochAccepted: "an agent accepts an epoch that no controller can have reached",
        "docs/security.md: a stolen key of a controller shuts the true one out of no node",
        Hunt::Unit { program: "core", filter: "an_epoch_that_no_controller_can_have_is_not_accepted" };
    ReleaseUndrained: "a rank at fault is released before its drain is in force",
        "4: unless that is known, after a confirmed drain", Hunt::Simulator;
    RunAfterRelease: "an action may begin on ranks that were released",
        "4: no process of an attempt on a rank that was released", Hunt::Simulator;
    FragmentOfAll: "a release carries the R of all that was released so far",
        "4: fragments partition R", Hunt::Simulator;
    FinalTwice: "the last release but one says that it is the last", "4: `final` is said once", Hunt::Simulator;
    HoldDropped: "what follows a job does not hold the ranks that the job drops",
        "docs/semantics.md H2: the epilog takes over in the same transaction", Hunt::Simulator;
    SupersededWithoutAfterAction: "an attempt that another takes the place of is released without what follows jobs",
        "docs/semantics.md H12: wherever a prolog was started the epilog runs", Hunt::Simulator;
    EpilogInTurn: "an epilog waits only for what was begun before it, not for a prolog on ranks by which it grew later",
        "docs/semantics.md H11: never beside it", Hunt::Simulator;
    EpilogBesideService: "an epilog begins where a service outside is at work for the job",
        "docs/semantics.md H11: never beside it", Hunt::Simulator;
    PrologAfterEpilog: "a prolog begins where its epilog has been, and none follows it",
        "docs/semantics.md H12: wherever a prolog was started the epilog runs", Hunt::Simulator;
    AttemptsOverlap: "an attempt begins on a host on which one before it has still to do",
        "6: nothing of one attempt changes another", Hunt::Simulator;
    SupersededServiceUnnotified: "a service of an attempt that another takes the place of never gets the request to \
                                  stop",
        "8: what is waited for can be ended", Hunt::Simulator;
    ServiceOverlaps: "a service is let to work where an older attempt is at work still",
        "6: nothing of one attempt changes another", Hunt::Simulator;
    PruneUnnotified: "an attempt is forgotten with releases that its hook has not carried out",
        "5: at least once", Hunt::Simulator;
    EndsUnfolded: "each rank that ended has a row of its own in the view of its job",
        "a reply does not grow with the job", Hunt::Unit { program: "core", filter: "ends" };
    DrainsUnfolded: "each drained host has a row of its own in the list of drains",
        "a reply does not grow with the cluster", Hunt::Unit { program: "core", filter: "lists" };
    PageUnbounded: "a list is one reply, however many hosts it has",
        "a reply does not grow with the cluster", Hunt::Unit { program: "core", filter: "lists" };
    DrainsLoggedApart: "each drained host has an event and a line of the journal of its own",
        "what is written does not grow with the cluster", Hunt::Unit { program: "core", filter: "lists" };
    NotesUnfolded: "each host of which a batch says the same has a line of the journal of its own",
        "what is written does not grow with the cluster", Hunt::Unit { program: "core", filter: "lists" };
    NoticesUnfolded: "each release that waits has a row of its own in ps",
        "a reply does not grow with the cluster", Hunt::Unit { program: "core", filter: "lists" };
    BatchUnbounded: "a batch starts, loses or drains all ranks of a job at once",
        "no request waits for a job of 65,536 ranks",
        Hunt::Unit { program: "core", filter: "no_batch_of_the_daemon" };
    RestForgotten: "what a batch leaves for a later one is forgotten",
        "docs/semantics.md: what was begun is carried out",
        Hunt::Unit { program: "core", filter: "the_starts_of_a_large_job" };
    EndedStaysLive: "what has ended stays in the index of what is live",
        "the cost of a request does not grow with the finished jobs",
        Hunt::Unit { program: "core", filter: "what_has_ended_is_live_no_more" };
    NothingEvicted: "a job that has ended stays in memory",
        "7: what a finished job takes is bounded",
        Hunt::Unit { program: "core", filter: "what_has_ended_leaves_memory" };
    NeedsIgnored: "a batch does not ask the store for the ended jobs that it needs",
        "1.1: an ended attempt is known until retention forgets it",
        Hunt::Unit { program: "core", filter: "a_request_about_an_ended_job" };
    NothingPinned: "a job leaves memory although the memory refers to it",
        "6.2: recovery knows what the store has", Hunt::Unit { program: "core", filter: "what_is_referred_to_stays" };
    LiveEvicted: "a job leaves memory although it has pending work",
        "1.1: the controller does what is pending",
        Hunt::Unit { program: "core", filter: "what_has_pending_notices_stays" };
    EqualSetsApart: "each set of ranks of a finished job takes its own memory",
        "7: what a finished job takes is bounded",
        Hunt::Unit { program: "core", filter: "what_has_ended_has_one_copy_of_equal_sets" };
    PrunedAtOnce: "one batch forgets all attempts that are past their retention",
        "7: no request waits for a batch that grows with the history",
        Hunt::Unit { program: "core", filter: "retention_goes_on_in_small_batches" };
    OverIsSuspended: "after a start the attempts that have ended are suspended too",
        "the cost of a start does not grow with the finished jobs",
        Hunt::Unit { program: "core", filter: "a_start_suspends_only_what_has_pending_work" };
    EndedNoticed: "while the gate is shut, the resource manager gets the notices of attempts that had ended",
        "docs/semantics.md B3: no pending work begins, is sent or released before a request for it",
        Hunt::Unit { program: "core", filter: "notices_of_what_had_ended_wait_for_the_gate" };
    PruneUnreleased: "an attempt is forgotten with ranks that wait for a drain",
        "4: all that was handed out is released", Hunt::Simulator;
    ReleasesOutOfOrder: "a hook gets notice of the newest release \
                         first", "the outbox: in order per job", Hunt::Simulator;
    HookNotifiedOnce: "a release that its hook did not carry out is not repeated", "5: at least once", Hunt::Simulator;
    UnmarkedForgiven: "a failure that no check names is forgiven too",
        "docs/semantics.md V5: no user can ignore a generic failure", Hunt::Simulator;
    CountIgnored: "any number of ranks is forgiven",
        "docs/semantics.md V1: at most as many as the user chose", Hunt::Simulator;
    ToleranceStartsAnew: "each action of a job is forgiven as many ranks as the job",
        "docs/semantics.md V3: the tolerance is the job's", Hunt::Simulator;
    KeepsOneLess: "one rank more is released than `keep` leaves",
        "docs/semantics.md V2: never fewer than N", Hunt::Simulator;
    NobodyLeft: "a job succeeds with none of its ranks",
        "docs/semantics.md V8: a verdict has a reader", Hunt::Simulator;
    KilledIsCancelled: "a runner that was killed passes for one that was asked to stop",
        "3: the outcome is what the unit did", Hunt::Simulator;
    OnlyFailuresDrain: "what was lost or refused, or passed its limit, drains no node",
        "docs/semantics.md D1: exactly the hosts at fault are drained", Hunt::Simulator;
    ExcusedDrains: "a node that is full, or does not configure an action, is drained for the prolog that it refuses",
        "docs/semantics.md D1: exactly the hosts at fault are drained",
        Hunt::Unit { program: "core", filter: "an_excused_refusal_drains_only_for_an_after_action" };
    RefusalsAreExcused: "a node that refuses a prolog for whatever reason is not drained",
        "docs/semantics.md D1: exactly the hosts at fault are drained",
        Hunt::Unit { program: "core", filter: "an_excused_refusal_drains_only_for_an_after_action" };
    CancelDrains: "what a user cancelled drains its node",
        "docs/semantics.md D1: a cancel never drains", Hunt::Simulator;
    CancelledEpilogIsClean: "an epilog that was cancelled drains no node",
        "docs/semantics.md H13: a node that was not cleaned is drained", Hunt::Simulator;
    DrainOverwritten: "a reason that stands is written over",
        "docs/semantics.md D3: an existing reason is never overwritten", Hunt::Simulator;
    DrainNotifiedOnce:
        "what else goes wrong on a host that is drained is not reported, though its drain may be lifted in the \
         resource manager alone",
        "docs/semantics.md D3: sent again, and waited for", Hunt::Simulator;
    MountUnchecked: "a controller begins with an empty store where the file system with its store is not mounted",
        "docs/failover.md: never an empty store in silence",
        Hunt::Unit { program: "controller", filter: "a_store_is_searched_on_the_mounted_file_system_alone" };
    PlaceUnchecked: "the authority of enrolled nodes stays on one host when the controller moves to the other",
        "docs/failover.md: store, anchor and enrolment are on one mount",
        Hunt::Unit { program: "controller", filter: "what_moves_with_the_controller_is_below_the_mount" };
    FirstHostDialled: "the line for a new node names the first host of the controller, and not the address that moves",
        "docs/failover.md: scripts on nodes do not notice a move",
        Hunt::Unit { program: "controller", filter: "nodes_dial_a_name_that_moves" };
    MovedDrainsUnsent: "a drain that a late command of another host has undone is never carried out again",
        "docs/semantics.md D10: a move sends each drain in force once more",
        Hunt::Unit { program: "core", filter: "a_move_sends_each_drain_in_force_again_once" };
    EmptyNoteIgnored: "a move is no move if a power cut left the note of the last host empty",
        "docs/semantics.md D10: a move sends each drain in force once more",
        Hunt::Unit { program: "controller", filter: "a_note_that_names_no_host_is_a_move" };
    AnyNoticeConfirms: "what the drain hook has done of earlier notices passes for a notice that it did not get yet",
        "4: released after a confirmed drain", Hunt::Simulator;
    ResourcesStay: "a job drops its last rank by name, and keeps what is no rank for ever",
        "8: what is held can be released", Hunt::Simulator;
    EpilogOfAPart:
        "an operator's epilog over a part of a job comes to its verdict, and the other ranks are released without one",
        "docs/semantics.md H8: wherever a prolog was started the epilog runs", Hunt::Simulator;
    StuckForgotten:
        "a controller that comes up again drains a node once more for a stuck script, though an operator has lifted \
         that",
        "5: what was shown survives a crash", Hunt::Simulator;
    StampIgnored: "a copy that `controller backup` made passes for the store itself",
        "docs/semantics.md B1: a store that is behind begins a generation",
        Hunt::Unit { program: "core", filter: "a_store_is_judged_when_it_is_loaded" };
    AnchorIgnored: "a store that is older than its directory passes for the newest",
        "docs/semantics.md B1: a store that is behind begins a generation",
        Hunt::Unit { program: "core", filter: "a_store_is_judged_when_it_is_loaded" };
    MarksIgnored: "nodes that have accepted a commit which the store never made are let in as any other",
        "docs/semantics.md B1: a store that is behind begins a generation", Hunt::Simulator;
    LoneMarkBelieved: "one host alone makes the store begin a generation",
        "docs/security.md: a stolen key of a node stops no controller",
        Hunt::Unit { program: "core", filter: "two_nodes_foreign_commits_are_evidence_and_one_is_refused" };
    UnmarkedBootIsLoss: "a boot that was announced is a loss where the node lost its mark of it",
        "3: the outcome is what the unit did",
        Hunt::Unit { program: "core", filter: "a_node_without_its_mark_ends_as_announced" };
    EpochOfTheCopy: "a restored store begins the epoch that its lost epoch had",
        "docs/semantics.md B1: a store that is behind begins a generation",
        Hunt::Unit { program: "core", filter: "a_store_is_judged_when_it_is_loaded" };
    RestoredContinues: "a process whose memory was restored gives the numbers of its lost commits again",
        "docs/semantics.md B1: a store that is behind begins a generation",
        Hunt::Unit { program: "core", filter: "a_restored_process_continues_in_an_epoch_of_its_own" };
    UnknownUndrained: "a host with an unknown task that is not taken up is not drained",
        "docs/semantics.md N2: no other job begins beside an unknown task",
        Hunt::Unit { program: "core", filter: "an_unknown_task_blocks_its_host_until_adopted_or_undrained" };
    UnknownDrainStays: "the drain for an unknown task stays when the task was adopted",
        "docs/semantics.md N2: the drain ends with the unknown task",
        Hunt::Unit { program: "core", filter: "an_unknown_task_blocks_its_host_until_adopted_or_undrained" };
    DrainsUndoubted: "drains of the copy count as in force",
        "docs/semantics.md B8: drains of a copy wait for the list or the grace",
        Hunt::Unit { program: "core", filter: "drains_of_a_copy_wait_for_the_list_or_the_grace" };
    ListedDrainsIgnored: "a drain of perilog's that the resource manager lists is unknown to a restored store",
        "docs/semantics.md B8: listed drains are the store's again",
        Hunt::Unit { program: "core", filter: "drains_of_a_copy_wait_for_the_list_or_the_grace" };
    AnyInstanceLists: "what another instance of the resource manager does not list is over",
        "docs/semantics.md B4: what an edge does not list is over",
        Hunt::Unit { program: "core", filter: "a_list_of_another_instance_says_nothing" };
    RecoveredUnbegun: "a taken-up attempt is cleaned up on those ranks alone where the store saw a prolog begin",
        "docs/semantics.md B3: in doubt every rank is cleaned up",
        Hunt::Unit { program: "core", filter: "a_taken_up_attempt_is_cleaned_up_on_all_its_ranks" };
    CleanedBesideRefused: "an unlisted attempt is cleaned up on a host that the list gives to a refused attempt",
        "docs/semantics.md B7: on a drained host that no other attempt has",
        Hunt::Unit { program: "core", filter: "a_refused_attempts_host_is_cleaned_up_once_unlisted" };
    GateOpen: "pending work of the store goes on at a start before its nodes could say that it is behind",
        "docs/semantics.md B2: a start waits for its nodes",
        Hunt::Unit { program: "core", filter: "debts_wait_after_a_start_for_known_nodes_or_a_while" };
    NothingAbandoned: "a generation abandons nothing",
        "docs/semantics.md B3: no pending work begins, is sent or released before a request for it",
        Hunt::Simulator;
    SetupAfterEpilog: "a setup action begins on a rank whose epilog has ended",
        "docs/semantics.md H9: the after-actions come last",
        Hunt::Unit { program: "core", filter: "a_setup_action_does_not_follow_the_epilog_of_a_lost_epoch" };
    AdoptedBesideSetup: "a setup action that waits begins after the adopted epilog of a lost epoch",
        "docs/semantics.md B4: an adopted after-action withdraws the setup actions that wait on its rank",
        Hunt::Unit { program: "core", filter: "a_setup_action_does_not_follow_the_epilog_of_a_lost_epoch" };
    ReleasedBeforeDrain: "a rank is released in the batch that drains its host anew",
        "docs/semantics.md R3: a rank whose host is at fault is released only when the drain is in force",
        Hunt::Unit { program: "core", filter: "a_release_waits_for_the_drain_of_the_same_batch" };
    AddedRepeats: "a run without nodes makes the next attempt of an added job on the nodes of the one before",
        "docs/semantics.md A5: the resource manager chooses them anew",
        Hunt::Unit { program: "core", filter: "a_requeue_has_the_terms_of_the_attempt_before" };
    ListOfAnyInstance: "a list of another instance of the resource manager lets an unlisted attempt be cleaned up",
        "docs/semantics.md B7: on a drained host that no other attempt has",
        Hunt::Unit { program: "core", filter: "a_clean_up_waits_for_the_list_of_its_own_instance" };
    CleanedBeforeList: "an unlisted attempt is cleaned up before its edge has listed its jobs in this life",
        "docs/semantics.md B7: on a drained host that no other attempt has",
        Hunt::Unit { program: "core", filter: "a_refused_attempts_host_is_not_cleaned_up_after_a_restart" };
    ListedAgainWaits: "what waited for an unlisted attempt waits on when the resource manager lists it again",
        "docs/semantics.md B7: it begins once the list names it",
        Hunt::Unit { program: "core", filter: "an_attempt_that_is_listed_again_is_cleaned_up" };
    SuspendedReleased: "a rank of an abandoned attempt is released",
        "docs/semantics.md B3: no pending work begins, is sent or released before a request for it",
        Hunt::Simulator;
    SuspendedNoticed: "the release hook is notified of an abandoned attempt",
        "docs/semantics.md B3: no pending work begins, is sent or released before a request for it",
        Hunt::Unit { program: "core", filter: "a_pending_release_is_sent_when_its_job_is_finished_again" };
    SuspendedJudged: "an action of an abandoned attempt gets its verdict",
        "docs/semantics.md B3: no pending work begins, is sent or released before a request for it",
        Hunt::Simulator;
    PrunedInGrace: "in a grace attempts are pruned",
        "docs/semantics.md B3: a grace prunes nothing",
        Hunt::Unit { program: "core", filter: "a_grace_prunes_nothing" };
    StaleSetupBegins: "a setup task of the copy begins although its job had begun or ended",
        "docs/semantics.md B4: no setup task begins for a job that had begun",
        Hunt::Unit { program: "core", filter: "a_setup_action_goes_on_for_who_asks_and_not_for_a_job_that_had_begun" };
    UnclaimedBegins: "an epilog that its node holds unclaimed begins on a host that another job may have",
        "docs/semantics.md B5: no clean-up begins on a host that another job may have",
        Hunt::Unit { program: "core", filter: "an_unbegun_clean_up_does_not_begin_beside_another_job" };
    StartCounts: "a drain for an overdue start counts as that for the timeout of its script",
        "docs/semantics.md D1: exactly the hosts at fault are drained",
        Hunt::Unit { program: "core", filter: "a_timeout_after_an_overdue_start_drains_again" };
    UnknownOverlooked: "tasks that the store does not know are ignored",
        "docs/semantics.md N2: no other job begins beside an unknown task",
        Hunt::Simulator;
    UnknownIgnored: "another job's setup action begins beside an unknown task",
        "docs/semantics.md N2: no other job begins beside an unknown task",
        Hunt::Simulator;
    UnknownAcknowledged: "the end of an unknown task is acknowledged unasked",
        "docs/semantics.md N2: an unknown task is never acknowledged unasked",
        Hunt::Simulator;
    UnlistedCleaned: "what cleans up begins on hosts that the resource manager gave on",
        "4: no clean-up beside another job",
        Hunt::Unit { program: "core", filter: "an_attempt_that_an_edge_does_not_list_is_over_in_silence" };
    CleanedBesideOthers: "what cleans up begins beside another job that has the host",
        "4: no clean-up beside another job",
        Hunt::Unit { program: "core", filter: "nothing_is_cleaned_up_beside_another_job" };
    UnlistedRunIgnored: "an unlisted attempt that already cleans up on a host keeps no other from it",
        "docs/semantics.md B7: on a drained host that no other attempt has",
        Hunt::Unit { program: "core", filter: "a_clean_up_waits_for_one_that_runs" };
    UnlistedNoticed: "the resource manager is notified that hosts are free which it gave on long ago",
        "4: no rank is released twice",
        Hunt::Unit { program: "core", filter: "an_attempt_that_an_edge_does_not_list_is_over_in_silence" };
    MissingContinues: "an attempt that its edge has no more goes on",
        "docs/semantics.md B4: what an edge does not list is over",
        Hunt::Unit { program: "core", filter: "an_attempt_that_an_edge_does_not_list_is_over_in_silence" };
    ReleaseForgotten: "a resource manager that forgot a release is not notified again",
        "5: at least once",
        Hunt::Unit { program: "core", filter: "a_resource_manager_that_forgot_a_release_gets_it_again" };
    DoubtedUndrainNotified: "the drain hook gets an undrain of the copy, though the node may have failed again since",
        "docs/semantics.md B8: an undrain of the copy is dropped",
        Hunt::Unit { program: "core", filter: "an_undrain_of_the_copy_is_dropped" };
    BusTakesTerm: "a TERM that went into a bus that was lost is not sent again",
        "a cancel reaches the runner",
        Hunt::Unit { program: "core", filter: "a_cancel_that_the_bus_may_have_lost_is_sent_again" };
    OfflineUnfenced: "not accepted in time: lost, and its node is not notified",
        "2: what has its outcome begins nowhere afterwards",
        Hunt::Unit { program: "core", filter: "not_accepted_within_start_grace_is_lost_and_fenced" };
    CancelTakesEpilog: "a cancel that names no action takes the epilog away",
        "docs/semantics.md H13: wherever a prolog was started the epilog runs",
        Hunt::Unit { program: "core", filter: "a_cancel_that_names_no_action_leaves_what_cleans_up" };
    RequeueTakesBack: "a requeue without nodes begins on what was released",
        "4: no script on a rank that was released",
        Hunt::Unit { program: "core", filter: "a_bare_run_repeats_only_the_nodes_that_it_holds" };
    BeginsWhereDropped: "what waits begins on ranks that the job has dropped meanwhile",
        "docs/semantics.md H7: nothing that prepares ranks begins behind the job",
        Hunt::Unit { program: "core", filter: "what_waits_on_shed_ranks_is_withdrawn_and_does_not_count" };
    SequencesReused: "a restored store uses sequences again",
        "5: at least once", Hunt::Unit { program: "core", filter: "a_restored_store_uses_no_sequence_again" };
    LostMayLive:
        "a node comes with a script that had been given up as lost, and whose drain was lifted meanwhile, and nothing \
         is said of it",
        "4: no rank is released under a script that runs",
        Hunt::Unit { program: "core", filter: "what_was_given_up_as_lost_and_is_alive_drains_its_node_again" };
    StartOverUnload: "a task is started while a unit that had its name before is still to be stopped",
        "1: what begins ends by itself, or by its limit",
        Hunt::Unit { program: "core", filter: "a_unit_that_found_no_task_goes_before_the_next_start" };
    TombstoneForgetsBoot: "a tombstone has nothing of the boot that is to be the task's end",
        "3: unknown is never success",
        Hunt::Unit { program: "core", filter: "a_tombstone_reports_the_boot_and_then_that_it_came" };
    TombstoneStays: "the controller forgets an attempt, and keeps the tombstone of its task that a node has reported",
        "7: what a finished job takes is bounded",
        Hunt::Unit { program: "core", filter: "a_tombstone_goes_with_its_attempt" };
    EffectsBeforeCommit: "effects leave before their batch is committed (the daemon's writer)",
        "5: what was acknowledged survives a crash",
        Hunt::Unit { program: "controller", filter: "a_failed_commit_lets_nothing_leave" };
    NoteStays: "an epilog that ended without its hook keeps its note, and runs again after the next boot",
        "3: no script begins twice in an attempt", Hunt::Nodes { module: "slurm_epilog_outlives_its_hook" };
    DamageUnchecked: "a start after a kill or an error of the store goes on with a damaged store",
        "docs/decisions/0024: a damaged store is rebuilt from its rows, or refused",
        Hunt::Unit { program: "controller", filter: "a_store_whose_rows_can_all_be_read_is_rebuilt_and_may_be_behind" };
    SearchSkipped: "the store of a controller that was killed is never searched for damage",
        "docs/decisions/0024: damage is found after the start",
        Hunt::Unit { program: "controller", filter: "a_killed_controllers_store_is_searched_beside_the_next_one" };
    SearchForgotten: "a clean end removes the log before the search for damage is over",
        "docs/decisions/0024: damage is found after the start",
        Hunt::Unit { program: "controller", filter: "a_clean_end_before_the_search_is_over_leaves_the_log" };
    LogLeftToReaders: "a clean end leaves the log where a reader has the store open",
        "docs/decisions/0024: after a clean end no start reads the whole store",
        Hunt::Unit { program: "controller", filter: "a_clean_end_beside_a_reader_is_known_at_the_next_start" };
    CutTrusted: "a store that a power cut may have damaged is read before it is searched",
        "docs/decisions/0024: a damaged store is rebuilt from its rows, or refused",
        Hunt::Unit { program: "controller", filter: "after_a_cut_or_an_error_a_store_is_searched_first" };
    LessKeptLater: "a shorter retention of a reload is in force an hour later",
        "docs/semantics.md: an attempt is forgotten past retention and keep-attempts",
        Hunt::Unit { program: "core", filter: "a_shorter_retention_is_in_force_at_once" };
    StoreCommitsEach: "each record is a transaction of its own",
        "5: a batch is there whole or not at all",
        Hunt::Unit { program: "controller", filter: "a_failed_batch_leaves_nothing_behind" };
    WriteInPlace: "a file of the spool is written over in place",
        "5: a reader finds it whole or not at all",
        Hunt::Unit { program: "agent", filter: "a_reader_gets_a_whole_file" };
    DirectoryRemovedFirst: "a burial removes the directory before the tombstone is written",
        "1: one of the two is always there",
        Hunt::Unit { program: "agent", filter: "a_failed_tombstone_keeps_the_directory" };
    AgentOverwritesClaim: "the agent's claim takes the place of a runner's",
        "1: the first claim stands", Hunt::Unit { program: "agent", filter: "the_first_claim_wins" };
    OutcomeAlone: "an end is written into a directory whose intent was removed, and belongs to no task",
        "1: a task is claimed once",
        Hunt::Unit { program: "agent", filter: "writing_an_outcome_restores_a_removed_intent" };
    RunnerIgnoresClaim: "a runner finds the claim taken and goes on",
        "1: a task is claimed once", Hunt::Unit { program: "agent: runner", filter: "a_claim_that_is_taken" };
    RunnerContinuesUnrecorded: "a step that cannot be recorded is run",
        "1: a script is in the books before it runs",
        Hunt::Unit { program: "agent: runner", filter: "a_full_file_system_stops" };
    AnybodyNotifies: "NotifyAccess=all: whatever a script leaves behind speaks for the unit",
        "3: unknown is never success", Hunt::Nodes { module: "forged_mainpid_changes_nothing" };
    NoTurnToGreet: "a peer that has shown a certificate takes the place of another address at once",
        "docs/security.md: a stolen key keeps no node from greeting",
        Hunt::Unit { program: "controller", filter: "a_new_address_waits_for_a_turn_of_each_other_address" };
    FirstRefusalDoubles: "an agent that dials while its controller restarts or moves waits for ever longer windows",
        "docs/performance.md: all agents are back within a window",
        Hunt::Unit { program: "agent", filter: "dials_that_fail_during_a_restart_or_a_takeover_keep_the_window" };
    RateIgnored: "the redial window does not follow the measured rate of the controller",
        "docs/performance.md: all agents are back within a window",
        Hunt::Unit { program: "core", filter: "the_redial_window_follows_the_measured_rate" };
    DescriptorsUncounted: "agents take the last descriptor of the controller",
        "docs/administration.md: agents beyond the limit wait, commands are answered",
        Hunt::Unit { program: "controller: daemon", filter: "agents_beyond_the_limit_of_descriptors_wait" };
    HandedOverOutdated: "an edge gets the state of a job after an earlier commit than the newest, and never the newest",
        "docs/api.md: the feed shows each attempt again when it changes",
        Hunt::Unit { program: "controller", filter: "what_is_handed_over_is_the_state_after_the_newest_change" };
    HandedOverFromMemory: "an edge is shown no attempt of a job that is in the store alone",
        "docs/api.md: the feed shows each attempt again when it changes",
        Hunt::Unit { program: "core", filter: "a_job_in_the_store_alone_is_not_handed_over" };
    NamesUnchecked: "a certificate speaks for any host",
        "7: a peer speaks for its own host", Hunt::Nodes { module: "bad_peers_are_refused" };
    ProcessesUnseen: "the unit's cgroup is read as empty",
        "4: nothing is over while a process of it runs", Hunt::Nodes { module: "runner_killed_in_mid_script" };
    CaseIgnored: "a node whose name changes case is a second node",
        "a host has one name", Hunt::Unit { program: "core", filter: "a_node_has_one_spelling" };
    EachPageIsLast: "the first page of an edge's list counts as the whole list",
        "an attempt that its resource manager has is not closed",
        Hunt::Unit { program: "core", filter: "a_list_in_pages_closes_what_no_page_has" };
    HalfListCounts: "a clean-up begins by a list whose last page has not come",
        "no clean-up begins beside another job",
        Hunt::Unit { program: "core", filter: "no_clean_up_begins_on_half_a_list" };
    GraceEndsHalfListed: "a grace ends between two pages of an edge's list",
        "what a restored store lacks is known before it is acted on",
        Hunt::Unit { program: "core", filter: "no_grace_ends_on_half_a_list" };
    MarksGo: "a tombstone that goes takes with it that its host had accepted its commit",
        "what was accepted last is not \
         forgotten", Hunt::Unit { program: "core", filter: "what_goes_leaves_its_commit" };
    SetupAfterCleanup: "an action prepares an attempt on a host on which that was cleaned up",
        "nothing of an attempt begins after its after-actions",
        Hunt::Unit { program: "core", filter: "nothing_prepares_an_attempt_after_it_was_cleaned_up" };
    ContinuingUnseen: "a script that goes on after its task is over is not shown",
        "8: what runs is visible", Hunt::Unit { program: "core", filter: "a_job_goes_on_without_a_straggler" };
    LogNotRenewed: "a start appends to a log that a failed fsync left in the page cache alone",
        "5: what was acknowledged survives a crash",
        Hunt::Unit { program: "disk: failed_syncs", filter: "acknowledged_batches_survive" };
    CheckpointErrorsIgnored: "the store goes on after a checkpoint that failed",
        "5: what was acknowledged survives a crash",
        Hunt::Unit { program: "disk: failed_syncs", filter: "no_checkpoint_begins_behind" };
    HostNotedInPlace: "the file that names the store's host is written in place, and nothing syncs it",
        "5: what was acknowledged or shown survives a power cut",
        Hunt::Unit { program: "disk: power", filter: "acknowledged_records_survive" };
    TokensNotSynced: "a one-time token is handed out before its name is on the disk",
        "5: what was acknowledged or shown survives a power cut",
        Hunt::Unit { program: "disk: power", filter: "acknowledged_records_survive" };
    RemovalLeftHalf: "a directory of a task whose removal failed keeps the agent from every later removal of the task",
        "8: what waits ends without a restart",
        Hunt::Unit { program: "agent", filter: "a_removal_that_failed_is_completed_by_the_next" };
    FollowsWithoutEnvironment: "an after-action that no request began has no environment",
        "an epilog of a lost attempt has the variables of its prolog",
        Hunt::Unit { program: "core", filter: "an_epilog_that_nobody_asked_for_has_the_variables_of_its_prolog" };
    RivalIsEvidence: "a node that has accepted another controller's epoch is welcomed without a take-over",
        "docs/semantics.md B1: a store that is behind begins a generation",
        Hunt::Unit { program: "core", filter: "a_rival_is_not_welcomed_before_a_take_over" };
    GivenUpBegins: "an after-action begins on a host that was given up",
        "4: no clean-up beside another job", Hunt::Unit { program: "core", filter: "generation" };
    MissingUndrained: "a host whose clean-up may be missing is not drained",
        "docs/semantics.md B6: a host whose clean-up may be missing is drained",
        Hunt::Unit { program: "core", filter: "a_host_whose_clean_up_may_be_missing_is_drained_after_the_grace" };
    JudgedBeforeGrace: "an undrain in a grace makes a node forget the tombstones of attempts that were not asked for \
                        yet",
        "docs/semantics.md B3: a request for an attempt finds what its nodes know of it",
        Hunt::Unit { program: "core", filter: "an_undrain_in_a_grace_forgets_no_tombstone" };
    LiftedWithoutTraces: "a drain for a missing clean-up is lifted when the node has forgotten the tombstones",
        "docs/semantics.md B6: a host whose clean-up may be missing is drained",
        Hunt::Unit { program: "core", filter: "a_drain_for_a_missing_clean_up_outlives_its_traces" };
    UncleanedIgnored: "a setup action begins on a host before its drain for a missing clean-up is in force",
        "docs/semantics.md B6: a host whose clean-up may be missing is drained",
        Hunt::Unit { program: "core", filter: "a_new_job_waits_for_the_drain_for_a_missing_clean_up" };
    UnknownAttemptIgnored: "a request without a number means an attempt that a node shows to be superseded",
        "docs/semantics.md B4: a request without a number means the newest attempt",
        Hunt::Unit { program: "core", filter: "a_request_without_a_number_means_the_newest_that_a_node_knows" };
    UnknownSetupStays: "the unknown prolog of an attempt that was taken up is not adopted",
        "docs/semantics.md B4: who takes up an attempt adopts its tasks",
        Hunt::Unit { program: "core", filter: "the_unknown_setup_task_of_a_taken_up_job_is_adopted" };
    AbandonedNoticed: "a notice of an abandoned attempt keeps all later notices back",
        "docs/semantics.md B3: no notice of an abandoned attempt is sent",
        Hunt::Unit { program: "core", filter: "an_abandoned_attempt_keeps_no_notice_back" };
    AddedAnew: "a job that is added after the grace does not take up what its nodes say of it",
        "docs/semantics.md B6: the drain for a missing clean-up is lifted when the attempt is asked for",
        Hunt::Unit { program: "core", filter: "a_job_that_is_added_after_the_grace_takes_up_its_tasks" };
    UnlistedRankKept: "ranks that an edge's list lacks stay the attempt's",
        "4: no clean-up beside another job",
        Hunt::Unit { program: "core", filter: "a_list_gives_up_what_it_lacks_and_sends_again_what_it_names" };
    SecretsTraced: "a trace has the values of environment variables, and the output that a client asked for",
        "a trace has no secrets", Hunt::Unit { program: "core", filter: "a_trace_has_no_secrets" };
    FetchedUntraced: "a trace lacks the rows of ended jobs that the machine got from the store",
        "a replay makes what the trace has",
        Hunt::Unit { program: "controller: daemon", filter: "a_trace_of_the_daemon_is_played_again" };
}

/// The defect that is on in this process; at most one, and it stays on until the process ends.
static ON: OnceLock<Defect> = OnceLock::new();

pub fn is_on(defect: Defect) -> bool {
    ON.get() == Some(&defect)
}

/// Switches on a defect by name (`ack-before-commit`) for the rest of the process. Does nothing if the same defect is
/// on already.
///
/// # Errors
///
/// No defect has this name, or another defect is on.
pub fn switch_on(name: &str) -> Result<(), String> {
    let row = TABLE.iter().find(|row| row.name() == name).ok_or_else(|| format!("there is no defect {name}"))?;
    let on = ON.get_or_init(|| row.defect);
    if *on == row.defect { Ok(()) } else { Err(format!("another defect is on: {on:?}")) }
}

impl Row {
    /// Returns the defect's name in kebab case: `ack-before-commit` for `AckBeforeCommit`.
    pub fn name(&self) -> String {
        let mut name = String::new();
        for c in self.ident.chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }
}
