//! Drawing of the timeline: SVG 1.1 in one file, without scripts and external parts. Each action has a panel with its
//! own scale, because an epilog may come hours after its prolog. In a panel an ended rank normally has a row, and in
//! the row each try of a script is a bar.

use std::fmt::Write as _;

use super::{Action, Step, Task, Timeline};
use crate::{text, when};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 110.0;
/// Height of the part of a panel above its rows, for title, legend and scale, in units of the drawing.
const HEAD: f64 = 66.0;
/// Height of the empty part of a panel below its rows, in units of the drawing.
const FOOT: f64 = 18.0;
/// Maximum number of rows for ended tasks in the panel of an action: more are unreadable, and slow in a browser. The
/// drawing shows the slowest tasks.
const MOST: usize = 2_000;
/// Colours of scripts, distinct also for people who cannot tell red from green. Red is for failures alone.
const COLOURS: [&str; 9] =
    ["#4477aa", "#ddaa33", "#44bb99", "#aa4499", "#77aadd", "#997700", "#225555", "#ee99aa", "#8899aa"];

const STYLE: &str = "\
svg { background: #ffffff; color: #222222; }
text { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: currentColor; }
.title { font-size: 15px; font-weight: 600; } .quiet { fill: #777777; } .bad { fill: #bb2211; }
.end { text-anchor: end; } .mid { text-anchor: middle; }
.grid { stroke: #88888844; } .wait { stroke: #999999; } .whole { fill: #88888833; }
.failed { stroke: #bb2211; stroke-width: 2; }
.open { fill: #88888822; stroke: #777777; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) { svg { background: #1b1b1f; color: #dddddd; }
.bad { fill: #ff7766; } .failed { stroke: #ff7766; } }
";

pub(super) fn draw(timeline: &Timeline, now_ms: u64) -> String {
    let mut body = String::new();
    let mut y = 34.0;
    let attempt = timeline.attempt.as_ref().map(|view| format!(", attempt {}", view.attempt)).unwrap_or_default();
    text_at(&mut body, 16.0, 24.0, "title", &format!("perilog: job {}{attempt}", timeline.job));
    if timeline.actions.is_empty() {
        text_at(&mut body, 16.0, y + 20.0, "quiet", "no action");
        y += 40.0;
    }
    for action in &timeline.actions {
        y = panel(&mut body, action, y, now_ms);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {h}\" width=\"{WIDTH}\" height=\"{h}\" \
         role=\"img\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n{body}</svg>\n",
        h = y.ceil(),
        title = escaped(&format!("perilog timeline of job {}{attempt}", timeline.job)),
    )
}

/// A row in the panel of an action: an ended task, or a group of unfinished ranks.
enum Line<'a> {
    Task(&'a Task),
    /// Unfinished ranks in the same state.
    Open {
        label: String,
        tip: String,
        from_ms: u64,
    },
}

/// The time scale of a panel: converts milliseconds since 1970 to a horizontal position.
struct Scale {
    begin_ms: u64,
    span_ms: f64,
}

impl Scale {
    fn x(&self, ms: u64) -> f64 {
        let at = ms.saturating_sub(self.begin_ms) as f64 / self.span_ms;
        LEFT + at.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

fn panel(to: &mut String, action: &Action, top: f64, now_ms: u64) -> f64 {
    let mut tasks: Vec<&Task> = action.tasks.iter().collect();
    let left_out = tasks.len().saturating_sub(MOST);
    if left_out > 0 {
        tasks.sort_by_key(|task| std::cmp::Reverse(task.elapsed_ms));
        tasks.truncate(MOST);
    }
    tasks.sort_by_key(|task| task.rank);
    let mut lines: Vec<Line<'_>> = tasks.iter().map(|task| Line::Task(task)).collect();
    lines.extend(action.open.iter().map(|row| Line::Open {
        label: crate::verb::ps::over(row),
        tip: format!("{}: {} for {}", row.state, row.why, text::age(row.age_ms)),
        from_ms: now_ms.saturating_sub(row.age_ms),
    }));
    let scale = scale(action, &tasks, now_ms);
    let height = match lines.len() {
        0..=80 => 16.0,
        81..=300 => 9.0,
        301..=800 => 5.0,
        _ => 3.0,
    };
    let bottom = top + HEAD + height * lines.len() as f64;
    head(to, action, top, left_out);
    legend(to, action, top + 42.0);
    grid(to, &scale, top + HEAD, bottom);
    for (at, line) in lines.iter().enumerate() {
        let y = top + HEAD + height * at as f64;
        // On narrow lines only some have a name; the tip names all.
        let named = height >= 12.0 || at % (14.0 / height).ceil() as usize == 0;
        match line {
            Line::Task(task) => bar(to, action, task, &scale, y, height, named),
            Line::Open { label, tip, from_ms } => {
                label_of(to, label, y, height);
                let (x, end) = (scale.x(*from_ms), scale.x(now_ms));
                rect(to, "open", None, (x, y + height * 0.15), (end - x, height * 0.7), &format!("{label}: {tip}"));
            }
        }
    }
    bottom + FOOT
}

fn scale(action: &Action, tasks: &[&Task], now_ms: u64) -> Scale {
    // A node's clock may be behind the controller's.
    let begin_ms = tasks.iter().map(|task| task.began_ms).chain([action.began_ms]).min().unwrap_or(0);
    let ends = tasks.iter().map(|task| task.began_ms.saturating_add(task.elapsed_ms));
    let open = (!action.open.is_empty()).then_some(now_ms);
    let end_ms = ends.chain(action.ended_ms).chain(open).max().unwrap_or(begin_ms);
    Scale { begin_ms, span_ms: end_ms.saturating_sub(begin_ms).max(1) as f64 }
}

fn head(to: &mut String, action: &Action, top: f64, left_out: usize) {
    let state = action.verdict.as_deref().unwrap_or("open");
    let bad = !matches!(state, "ok" | "open");
    text_at(to, 16.0, top + 20.0, "title", action.name.as_str());
    text_at(to, LEFT, top + 20.0, if bad { "bad" } else { "" }, state);
    let mut about = format!("{}, {}", when::second(action.began_ms), text::count(action.tasks.len() as u64, "task"));
    if let Some(ended) = action.ended_ms {
        let _ = write!(about, " in {}", text::elapsed(ended.saturating_sub(action.began_ms)));
    }
    if left_out > 0 {
        let _ = write!(about, "; the {left_out} fastest are not drawn");
    }
    if !action.unreported.is_empty() {
        let _ = write!(about, "; no times of scripts are known for {}", text::ranks(&action.unreported));
    }
    text_at(to, LEFT + 70.0, top + 20.0, "quiet", &about);
}

fn colour(action: &Action, script: &str) -> &'static str {
    let at = action.scripts.iter().position(|name| name == script).unwrap_or(0);
    COLOURS[at % COLOURS.len()]
}

fn legend(to: &mut String, action: &Action, y: f64) {
    let mut x = LEFT;
    let scripts = &action.scripts;
    for (at, name) in scripts.iter().enumerate() {
        let shown: String = text::line(name).chars().take(32).collect();
        // An estimate, near enough for any sans-serif font of this size.
        let wide = 24.0 + 7.2 * shown.chars().count() as f64;
        if x + wide > WIDTH - 60.0 {
            text_at(to, x, y, "quiet", &format!("and {} more", scripts.len() - at));
            break;
        }
        let _ = writeln!(
            to,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{}\"/>",
            y - 10.0,
            COLOURS[at % COLOURS.len()]
        );
        text_at(to, x + 15.0, y, "", &shown);
        x += wide;
    }
}

fn grid(to: &mut String, scale: &Scale, top: f64, bottom: f64) {
    let step = nice(scale.span_ms / 6.0);
    let mut at = 0.0;
    while at <= scale.span_ms {
        let x = LEFT + at / scale.span_ms * (WIDTH - LEFT - RIGHT);
        let _ = writeln!(
            to,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>",
            top - 4.0
        );
        text_at(to, x, top - 8.0, "quiet mid", &text::elapsed(at as u64));
        at += step;
    }
}

/// Returns the distance between two lines of the time scale: a round number of milliseconds that is at least
/// `least_ms`.
fn nice(least_ms: f64) -> f64 {
    const MINUTES: [f64; 8] = [60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0];
    let least_ms = least_ms.max(1.0);
    if least_ms > 30_000.0 {
        let found = MINUTES.iter().map(|s| s * 1000.0).find(|ms| *ms >= least_ms);
        return found.unwrap_or_else(|| (least_ms / 86_400_000.0).ceil() * 86_400_000.0);
    }
    let decade = 10f64.powf(least_ms.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|of| of * decade).find(|ms| *ms >= least_ms).unwrap_or(decade * 10.0)
}

fn bar(to: &mut String, action: &Action, task: &Task, scale: &Scale, y: f64, height: f64, named: bool) {
    let host = task.host.as_deref().map_or_else(|| format!("rank {}", task.rank), text::line);
    let bad = task.outcome != "ok";
    if named {
        label_of(to, &host, y, height);
    }
    let who = format!("{host} (rank {})", task.rank);
    let (asked, began) = (scale.x(action.began_ms), scale.x(task.began_ms));
    let end = scale.x(task.began_ms.saturating_add(task.elapsed_ms));
    if began > asked {
        let middle = y + height / 2.0;
        let _ = writeln!(
            to,
            "<line class=\"wait\" x1=\"{asked:.1}\" y1=\"{middle:.1}\" x2=\"{began:.1}\" y2=\"{middle:.1}\"/>"
        );
    }
    let tip = format!("{who}: {} after {}", task.outcome, text::elapsed(task.elapsed_ms));
    rect(to, "whole", None, (began, y + height * 0.1), (end - began, height * 0.8), &tip);
    for step in &task.steps {
        let from = task.began_ms.saturating_add(step.after_ms);
        let (x, end) = (scale.x(from), scale.x(from.saturating_add(step.elapsed_ms)));
        let class = if step.failed() { "failed" } else { "" };
        let fill = Some(colour(action, &step.script));
        rect(to, class, fill, (x, y + height * 0.15), (end - x, height * 0.7), &tip_of(&who, step));
    }
    if bad && height >= 9.0 {
        text_at(to, end + 6.0, y + height * 0.75, "bad", &task.outcome);
    }
}

fn tip_of(who: &str, step: &Step) -> String {
    let label = step.label();
    let label = if label.is_empty() { label } else { format!(", {label}") };
    format!("{who}: {} {}{label}", step.script, text::elapsed(step.elapsed_ms))
}

/// Draws the label of a row, such as the name of a node, in the left margin beside the row, shortened to 24 characters.
/// `y` and `height`: upper edge and height of the row.
fn label_of(to: &mut String, name: &str, y: f64, height: f64) {
    let shown: String = match name.chars().count() {
        0..=24 => name.to_owned(),
        _ => name.chars().take(23).chain(['…']).collect(),
    };
    text_at(to, LEFT - 8.0, y + height / 2.0 + 4.0, "end", &shown);
}

fn text_at(to: &mut String, x: f64, y: f64, class: &str, what: &str) {
    let _ = writeln!(to, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(what));
}

/// Draws a bar, at least one unit wide, so that a bar without duration is still visible. `class`: its CSS class, or
/// empty. `fill`: its colour; `None`: the colour of the class. `at`: x and y of its upper left corner; `size`: width
/// and height. `tip`: the text that a browser shows for the bar.
fn rect(to: &mut String, class: &str, fill: Option<&str>, at: (f64, f64), size: (f64, f64), tip: &str) {
    let fill = fill.map(|fill| format!(" fill=\"{fill}\"")).unwrap_or_default();
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let ((x, y), (width, height)) = (at, (size.0.max(1.0), size.1));
    let _ = writeln!(
        to,
        "<rect{class}{fill} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"><title>{}</title></rect>",
        escaped(tip)
    );
}

/// Escapes foreign text for XML: script names and messages may contain anything.
fn escaped(foreign: &str) -> String {
    text::line(foreign).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        for (least, expect) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (3.0, 5.0),
            (140.0, 200.0),
            (7_000.0, 10_000.0),
            (31_000.0, 60_000.0),
            (200_000.0, 300_000.0),
            (90_000_000.0, 172_800_000.0),
        ] {
            assert_eq!(nice(least), expect, "{least}");
        }
    }
}
