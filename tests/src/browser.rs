//! A browser without a screen on a node: Chromium, driven by chromedriver(1) through WebDriver
//! (w3.org/TR/webdriver2), as far as tests of a page need it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use crate::command::Running;
use crate::node::Node;
use crate::wait_until;

const PORT: u16 = 4444;
/// Time limit until a started chromedriver answers, on a busy machine.
const START: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(60);
/// Flags of Chromium: no screen, no sandbox (root has none), and no requests of its own.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
    "--user-data-dir=/tmp/browser",
];

/// A browser with one window, on a node. The browser ends when this value is dropped or the node ends.
#[derive(Debug)]
pub struct Browser<'a> {
    node: &'a Node,
    session: String,
    _driver: Running,
}

impl<'a> Browser<'a> {
    pub fn start(node: &'a Node) -> Result<Self> {
        let port = format!("--port={PORT}");
        let mut driver = node.spawn(&["chromedriver", &port])?;
        wait_until("chromedriver answers", START, || {
            if driver.has_ended()? {
                bail!("chromedriver has ended: {}", driver.output()?);
            }
            Ok(request(node, "GET", "/status", None).is_ok_and(|status| status["ready"] == true))
        })?;
        let options = json!({ "args": FLAGS });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        }}});
        let begun = request(node, "POST", "/session", Some(&wanted))?;
        let session = begun["sessionId"].as_str().context("a session without a name")?.to_owned();
        let browser = Self { node, session, _driver: driver };
        // The first window shows a page of Chromium's own, whose requests and console lines do not count.
        browser.open("about:blank")?;
        browser.requested()?;
        browser.console()?;
        Ok(browser)
    }

    pub fn open(&self, url: &str) -> Result<()> {
        self.ask("url", &json!({ "url": url })).map(drop)
    }

    /// Runs JavaScript in the page, as the body of a function; returns the function's result.
    pub fn eval(&self, body: &str) -> Result<Value> {
        self.ask("execute/sync", &json!({ "script": body, "args": [] }))
    }

    /// Returns the visible text of the page.
    pub fn text(&self) -> Result<String> {
        Ok(self.eval("return document.body.innerText")?.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the page shows all of these texts.
    pub fn wait_text(&self, texts: &[&str]) -> Result<()> {
        let mut seen = String::new();
        let found = wait_until(&format!("the page says {texts:?}"), ANSWER, || {
            seen = self.text()?;
            Ok(texts.iter().all(|text| seen.contains(text)))
        });
        found.with_context(|| format!("the page says:\n{seen}"))
    }

    /// Presses and releases these keys, one after the other. Special keys have code points (WebDriver, 17.4.2).
    pub fn keys(&self, keys: &[char]) -> Result<()> {
        let key = |kind: &str, key: &char| json!({ "type": kind, "value": key });
        let actions: Vec<Value> = keys.iter().flat_map(|of| [key("keyDown", of), key("keyUp", of)]).collect();
        self.ask("actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] })).map(drop)
    }

    /// Sends a command of the DevTools protocol to Chromium (chromedevtools.github.io/devtools-protocol); returns the
    /// command's result.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.ask("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Returns the entries of the browser's console since the last call.
    pub fn console(&self) -> Result<Vec<Value>> {
        Ok(self.ask("se/log", &json!({ "type": "browser" }))?.as_array().cloned().unwrap_or_default())
    }

    /// Returns the URLs that the browser has requested since the last call.
    pub fn requested(&self) -> Result<Vec<String>> {
        let entries = self.ask("se/log", &json!({ "type": "performance" }))?;
        let mut asked = Vec::new();
        for entry in entries.as_array().into_iter().flatten() {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap_or_default())?;
            let message = &message["message"];
            if message["method"] == "Network.requestWillBeSent" {
                asked.extend(message["params"]["request"]["url"].as_str().map(str::to_owned));
            }
        }
        Ok(asked)
    }

    fn ask(&self, command: &str, body: &Value) -> Result<Value> {
        request(self.node, "POST", &format!("/session/{}/{command}", self.session), Some(body))
    }
}

/// Sends an HTTP request to chromedriver on that node; returns the `value` of the JSON answer.
fn request(node: &Node, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = connect(node)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost:{PORT}\r\nConnection: close\r\nContent-Length: \
         {length}\r\n\r\n{body}"
    )?;
    let answer = read(&mut stream).with_context(|| format!("chromedriver, {method} {path}"))?;
    let mut answer: Value = serde_json::from_str(&answer).with_context(|| format!("{method} {path}: {answer}"))?;
    let value = answer["value"].take();
    ensure!(value["error"].is_null(), "{method} {path}: {}: {}", value["error"], value["message"]);
    Ok(value)
}

/// Reads an HTTP answer with a Content-Length; returns the body.
fn read(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        if let Some(at) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            let length = length.with_context(|| format!("an answer without a length: {head}"))?;
            if let Some(body) = bytes.get(at + 4..at + 4 + length) {
                return Ok(String::from_utf8(body.to_vec())?);
            }
        }
        match stream.read(&mut chunk)? {
            0 => bail!("it ended after {} bytes", bytes.len()),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// Connects to chromedriver from within the node's network namespace, because chromedriver listens on the node's
/// loopback.
fn connect(node: &Node) -> Result<TcpStream> {
    let network = format!("/proc/{}/ns/net", node.leader()?);
    let network = std::fs::File::open(&network).with_context(|| network.clone())?;
    // A thread of its own, because the thread stays in the node's namespace. The socket stays in that namespace, too.
    let connecting = std::thread::spawn(move || -> Result<TcpStream> {
        use std::os::fd::AsFd;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(TcpStream::connect(("127.0.0.1", PORT))?)
    });
    connecting.join().map_err(|_| anyhow::anyhow!("the thread that connects panicked"))?
}
