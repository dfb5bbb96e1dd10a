//! The controller's web page in a real browser. It shows the cluster as it changes, also after a kill -9 of the
//! controller, and shows names from outside as text only.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Browser, Cluster};
use serde_json::{Value, json};

const PAGE: &str = "[metrics]\nlisten = \"127.0.0.1:5116\"\npage = true\n";
const ADDRESS: &str = "http://localhost:5116/";
/// Script body: waits until the test creates /run/gate, and exits with 0.
const AT_GATE: &str = "while [ ! -e /run/gate ]; do sleep 0.02; done";
const LIMIT: Duration = Duration::from_secs(60);

/// Code point of the key Enter in WebDriver.
const ENTER: char = '\u{e007}';
/// Code point of the key Tab.
const TAB: char = '\u{e004}';
/// Code point of the right arrow key.
const RIGHT: char = '\u{e014}';
/// Code point of the key End.
const END: char = '\u{e010}';

/// Returns the page's tiles: the number of nodes by state.
fn tiles(browser: &Browser<'_>) -> Result<Value> {
    browser.eval(
        "return Object.fromEntries([...document.querySelectorAll('#states button')].map((b) => \
         [b.dataset.tile, b.querySelector('b').textContent]))",
    )
}

fn wait_tiles(browser: &Browser<'_>, expected: &Value) -> Result<()> {
    let mut seen = Value::Null;
    let there = perilog_tests::wait_until("the tiles count the nodes", LIMIT, || {
        seen = tiles(browser)?;
        Ok(expected.as_object().into_iter().flatten().all(|(tile, count)| seen[tile] == *count))
    });
    there.with_context(|| format!("expected {expected}, the page has {seen}"))
}

/// Asserts that the browser has sent requests to the controller alone, and that its console has no errors except, if
/// `was_away`, for requests without an answer.
fn assert_calm(browser: &Browser<'_>, was_away: bool) -> Result<()> {
    let asked = browser.requested()?;
    ensure!(!asked.is_empty() && asked.iter().all(|url| url.starts_with(ADDRESS)), "asked: {asked:?}");
    let mut console = browser.console()?;
    console.retain(|entry| !(was_away && entry["source"] == "network"));
    ensure!(console.is_empty(), "the console says: {console:#?}");
    Ok(())
}

