//! Random histories of a small Flux that runs a job as units of systemd. Brokers die and come back, the edge is killed,
//! the edge sees the groups of brokers late, and units end when they like. The real plan must begin no epilog while a
//! unit of the job lives, except on a node that was drained after the patience; and it must begin one in the end.

use std::collections::BTreeSet;

use super::super::tasks::Tasks;
use super::*;

const RANKS: u32 = 3;
const HISTORIES: u64 = 500;
const STEPS: u32 = 60;
/// World time of one step, in milliseconds.
const STEP_MS: u64 = 1_500;

/// Random numbers by splitmix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % u64::from(bound)) as u32
    }
}

#[derive(Debug, Clone, Copy)]
struct Node {
    /// Whether the broker has joined.
    joined: bool,
    /// Whether `sdmon` has listed the units since the broker's start. Until then it knows none.
    listed: bool,
    /// Whether `sdmon` has joined its group: it saw no unit once since the broker's start.
    up: bool,
    /// Whether a unit of the job lives.
    is_alive: bool,
}

/// The world: Flux, its nodes, and the edge's view of them.
struct World {
    nodes: Vec<Node>,
    log: Vec<(f64, &'static str, Value)>,
    /// Ranks of which Flux waits for the end of the job's shell.
    shells: BTreeSet<u32>,
    is_released: bool,
    is_cancelled: bool,
    starttime: f64,
    now_ms: u64,
    view: View,
    has_dropped_hold: bool,
    story: Vec<String>,
}

impl World {
    fn new() -> Self {
        let node = Node { joined: true, listed: true, up: true, is_alive: true };
        let mut world = Self {
            nodes: vec![node; RANKS as usize],
            log: Vec::new(),
            shells: (0..RANKS).collect(),
            is_released: false,
            is_cancelled: false,
            starttime: 900.0,
            now_ms: 1_003_000,
            view: view(),
            has_dropped_hold: false,
            story: Vec::new(),
        };
        world.post("submit", json!({"userid": 1000}));
        world.log.push((ALLOC, "alloc", json!({})));
        world.post("prolog-start", ours());
        world.post("prolog-finish", json!({"description": "perilog", "status": 0}));
        world.post("start", json!({}));
        world.attach();
        world
    }

    fn post(&mut self, name: &'static str, context: Value) {
        let at = self.now_ms as f64 / 1000.0;
        self.log.push((at, name, context.clone()));
        if let Some(job) = self.view.jobs.get_mut(&ID) {
            job.take(&event(at, name, &context));
        }
    }

