//! Usage of `cargo xtask`, and the error of a wrong command line, whose status differs from that of a failure.

use std::error::Error;
use std::fmt;

/// The text of `cargo xtask help`.
pub(crate) const HELP: &str = "\
usage: cargo xtask COMMAND

  demo    boot a controller and four real systemd nodes on this machine, run a prolog and an epilog on
          them, kill daemons in the middle, and compare what the scripts wrote with what the controller knows
  demo tolerance
          one node of four fails a check: what a job may be forgiven, and what never; how it goes on without
  demo release
          an epilog hangs on one node of four: the others are released, each with its part of R, over kills
          of the controller; the one is held, drained, and resolved manually
  test    everything that passes or fails: format, lints, tidy, pure tests, packages, tests on real nodes
  test packages
          of that only packages: makes .deb and .rpm of what it has built, and installs, upgrades, removes and
          purges them on real nodes
  test quick
          of that format, tidy, pure tests, and one fault on four real nodes: minutes
  test nodes --release bullseye|bookworm|trixie|sid [NAME...]
          of that the tests on real nodes, or those with these names, on nodes of that release of Debian, with the
          product installed from its packages by that release's apt; `tour` names the tests of the tour
  test nodes --root DIR [NAME...]
          the same on nodes of the distribution below DIR, which has apt; DIR is not changed
  test tour
          some minutes of tests on the newest and on the oldest of these releases
  test mixed
          agents of all these releases under one controller
  test NAME...
          of that the tests on real nodes whose path (module::test) contains NAME
  ci      the same: CI runs nothing of its own
  sim     histories of a simulated cluster: --for 10m searches fresh ones, --seed S shows one; what fails is
          shrunk and kept under sim/regressions
  fuzz [TARGET...] [--for 10s] [--minimise]
          searches for inputs that break a parser, each target in turn; what breaks one is kept under
          fuzz/regressions; with --minimise the corpora become the fewest inputs that reach as much
  soak [--for 10m] [--seed S]
          jobs on four nodes, and a fault every second: daemons, runners, buses, networks, clocks, hosts. Ledgers are
          compared; pieces with the same seed add up
  soak flux [--sdexec] [--for 10m] [--seed S]
          jobs under a real Flux with the edge on four nodes, and a fault every few seconds: what the scripts' ledgers
          say must hold (docs/testing.md); with --sdexec Flux runs the jobs as units of systemd
  soak failover [--for 30m] [--seed S]
          jobs under a controller with two hosts and the real Pacemaker, and a fault of a host every few seconds; says
          how long each kept the next Start waiting
  mutate  can they fail? switches on one deliberate defect after the other, and names the seed or the test that
          turned red
  tidy    the house rules that no compiler knows: who may know whom, what the core must not do, file sizes,
          the field's words, what releases have of the interfaces
  freeze  writes schema/frozen/VERSION: the interfaces of this tree, with which tidy compares later ones
          (CONTRIBUTING.md)
  bench [unit|hook|flux|slurm|takeover|idle|fan|feed|history|core] [--OPTION NUMBER...]
          what a task, an idle agent, ten thousand agents and a long history cost, beside the bare parts
          (docs/performance.md)
  pages DIR
          manual pages and shell completions, as packages install them: DIR/man, DIR/completions
  dist [--portable] [deb] [rpm]
          packages for sites in target/dist, built in release and checked by lintian and rpmlint (docs/building.md);
          with --portable it is an error if they would be for this machine's glibc alone, or without a static runner
  release [--rehearse]
          portable packages of the commit at HEAD, built twice and the same byte for byte, with sums and notes in
          target/release-VERSION, and the tag vVERSION; with --rehearse all but the tag (docs/building.md)
  help    this text

Nodes need root. As another user, run the command as yourself: it builds as you and asks sudo(8) for the rest.
What the system lacks is named and installed through apt-get or dnf.
";

#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl Usage {
    pub(crate) const STATUS: u8 = 2;
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}