#[test]
fn a_job_is_followed_over_a_kill_of_the_controller() -> Result<()> {
    let cluster = Cluster::builder(3).script("prolog", "10-gate", AT_GATE).controller(PAGE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let browser = Browser::start(cluster.controller()?)?;
    browser.open(ADDRESS)?;
    browser.wait_text(&["3 of 3 online", "live last answer", "Nothing is open.", "bed"])?;
    wait_tiles(&browser, &json!({ "free": "3", "held": "0", "drained": "0", "offline": "0" }))?;
    // A mark in the page, which a reload of the page would lose.
    browser.eval("window.opened = 'once'; location.hash = 'job=j'")?;

    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    browser.wait_text(&["running", "prolog of j", "10-gate (1 of 1)", "n[0-1]", "Job j", "0 of 2 ok"])?;
    wait_tiles(&browser, &json!({ "free": "1", "prolog": "2" }))?;
    // Before the job was there, the controller said that there is none.
    assert_calm(&browser, true)?;

    cluster.kill_controller()?;
    browser.wait_text(&["The controller is away.", "last answer", "The next try is in", "10-gate (1 of 1)"])?;
    wait_tiles(&browser, &json!({ "free": "1", "prolog": "2" }))?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.start_controller()?;
    cluster.wait_end(&mut run)?;
    browser.wait_text(&["live last answer", "Nothing is open.", "2 of 2 ok", "2 nodes, "])?;
    wait_tiles(&browser, &json!({ "free": "1", "held": "2", "offline": "0" }))?;
    let verdict = browser.eval("return document.querySelector('#verdicts li').innerText.replace(/\\s+/g, ' ')")?;
    ensure!(verdict.as_str().is_some_and(|row| row.contains("ok prolog of j 2 nodes")), "{verdict}");
    // Beside the job's details the columns are narrow: nothing runs over the edge of its box, or is cut off by it.
    for width in [1250, 1280, 1600] {
        let screen = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.devtools("Emulation.setDeviceMetricsOverride", &screen)?;
        let over = browser.eval(
            "const edge = (e) => e.getBoundingClientRect().right; \
             return [...document.querySelectorAll('.rows li > *')].filter((e) => edge(e) > \
             edge(e.closest('section'))).map((e) => e.innerText)",
        )?;
        ensure!(over == json!([]), "at {width}: {over}");
    }
    ensure!(browser.eval("return document.querySelector('#away').hidden && window.opened")? == "once");
    ensure!(browser.eval("return document.querySelector('#announcement').textContent")? == "The controller is back.");
    assert_calm(&browser, true)?;
    cluster.assert_ran("j", &["prolog"])
}

/// Name of a script that a browser would take for markup if the page did not show it as text.
const SCRIPT: &str = "10-<img src=x onerror=alert(1)>\"'&amp;";
/// Line of output that a browser would take for markup if the page did not show it as text.
const LINE: &str = "</q></li><script>document.title=\"gone\"</script> \u{202e}desrever";

#[test]
fn hostile_names_and_reasons_are_text() -> Result<()> {
    let body = format!("printf '%s\\n' '{LINE}'; exit 7");
    let cluster = Cluster::builder(1).script("prolog", SCRIPT, &body).controller(PAGE).boot()?;
    let browser = Browser::start(cluster.controller()?)?;
    browser.open(ADDRESS)?;
    let ran = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    ensure!(ran.code() == Some(1), "{ran}");
    let reason = "<b onmouseover=alert(2)>bad</b> {{7*7}} \u{202e}mmid";
    cluster.perilog(&["undrain", "n0"])?;
    cluster.perilog(&["drain", "n0", reason])?.ok()?;

    let seen_line = LINE.replace('\u{202e}', "U+202E");
    let seen_reason = reason.replace('\u{202e}', "U+202E");
    browser.wait_text(&[SCRIPT, &seen_line, &seen_reason])?;
    for hash in ["job=j", "node=n0"] {
        browser.eval(&format!("location.hash = '{hash}'"))?;
        let shown = if hash == "job=j" { SCRIPT } else { seen_reason.as_str() };
        perilog_tests::wait_until(hash, LIMIT, || {
            let text = browser.eval("return document.querySelector('#detail-body').innerText")?;
            Ok(text.as_str().is_some_and(|text| text.contains(shown)))
        })?;
    }
    // The page contains its own script, and no element that came as a name.
    let made = browser.eval(
        "return [...document.querySelectorAll('script, img, main b[onmouseover], [onerror]')].map((e) => e.outerHTML)",
    )?;
    ensure!(made == json!(["<script src=\"page.js\" defer=\"\"></script>"]), "{made}");
    ensure!(browser.eval("return document.title")? == "perilog bed", "the title is of the page");
    ensure!(browser.eval("return document.body.textContent.includes('\\u202e')")? == false);
    // The page's security policy forbids the use of innerHTML, too.
    let refused = browser.eval(
        "try { document.querySelector('footer').innerHTML = '<i>x</i>'; return 'set' } catch (e) { return e.name }",
    )?;
    ensure!(refused == "TypeError", "{refused}");
    browser.console()?;
    Ok(())
}

#[test]
fn it_is_read_without_a_mouse_in_the_dark_and_on_a_phone() -> Result<()> {
    let cluster = Cluster::builder(2).controller(PAGE).boot()?;
    cluster.node(1)?.systemctl(&["stop", "perilog-agent"])?;
    cluster.perilog(&["drain", "n0", "bad dimm"])?.ok()?;
    let browser = Browser::start(cluster.controller()?)?;
    browser.open(ADDRESS)?;
    wait_tiles(&browser, &json!({ "drained": "1", "offline": "1", "free": "0" }))?;

    // A state is a word for screen readers and a shape for eyes, whatever its colour.
    let cells = browser.eval(
        "return [...document.querySelectorAll('#cells > .c')].map((c) => [c.getAttribute('role'), \
         c.getAttribute('aria-label'), \
         getComputedStyle(c, '::before').backgroundImage])",
    )?;
    ensure!(cells[0][0] == "option" && cells[0][1] == "n0: drained" && cells[1][1] == "n1: offline", "{cells}");
    ensure!(cells[0][2] != cells[1][2] && cells[0][2] != "none", "{cells}");
    let marked = browser.eval(
        "return ['header', 'main', 'footer', '[role=status][aria-live=polite]', 'h1', \
         'label[for=name]'].filter((s) => !document.querySelector(s))",
    )?;
    ensure!(marked == json!([]), "{marked}");

    // From the top of the page, the tab key leads to the nodes, and into one.
    let mut way = 0;
    while browser.eval("return document.activeElement.id")? != "cells" {
        ensure!(way < 20, "no way by keys to the nodes");
        browser.keys(&[TAB])?;
        way += 1;
    }
    browser.keys(&[RIGHT])?;
    let pointed = browser.eval("return document.querySelector('#pointed').textContent")?;
    ensure!(pointed == "n1 offline", "{pointed}");
    browser.keys(&[END, ENTER])?;
    browser.wait_text(&["Node n1", "ssh n1 perilog doctor"])?;
    ensure!(browser.eval("return document.activeElement.id")? == "detail");

    // The Enter key on a tile shows the tile's nodes only. The tile keeps the focus, also when the page gets new data.
    browser.eval("document.querySelector('[data-tile=drained]').focus()")?;
    browser.keys(&[ENTER])?;
    let picked = "return [document.activeElement.dataset.tile, document.activeElement.ariaPressed, \
                  document.querySelector('#picked').innerText]";
    let picked = browser.eval(picked)?;
    ensure!(picked == json!(["drained", "true", "n0"]), "{picked}");

    let darkness = |browser: &Browser<'_>| {
        browser.eval(
            "return getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).reduce((a, b) \
             => a + Number(b), 0)",
        )
    };
    let light = darkness(&browser)?;
    let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.devtools("Emulation.setEmulatedMedia", &dark)?;
    ensure!(darkness(&browser)?.as_u64() < light.as_u64().map(|light| light / 4), "{light} {}", darkness(&browser)?);
    let phone = json!({ "width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": true });
    browser.devtools("Emulation.setDeviceMetricsOverride", &phone)?;
    let wide = browser.eval("return [document.documentElement.scrollWidth, innerWidth]")?;
    ensure!(wide == json!([360, 360]), "{wide}");
    assert_calm(&browser, false)
}

