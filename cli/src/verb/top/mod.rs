//! `perilog top`: unfinished work on a terminal, kept current: nodes, actions, and stragglers.
//!
//! The verb asks the controller periodically and draws the answers; `screen` draws, and does not know their source. If
//! the controller goes away, a message reports that and the last picture stays. The verb restores the terminal at every
//! end of the program.

mod screen;

use std::io::{self, IsTerminal};
use std::time::Duration;

use perilog_core::Span;
use perilog_core::controller::view::{DrainView, NodeView, PsRow, StatusView};
use perilog_host::clock;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde::Deserialize;
use serde_json::json;

use crate::endpoint::{Answer, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat};
use crate::values;

/// Unfinished work, kept current: nodes, actions, stragglers
///
/// Stragglers are unfinished tasks, oldest first, with their scripts. Keys: q ends, space refreshes at once, up and
/// down (or j and k) scroll, PgUp and PgDn scroll by pages. For a file or a program use ps, nodes and status.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often to ask the controller.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::span)]
    every: Span,
}

/// Minimum time between two refreshes by `--every`, so that the controller has time for other work.
const LEAST: Duration = Duration::from_millis(200);
/// Number of refreshes of the screen for each request for all nodes: on a large cluster the list is long, and changes
/// slowly.
const NODES_EVERY: u32 = 5;

/// The data that one picture of the screen shows.
#[derive(Debug, Default)]
struct Picture {
    status: Option<StatusView>,
    rows: Vec<PsRow>,
    nodes: Vec<NodeView>,
    drains: Vec<DrainView>,
    /// Time at which all replies of the last successful refresh had come, in milliseconds since 1970.
    asked_ms: u64,
    /// The error of the last refresh, as text: the screen then still shows older data. `None`: the last refresh
    /// succeeded.
    trouble: Option<String>,
    /// Index of the first straggler on the screen.
    scrolled: usize,
}

#[derive(Deserialize)]
struct Status {
    status: StatusView,
}

#[derive(Deserialize)]
struct Ps {
    rows: Vec<PsRow>,
}

#[derive(Deserialize)]
struct Nodes {
    nodes: Vec<NodeView>,
}

#[derive(Deserialize)]
struct Drains {
    drains: Vec<DrainView>,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, out: &Out) -> Result<Exit, Fault> {
    if out.format != OutputFormat::Table || !io::stdout().is_terminal() {
        return Err(Fault::Usage(
            "perilog top needs a terminal; elsewhere use perilog ps, perilog nodes or perilog status (all with --json)"
                .to_owned(),
        ));
    }
    let every = args.every.as_millis().map_or(LEAST, Duration::from_millis).max(LEAST);
    // The verb reports an error of the first request as any other verb does.
    let mut picture = Picture::default();
    picture.ask(endpoint, 0)?;
    let mut terminal = ratatui::try_init().map_err(Fault::Output)?;
    let ended = watch(&mut terminal, picture, endpoint, every);
    ratatui::restore();
    ended
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    mut picture: Picture,
    endpoint: &Endpoint,
    every: Duration,
) -> Result<Exit, Fault> {
    let mut turn = 0;
    loop {
        let next_ms = clock::mono_ms().saturating_add(u64::try_from(every.as_millis()).unwrap_or(u64::MAX));
        loop {
            terminal.draw(|frame| screen::draw(frame, &mut picture)).map_err(Fault::Output)?;
            let left = clock::until(next_ms);
            if left.is_zero() || !event::poll(left).map_err(Fault::Output)? {
                break;
            }
            match event::read().map_err(Fault::Output)? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(Exit::Ok),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(Exit::Ok),
                    KeyCode::Char(' ') => break,
                    code => picture.scroll(code, terminal.size().map_err(Fault::Output)?.height.into()),
                },
                _ => {}
            }
        }
        turn += 1;
        picture.trouble = picture.ask(endpoint, turn).err().map(|fault| fault.to_string());
    }
}

impl Picture {
    fn ask(&mut self, endpoint: &Endpoint, turn: u32) -> Result<(), Fault> {
        let client = &mut endpoint.open()?;
        let nothing = json!({});
        let status: Answer<Status> = endpoint.ask_on(client, "Status", &nothing)?;
        let rows: Answer<Ps> = endpoint.ask_all_on(client, "Ps", &nothing, &["/rows"])?;
        let drains: Answer<Drains> = endpoint.ask_all_on(client, "Drains", &nothing, &["/drains"])?;
        if turn.is_multiple_of(NODES_EVERY) {
            let nodes: Answer<Nodes> = endpoint.ask_all_on(client, "Nodes", &nothing, &["/nodes"])?;
            self.nodes = nodes.body.nodes;
        }
        (self.status, self.rows, self.drains) = (Some(status.body.status), rows.body.rows, drains.body.drains);
        self.asked_ms = clock::wall_ms();
        self.rows.sort_by_key(|row| std::cmp::Reverse(row.age_ms));
        Ok(())
    }

    fn scroll(&mut self, key: KeyCode, page: usize) {
        let last = self.rows.len().saturating_sub(1);
        self.scrolled = match key {
            KeyCode::Down | KeyCode::Char('j') => self.scrolled + 1,
            KeyCode::Up | KeyCode::Char('k') => self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled + page / 2,
            KeyCode::PageUp => self.scrolled.saturating_sub(page / 2),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => self.scrolled,
        }
        .min(last);
    }
}