    /// Gives the edge a new session with Flux: it reads all that is durable anew.
    fn attach(&mut self) {
        let drains = std::mem::take(&mut self.view.flux_drains);
        let mut view = view();
        (view.starttime, view.flux_drains) = (self.starttime, drains);
        let r =
            json!({"version": 1, "execution": {"R_lite": [{"rank": "0-2", "children": {}}], "nodelist": ["n[0-2]"]}});
        let mut job = Job::new(ID);
        job.before = self.starttime > 1_003.5;
        self.log.iter().for_each(|(at, name, context)| job.take(&event(*at, name, context)));
        job.set_r(&r);
        view.jobs.insert(ID, job);
        knows(&mut view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
        self.view = view;
        self.observe();
    }

    /// Lets the edge see the groups of brokers as they are.
    fn observe(&mut self) {
        let of = |has: fn(&Node) -> bool| (0..RANKS).filter(|rank| has(&self.nodes[*rank as usize])).collect();
        (self.view.online, self.view.up) = (of(|node| node.joined), of(|node| node.up));
    }

    fn fatal(&mut self, kind: &str) {
        if !self.is_cancelled {
            self.is_cancelled = true;
            self.post("exception", json!({"type": kind, "severity": 0, "note": ""}));
            self.post("epilog-start", ours());
        }
    }

    fn shell_ends(&mut self, rank: u32) {
        if self.shells.remove(&rank) && self.shells.is_empty() && !self.is_released {
            if !self.is_cancelled {
                self.is_cancelled = true;
                self.post("epilog-start", ours());
            }
            self.is_released = true;
            self.post("release", json!({"ranks": "all", "final": true}));
        }
    }

    fn broker_dies(&mut self, rank: u32) {
        let is_alive = self.nodes[rank as usize].is_alive;
        self.nodes[rank as usize] = Node { joined: false, listed: false, up: false, is_alive };
    }

    fn strike(&mut self, what: u32, rank: u32) {
        self.story.push(format!("{what} {rank}"));
        match what {
            // The broker of a leaf.
            0 | 1 if rank > 0 => {
                self.broker_dies(rank);
                if self.shells.contains(&rank) {
                    self.fatal("exec");
                    self.shell_ends(rank);
                }
            }
            // Rank 0: the other brokers end with it; those that end in good order stop their units.
            2 => {
                (0..RANKS).for_each(|rank| self.broker_dies(rank));
                (1..=rank).for_each(|rank| self.nodes[rank as usize].is_alive = false);
                self.starttime = self.now_ms as f64 / 1000.0;
                if !self.is_cancelled {
                    self.fatal("exec");
                    self.shells = [0].into();
                    self.shell_ends(0);
                }
                // Flux never posts the release of a job in CLEANUP.
                self.shells.clear();
                self.attach();
            }
            3 => self.fatal("cancel"),
            4 => self.attach(),
            5 | 6 => self.observe(),
            7..=9 => self.comes_back(rank),
            // A unit ends.
            10 => {
                self.nodes[rank as usize].is_alive = false;
                if self.nodes[rank as usize].joined {
                    self.shell_ends(rank);
                }
            }
            _ => {}
        }
    }

    /// Brings a broker one stage further: it joins below rank 0, `sdmon` lists the units, and joins its group.
    fn comes_back(&mut self, rank: u32) {
        let first = self.nodes[0].joined;
        let node = &mut self.nodes[rank as usize];
        if !node.joined {
            node.joined = rank == 0 || first;
        } else if !node.listed {
            node.listed = true;
        }
        node.up |= node.listed && !node.is_alive;
    }

    fn answer(&self, rank: u32) -> Tasks {
        match self.nodes[rank as usize] {
            Node { joined: false, .. } => Tasks::Unknown("No route to host".to_owned()),
            Node { listed: true, is_alive: true, .. } => Tasks::Live("imp-shell-0-fX.service".to_owned()),
            _ => Tasks::Gone,
        }
    }

    /// Carries out what the plan says, until it waits.
    fn act(&mut self) -> Result<(), String> {
        for _ in 0..20 {
            let Some(action) = plan(&self.view, self.now_ms).actions.into_iter().next() else { return Ok(()) };
            match &action {
                Action::Inspect { ranks, .. } => {
                    let found: Vec<_> = ranks.iter().map(|rank| (rank, self.answer(rank))).collect();
                    let is_over = found.iter().all(|(_, tasks)| *tasks == Tasks::Gone);
                    self.view.jobs.get_mut(&ID).unwrap().found(found);
                    self.observe();
                    // The edge looks again later.
                    if !is_over || plan(&self.view, self.now_ms).actions.first() == Some(&action) {
                        return Ok(());
                    }
                }
                Action::Run { .. } | Action::DropHold { .. } => {
                    let is_alive = |rank: &u32| self.nodes[*rank as usize].is_alive;
                    let drained = |rank: u32| self.view.flux_drains.contains_key(&host(&format!("n{rank}")));
                    if let Some(rank) = (0..RANKS).filter(is_alive).find(|rank| !drained(*rank)) {
                        return Err(format!("{} while a unit lives on n{rank}", action_text(&action)));
                    }
                    self.has_dropped_hold |= matches!(action, Action::DropHold { .. });
                    self.view.did(&action);
                }
                _ => self.view.did(&action),
            }
        }
        Ok(())
    }

    /// Ends all faults: brokers come back, units end, the edge sees it.
    fn settle(&mut self) -> Result<(), String> {
        for rank in 0..RANKS {
            self.strike(10, rank);
        }
        self.fatal("cancel");
        for rank in (0..RANKS).cycle().take(3 * RANKS as usize) {
            self.comes_back(rank);
            self.shell_ends(rank);
        }
        self.observe();
        (0..4).try_for_each(|_| self.act())?;
        // If Flux never posts the release and rank 0 was restarted, the restart says enough.
        if self.has_dropped_hold { Ok(()) } else { Err("no epilog in the end".to_owned()) }
    }
}

fn play(seed: u64) -> Result<(), (String, Vec<String>)> {
    let (mut world, mut draws) = (World::new(), Draws(seed));
    for _ in 0..STEPS {
        let (what, rank) = (draws.below(14), draws.below(RANKS));
        // Rank 0 and the broker of a leaf die less often than brokers come back.
        if what > 2 || draws.below(3) == 0 {
            world.strike(what, rank);
        }
        world.now_ms += STEP_MS;
        world.act().map_err(|why| (why, world.story.clone()))?;
    }
    world.settle().map_err(|why| (why, world.story.clone()))
}

#[test]
fn no_history_has_an_epilog_beside_a_unit_of_its_job() {
    for seed in 0..HISTORIES {
        let played = play(seed);
        assert!(played.is_ok(), "seed {seed}: {played:?}");
    }
}