/// At three widths, with a job's details and many drained nodes: no text of a row lies over another, the details stand
/// beside the nodes, and the list of drains follows the open work without a gap.
#[test]
fn nothing_overlaps_at_three_widths() -> Result<()> {
    let cluster = Cluster::builder(1).controller(PAGE).boot()?;
    let browser = Browser::start(cluster.controller()?)?;
    browser.open(ADDRESS)?;
    browser.wait_text(&["live"])?;
    browser.eval(
        "window.copy = structuredClone(link.last); clearTimeout(link.timer); later(3600000); \
         copy.status.nodes = 5; copy.status.online = 4; copy.status.drained = 10300; \
         copy.groups = [{ state: 'offline', count: 1, hosts: 'n4' }, { state: 'drained', count: 2, hosts: 'n[0-1]' }, \
         { state: 'free', count: 2, hosts: 'n[2-3]' }]; \
         copy.drains = [{ reason: 'bad dimm', age_ms: 1000, count: 10000, hosts: 'm[0-63]' }, \
         { reason: 'bad fan', age_ms: 90010000, count: 300, hosts: 'a[0-63]' }]; \
         const row = { job: 'j', attempt: '0', action: 'epilog', state: 'overdue', stuck: true, \
         why: '50-umount is past its limit', age_ms: 434000, count: 300, hosts: 'm[0-63]' }; \
         copy.open = [row]; \
         copy.verdicts = [...Array(25).keys()].map((n) => ({ job: `j${n}`, attempt: '0', action: 'prolog', \
         verdict: 'ok', age_ms: n * 60000, elapsed_ms: 434000, count: 300, bad: 0 })); \
         history.replaceState(null, '', '#node=n0'); $('detail').hidden = false; \
         document.querySelector('main').classList.add('detailed'); draw(copy)",
    )?;
    let text = browser.text()?;
    for part in ["4 of 5 online", "10,300 nodes, 2 of them online", "1d01h", "7m14s"] {
        ensure!(text.contains(part), "no {part:?} in {text}");
    }
    for (width, beside) in [(360, false), (1280, true), (1600, true)] {
        let screen = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.devtools("Emulation.setDeviceMetricsOverride", &screen)?;
        let seen = browser.eval(
            "const at = (e) => e.getBoundingClientRect(), ink = (e) => { const r = document.createRange(); \
             r.selectNodeContents(e); return r.getBoundingClientRect(); }; \
             const over = []; \
             for (const li of document.querySelectorAll('.rows li')) { \
             const parts = [...li.children].filter((e) => e.innerText); \
             parts.forEach((a, i) => parts.slice(i + 1).forEach((b) => { const [x, y] = [ink(a), ink(b)]; \
             if (x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 4 && y.top < x.bottom - 4) \
             over.push(`${a.innerText} | ${b.innerText}`); })); } \
             const end = make('span', { class: 'end' }, '\u{2717} cancelled 12m15s expected'); \
             const line = make('div', { class: 'line' }, make('span', { class: 'name' }, 'epilog'), \
             make('div', { class: 'track' }), end); $('detail-body').append(line); \
             if (ink(end).right > at($('detail-body')).right + 1) over.push(end.innerText); line.remove(); \
             const [nodes, detail, going, drained] = ['nodes', 'detail', 'going', 'drained'].map((id) => at($(id))); \
             return { over, beside: Math.abs(nodes.top - detail.top) < 2, \
             gap: drained.top - going.bottom < 30, wide: document.documentElement.scrollWidth <= innerWidth }",
        )?;
        ensure!(seen == json!({ "over": [], "beside": beside, "gap": true, "wide": true }), "at {width}: {seen}");
    }
    // On a phone, the map of a large cluster is cut: nodes in trouble stand first.
    let offline = browser.eval(
        "copy.groups = [{ state: 'free', count: 3000, hosts: 'n[0-2999]' }, { state: 'offline', count: 1, \
         hosts: 'n3000' }]; draw(copy); return copy.groups.length",
    )?;
    ensure!(offline == 2, "{offline}");
    let phone = json!({ "width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": true });
    browser.devtools("Emulation.setDeviceMetricsOverride", &phone)?;
    let inside = browser.eval(
        "const map = $('cells').getBoundingClientRect(), cell = document.querySelector('#cells > \
         .offline').getBoundingClientRect(); return cell.bottom <= map.bottom && cell.top >= map.top",
    )?;
    ensure!(inside == true, "the offline node is below the cut");
    Ok(())
}

