//! The screen of `perilog top`: a head, nodes with trouble, open actions, stragglers.

use std::collections::BTreeMap;

use perilog_core::controller::view::{DrainView, PsRow};
use perilog_core::{HostList, IdSet};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};

use super::Picture;
use crate::verb::drain;
use crate::verb::status::cluster;
use crate::{text, when};

/// Maximum number of lines of the table of actions. The table of stragglers gets the lines that the other tables leave.
const ACTIONS: usize = 8;
/// Maximum number of lines of the table of nodes with trouble.
const TROUBLES: usize = 6;

/// The screen's width divided by this number is the greatest width of every column but the last; `NARROWEST` characters
/// if that is more.
const WIDEST_PART: usize = 6;
const NARROWEST: usize = 10;

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const CARE: Style = Style::new().fg(Color::Yellow);

/// Returns the style of a state such as `overdue` on the screen of `perilog top`. The other verbs have
/// [`crate::style::of`] for that.
fn style_of(word: &str) -> Style {
    match word {
        "overdue" | "offline" | "refused" => BAD,
        "lingering" | "unknown" | "probing" | "resolving" | "draining" | "drained" | "lifting" => CARE,
        _ => Style::new(),
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, picture: &mut Picture) {
    let head = head(picture);
    let (troubles, actions) = (troubles(picture), actions(&picture.rows));
    let of = |lines: usize, most: usize| if lines == 0 { 0 } else { 2 + lines.min(most) as u16 };
    let areas = Layout::vertical([
        Constraint::Length(head.len() as u16),
        Constraint::Length(of(troubles.len(), TROUBLES)),
        Constraint::Length(of(actions.len(), ACTIONS)),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .split(frame.area());
    frame.render_widget(Paragraph::new(head), areas[0]);
    if !troubles.is_empty() {
        nodes(frame, areas[1], &troubles);
    }
    if !actions.is_empty() {
        open(frame, areas[2], &actions);
    }
    stragglers(frame, areas[3], picture);
    let keys = "q end  space now  ↑↓ PgUp PgDn scroll";
    frame.render_widget(Paragraph::new(Line::styled(keys, QUIET)), areas[4]);
}

fn head(picture: &Picture) -> Vec<Line<'static>> {
    let Some(status) = &picture.status else { return vec![Line::styled("the controller has not answered yet", CARE)] };
    let away = status.nodes.saturating_sub(status.online);
    let mut nodes = vec![Span::raw(format!("nodes {} online", status.online))];
    if away > 0 {
        nodes.push(Span::styled(format!("  {away} offline"), BAD));
    }
    let standing: usize = picture.drains.iter().filter(|row| !row.lifted).map(|row| row.hosts.len()).sum();
    if standing > 0 {
        nodes.push(Span::styled(format!("  {standing} drained"), CARE));
    }
    if status.held > 0 {
        nodes.push(Span::raw(format!("  {} held", status.held)));
    }
    let work = format!(
        "   work {} open over {}",
        text::count(status.actions_open, "action"),
        text::count(status.tasks_open, "task")
    );
    nodes.push(Span::raw(work));
    let overdue: u64 = picture.rows.iter().filter(|row| row.state == "overdue").map(|row| row.ranks.len()).sum();
    if overdue > 0 {
        nodes.push(Span::styled(format!("  {overdue} overdue"), BAD));
    }
    if status.outbox > 0 {
        nodes.push(Span::styled(format!("   outbox {}", status.outbox), CARE));
    }
    let first = vec![
        Span::styled("perilog", STRONG),
        Span::raw(format!(
            "  {}  epoch {}  {}",
            text::line(cluster(status)),
            status.epoch,
            when::second(picture.asked_ms)
        )),
    ];
    let mut lines = vec![Line::from(first), Line::from(nodes)];
    if let Some(quiet) = &status.quiet {
        let since = when::second(quiet.since_ms);
        lines.push(Line::styled(
            format!("quiesced since {since}: nothing new begins ({})", text::line(&quiet.reason)),
            CARE,
        ));
    }
    lines.extend(status.notes.iter().take(3).map(|note| Line::styled(format!("note: {}", text::line(note)), CARE)));
    lines.extend(picture.trouble.iter().map(|why| Line::styled(format!("no news: {}", text::line(why)), BAD)));
    lines
}

/// Returns the rows of the table of nodes with trouble; nodes with the same state and note share a row. A row has the
/// state, the nodes' names, the elapsed time and the note.
fn troubles(picture: &Picture) -> Vec<[String; 4]> {
    let mut alike: BTreeMap<(String, String), (Vec<&str>, u64)> = BTreeMap::new();
    for node in picture.nodes.iter().filter(|node| node.state != "online" || node.note.is_some()) {
        let key = (text::line(&node.state), node.note.as_deref().map(text::line).unwrap_or_default());
        let (names, since) = alike.entry(key).or_default();
        names.push(&node.host);
        *since = picture.asked_ms.saturating_sub(node.since_ms).max(*since);
    }
    for drain in &picture.drains {
        let key = (drain::state(drain.lifted, drain.confirmed).to_owned(), text::line(newest(drain)));
        let (names, since) = alike.entry(key).or_default();
        names.extend(drain.hosts.iter());
        *since = picture.asked_ms.saturating_sub(drain.since_ms).max(*since);
    }
    let row = |((state, note), (names, since)): ((String, String), (Vec<&str>, u64))| {
        let names = HostList::from_names(&names).map(|list| list.to_string()).unwrap_or_default();
        [state, names, text::age(since), note]
    };
    alike.into_iter().map(row).collect()
}

/// Returns the newest reason of a drain.
fn newest(drain: &DrainView) -> &str {
    drain.again.as_ref().map_or(&drain.reason, |again| &again.reason)
}

fn nodes(frame: &mut Frame<'_>, area: Rect, troubles: &[[String; 4]]) {
    let row = |row: &[String; 4]| row.clone().map(|cell| Line::styled(cell, style_of(&row[0])));
    let rows = troubles.iter().take(TROUBLES).map(row).collect();
    let more = troubles.len().saturating_sub(TROUBLES);
    let title =
        if more > 0 { format!("nodes ({more} more: perilog nodes, perilog drain)") } else { "nodes".to_owned() };
    table(frame, area, title, ["STATE", "NODES", "SINCE", "NOTE"], rows);
}

/// An open action, with the number of its ranks in each state.
struct Open {
    job: String,
    action: String,
    ranks: IdSet,
    age_ms: u64,
    states: BTreeMap<String, u64>,
}

fn actions(rows: &[PsRow]) -> Vec<Open> {
    let mut found: Vec<Open> = Vec::new();
    for row in rows.iter().filter(|row| !matches!(row.state.as_str(), "notifying" | "draining" | "held")) {
        let Some(job) = &row.job else { continue };
        let (job, action) = (job.to_string(), row.action.to_string());
        let at = found.iter().position(|open| open.job == job && open.action == action);
        let at = at.unwrap_or_else(|| {
            found.push(Open { job, action, ranks: IdSet::new(), age_ms: 0, states: BTreeMap::new() });
            found.len() - 1
        });
        let open = &mut found[at];
        open.ranks.extend_with(&row.ranks);
        open.age_ms = row.age_ms.max(open.age_ms);
        *open.states.entry(text::line(&row.state)).or_default() += row.ranks.len().max(row.resources.len() as u64);
    }
    found
}

fn open(frame: &mut Frame<'_>, area: Rect, actions: &[Open]) {
    let rows = actions.iter().take(ACTIONS).map(|open| {
        let states: Vec<Span<'static>> = open
            .states
            .iter()
            .flat_map(|(state, count)| [Span::styled(format!("{count} {state}"), style_of(state)), Span::raw("  ")])
            .collect();
        [
            Line::raw(open.job.clone()),
            Line::raw(open.action.clone()),
            Line::raw(open.ranks.len().to_string()).right_aligned(),
            Line::raw(text::age(open.age_ms)).right_aligned(),
            Line::from(states),
        ]
    });
    let more = actions.len().saturating_sub(ACTIONS);
    let title = if more > 0 { format!("actions ({more} more)") } else { "actions".to_owned() };
    table(frame, area, title, ["JOB", "ACTION", "RANKS", "OLDEST", "THEY ARE"], rows.collect());
}

fn stragglers(frame: &mut Frame<'_>, area: Rect, picture: &mut Picture) {
    picture.scrolled = picture.scrolled.min(picture.rows.len().saturating_sub(1));
    let since = perilog_host::clock::wall_ms().saturating_sub(picture.asked_ms);
    let rows = picture
        .rows
        .iter()
        .skip(picture.scrolled)
        .take(area.height.into())
        .map(|row| {
            // Ages grow between requests; an outdated picture is marked instead.
            let age = row.age_ms + if picture.trouble.is_none() { since } else { 0 };
            [
                Line::raw(text::age(age)).right_aligned(),
                Line::raw(crate::verb::ps::over(row)),
                Line::styled(text::line(&row.state), style_of(&row.state)),
                Line::raw(row.job.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)),
                Line::raw(row.action.to_string()),
                Line::raw(text::line(&row.why)),
            ]
        })
        .collect();
    let title = match (picture.rows.len(), picture.scrolled) {
        (0, _) => "stragglers: nothing waits, nothing runs".to_owned(),
        (count, 0) => format!("stragglers, oldest first ({count})"),
        (count, first) => format!("stragglers, oldest first ({} to {count})", first + 1),
    };
    table(frame, area, title, ["AGE", "NODES", "STATE", "JOB", "ACTION", "SCRIPT, OR WHY IT WAITS"], rows);
}

/// Draws a table in `area`. Each column is as wide as its widest cell, but not wider than `WIDEST_PART` allows; the
/// last column gets the rest of the width.
fn table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    heads: [&'static str; N],
    rows: Vec<[Line<'static>; N]>,
) {
    let most = (usize::from(area.width) / WIDEST_PART).max(NARROWEST);
    let widths = std::array::from_fn::<Constraint, N, _>(|column| {
        let cells = rows.iter().map(|row| row[column].width());
        let wide = cells.chain([heads[column].len()]).max().unwrap_or(0).min(most);
        if column + 1 == N { Constraint::Fill(1) } else { Constraint::Length(wide as u16) }
    });
    let block = Block::new().borders(Borders::TOP).border_style(QUIET).title(Span::styled(title, STRONG));
    let table = Table::new(rows.into_iter().map(Row::new), widths).header(Row::new(heads).style(QUIET));
    frame.render_widget(table.block(block).column_spacing(2), area);
}

#[cfg(test)]
mod tests {
    use perilog_core::controller::view::{NodeView, StatusView};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn picture() -> Picture {
        let row = |job: &str, action: &str, hosts: &str, ranks: &str, state: &str, why: &str, age_ms: u64| {
            PsRow::deserialize(json!({"job": job, "attempt": "0", "action": action, "ranks": ranks, "hosts": hosts,
                                      "state": state, "why": why,
                "age_ms": age_ms, "local": false}))
            .unwrap()
        };
        let asked_ms = perilog_host::clock::wall_ms();
        let node = |host: &str, state: &str| {
            NodeView::deserialize(json!({"host": host, "state": state, "since_ms": asked_ms - 42_000, "machine": null,
                                         "boot": null, "boot_number": 1,
                "version": "0.1.0", "peer": null, "tasks": 0, "note": null}))
            .unwrap()
        };
        let status = StatusView::deserialize(
            json!({"version": "0.1.0", "cluster": "5f", "name": "tuolumne", "epoch": 3, "nodes": 5, "online": 4,
                   "jobs": 7,
            "actions_open": 2, "tasks_open": 5, "outbox": 0, "notes": ["something to know"]}),
        )
        .unwrap();
        Picture {
            status: Some(status),
            rows: vec![
                row("f27", "epilog", "n1", "1", "overdue", "10-umount.sh is past its limit of 10m", 7_380_000),
                row("f28", "prolog", "n[2-3]", "0-1", "running", "20-gpu.sh (2 of 5): \u{1b}[2Jtesting", 12_000),
            ],
            nodes: vec![node("n0", "online"), node("n4", "offline")],
            drains: Vec::new(),
            asked_ms,
            trouble: None,
            scrolled: 0,
        }
    }

    fn drawn(picture: &mut Picture, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, picture)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn who_keeps_whom_waiting_is_seen_at_once() {
        let lines = drawn(&mut picture(), 110, 20);
        let has = |part: &str| {
            assert!(lines.iter().any(|line| line.contains(part)), "{part:?} is not in\n{}", lines.join("\n"))
        };
        has("perilog  tuolumne  epoch 3");
        has("nodes 4 online  1 offline   work 2 actions open over 5 tasks  1 overdue");
        has("note: something to know");
        has("offline  n4     42s");
        has("f28  prolog      2     12s  2 running");
        has("2h03m  n1      overdue  f27  epilog  10-umount.sh is past its limit of 10m");
        has("20-gpu.sh (2 of 5): \\u{1b}[2Jtesting");
        let age_order: Vec<usize> = ["overdue  f27", "running  f28"]
            .iter()
            .filter_map(|part| lines.iter().position(|l| l.contains(part)))
            .collect();
        assert!(age_order[0] < age_order[1], "{lines:?}");
    }

    #[test]
    fn a_controller_that_is_away_is_shown_and_the_picture_stays() {
        let mut picture = picture();
        picture.trouble = Some("no controller at /c.sock".to_owned());
        let lines = drawn(&mut picture, 80, 18);
        assert!(lines.iter().any(|line| line == "no news: no controller at /c.sock"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("10-umount.sh")));
    }

    /// `perilog top` asks for the nodes only at every fifth refresh. In between, the shown age of an offline node must
    /// grow.
    #[test]
    fn an_offline_nodes_age_grows_between_two_requests() {
        let mut picture = picture();
        picture.asked_ms += 20_000;
        let lines = drawn(&mut picture, 110, 20);
        assert!(lines.iter().any(|line| line.starts_with("offline  n4     1m02s")), "{}", lines.join("\n"));
    }

    #[test]
    fn it_fits_whatever_terminal_there_is() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            let mut picture = picture();
            picture.scrolled = 99;
            drawn(&mut picture, width, height);
            assert_eq!(picture.scrolled, 1);
        }
    }
}