/// The browser page draws ten thousand nodes, each once, and redraws only those that have changed.
#[test]
fn ten_thousand_nodes_are_drawn() -> Result<()> {
    let cluster = Cluster::builder(1).controller(PAGE).boot()?;
    let browser = Browser::start(cluster.controller()?)?;
    browser.open(ADDRESS)?;
    browser.wait_text(&["live"])?;
    let drawn = browser.eval(
        "const copy = structuredClone(link.last); \
         clearTimeout(link.timer); later(3600000); \
         copy.status.nodes = 10000; \
         copy.groups = [{ state: 'held', count: 9900, hosts: 'n[0-9899]' }, \
         { state: 'offline', count: 100, hosts: 'n[9900-9999]' }]; \
         const time = () => { \
         const began = performance.now(); \
         draw(copy); \
         document.body.offsetHeight; \
         return Math.round(performance.now() - began); \
         }; \
         const first = time(), cells = document.querySelectorAll('#cells > .c'); \
         const before = cells[5]; \
         copy.groups = [{ state: 'held', count: 9901, hosts: 'n[0-9900]' }, \
         { state: 'offline', count: 99, hosts: 'n[9901-9999]' }]; \
         const again = time(); \
         return { count: cells.length, kept: document.querySelectorAll('#cells > .c')[5] === before, \
         changed: document.querySelectorAll('#cells > .held').length, \
         last: cells[9999].getAttribute('aria-label'), first, again }",
    )?;
    println!("10,000 nodes: drawn in {} ms, again in {} ms", drawn["first"], drawn["again"]);
    ensure!(drawn["count"] == 10_000 && drawn["kept"] == true && drawn["changed"] == 9_901, "{drawn}");
    ensure!(drawn["last"] == "n9999: offline", "{drawn}");
    Ok(())
}
