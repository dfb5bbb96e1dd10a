// The page asks /status.json again and again and draws what it says. Every text of the controller's becomes a text
// node: nothing here writes HTML, and the page's content policy lets nothing do so.
"use strict";

const EVERY_MS = 2000, SLOWEST_MS = 15000, PATIENCE_MS = 9000;
const MOST_NAMED = 200, MANY = 2000;

const $ = (id) => document.getElementById(id);
const now = () => performance.now();

/** Makes an element. Children are elements or texts; an attribute of null is left out. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Characters that are not seen, or turn the direction of what follows: shown by their number.
const ODD = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;

/** A text from outside, in its own direction. */
function text(value) {
  const shown = make("bdi");
  for (const part of String(value).split(new RegExp(`(${ODD.source})`, "u"))) {
    if (part.length && ODD.test(part)) {
      const code = part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      shown.append(make("span", { class: "odd" }, `U+${code}`));
    } else if (part.length) {
      shown.append(part);
    }
  }
  return shown;
}

/** Replaces the content of an element, unless only its ages differ: a reader's place and focus are kept. */
function fill(element, ...children) {
  const fresh = make("div", null, ...children);
  if (!ageless(element).isEqualNode(ageless(fresh))) {
    const key = (of) => of.getAttribute("href") ?? of.dataset.tile;
    const focused = element.contains(document.activeElement) ? key(document.activeElement) : null;
    element.replaceChildren(...fresh.childNodes);
    if (focused !== null) [...element.querySelectorAll("a, button")].find((of) => key(of) === focused)?.focus({ preventScroll: true });
    return;
  }
  const ages = fresh.querySelectorAll("[data-since]");
  element.querySelectorAll("[data-since]").forEach((shown, index) => {
    // Two answers differ a little in when the same thing was.
    if (Math.abs(shown.dataset.since - ages[index].dataset.since) > 2) shown.dataset.since = ages[index].dataset.since;
  });
}

function ageless(element) {
  const copy = make("div");
  copy.append(...[...element.childNodes].map((child) => child.cloneNode(true)));
  for (const shown of copy.querySelectorAll("[data-since]")) {
    shown.removeAttribute("data-since");
    shown.textContent = "";
  }
  return copy;
}

/** Makes the items of a list, each of its key, from rows; keeps those that are there. */
function list(element, rows, key, draw) {
  const before = new Map([...element.children].map((child) => [child.dataset.key, child]));
  let place = element.firstElementChild;
  rows.forEach((row, index) => {
    const name = `${key(row)}`;
    let item = before.get(name);
    if (item) before.delete(name);
    else item = make("li", { "data-key": name });
    if (item === place) place = place.nextElementSibling;
    else element.insertBefore(item, place);
    fill(item, ...draw(row, index));
  });
  for (const item of before.values()) item.remove();
}

/** A duration as perilog writes them. */
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (big, unit, small, less) => `${big}${unit}${small ? `${String(small).padStart(2, "0")}${less}` : ""}`;
  if (s < 60) return `${s}s`;
  if (s < 3600) return two(Math.floor(s / 60), "m", s % 60, "s");
  if (s < 86400) return two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "m");
  return two(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

/** How long something took. */
const elapsed = (ms) => (ms < 1000 ? `${Math.round(ms)}ms` : ms < 60000 ? `${Math.floor(ms / 100) / 10}s` : span(ms));

/** Ages grow between two answers: the moment is kept, and `tick` writes the age. */
function age(ms, at, class_) {
  // In whole seconds, so that the same moment is the same in two answers.
  const moment = Math.round((at - ms) / 1000);
  return make("span", { class: class_ || "age", "data-since": moment }, span(now() - moment * 1000));
}

const many = (count, one, more) => `${count.toLocaleString("en")} ${count === 1 ? one : more || one + "s"}`;

// ---- The controller, answered or not

const link = { answered: null, wait: EVERY_MS, next: null, timer: null, away: false, version: null, stuck: null };

function say(words) {
  if ($("announcement").textContent !== words) $("announcement").textContent = words;
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store", credentials: "omit" });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(String(body.error)), { status: answer.status });
  return body;
}

async function poll() {
  clearTimeout(link.timer);
  link.next = null;
  try {
    const status = await ask("status.json");
    if (link.version !== null && link.version !== status.status.version) {
      // The page of another version may not know what this one says.
      location.reload();
      return;
    }
    link.version = status.status.version;
    link.answered = now();
    link.wait = EVERY_MS;
    if (link.away) say("The controller is back.");
    link.away = false;
    draw(status);
    tick();
    await detail();
  } catch (error) {
    if (!link.away) say("The controller is away. The page goes on asking.");
    link.away = true;
    fill($("away-why"), error.status ? text(`It says: ${error.message}.`) : "");
    // Not all pages that wait ask in the same moment.
    link.wait = Math.min(SLOWEST_MS, link.wait * 1.6) * (0.9 + Math.random() * 0.2);
  }
  tick();
  if (!document.hidden) later(link.wait);
}

function later(ms) {
  clearTimeout(link.timer);
  link.next = now() + ms;
  link.timer = setTimeout(poll, ms);
}

function tick() {
  const answered = link.answered === null ? null : span(now() - link.answered);
  document.body.className = link.away ? "lost" : answered === null ? "" : "live";
  $("away").hidden = !link.away;
  $("word").textContent = link.away ? "away" : answered === null ? "connecting" : "live";
  $("answered").textContent = answered === null ? "" : `last answer ${answered} ago`;
  if (link.away) {
    $("away-answered").textContent = answered === null ? "which was never" : `${answered} ago`;
    const next = link.next === null ? 0 : Math.ceil((link.next - now()) / 1000);
    $("away-next").textContent = next > 0 ? `The next try is in ${next} s.` : "Trying now.";
  }
  for (const element of document.querySelectorAll("[data-since]")) {
    const shown = span(now() - Number(element.dataset.since) * 1000);
    if (element.textContent !== shown) element.textContent = shown;
  }
}

// ---- Nodes

/** Expands a hostlist (RFC 29): one pair of brackets in a name. */
function expand(hostlist) {
  const names = [];
  let depth = 0, begin = 0;
  for (let at = 0; at <= hostlist.length; at += 1) {
    const c = hostlist[at];
    if (c === "[") depth += 1;
    else if (c === "]") depth -= 1;
    else if ((c === "," && depth === 0) || c === undefined) {
      if (at > begin) expandOne(hostlist.slice(begin, at), names);
      begin = at + 1;
    }
  }
  return names;
}

function expandOne(word, names) {
  const open = word.indexOf("["), close = word.indexOf("]");
  if (open < 0) {
    names.push(word);
    return;
  }
  const [head, tail] = [word.slice(0, open), word.slice(close + 1)];
  const ids = word.slice(open + 1, close).split(",");
  const first = ids[0].split("-")[0];
  const width = first.length > 1 && first.startsWith("0") ? first.length : 0;
  for (const id of ids) {
    const [low, high] = id.split("-");
    for (let n = Number(low); n <= Number(high ?? low); n += 1) names.push(head + String(n).padStart(width, "0") + tail);
  }
}

/** The shape of a group, and its words. */
function look(group) {
  const shape = group.state === "busy" ? (group.after ? "after" : "setup") : group.state;
  const words = [group.state === "busy" ? group.action : group.state];
  if (group.state !== "busy" && group.action) words.push(group.action);
  if (group.stuck) words.push("stuck");
  if (group.drained) words.push("drained");
  if (group.held) words.push("held");
  return { shape, stuck: Boolean(group.stuck), words: words.join(", "), tile: group.state === "busy" ? group.action : group.state };
}

const ORDER = ["free", "setup", "after", "held", "drained", "offline"];
const fleet = { cells: new Map(), order: "", names: [], here: -1, picked: null, tiles: new Map() };
const byNumber = new Intl.Collator("en", { numeric: true }).compare;

function drawNodes(status) {
  const tiles = new Map(ORDER.filter((shape) => shape !== "setup" && shape !== "after")
    .map((shape) => [shape, { shape, count: 0, hosts: [] }]));
  const seen = new Map();
  for (const group of status.groups) {
    const { shape, stuck, words, tile } = look(group);
    if (!tiles.has(tile)) tiles.set(tile, { shape, count: 0, hosts: [] });
    const of = tiles.get(tile);
    of.count += group.count;
    if (group.hosts) of.hosts.push(group.hosts);
    for (const name of expand(group.hosts)) seen.set(name, { class: `c ${shape}${stuck ? " stuck" : ""}`, words, tile });
  }
  const size = seen.size <= MOST_NAMED ? "few" : seen.size > MANY ? "many" : "some";
  const cells = $("cells");
  if (size !== fleet.size || seen.size !== fleet.cells.size || [...seen.keys()].some((name) => !fleet.cells.has(name))) {
    const at = fleet.names[fleet.here];
    fleet.size = size;
    fleet.names = [...seen.keys()].sort(byNumber);
    fleet.cells = new Map();
    const all = document.createDocumentFragment();
    fleet.names.forEach((name, index) => {
      const element = make("span", { role: "option", id: `n${index}` }, size === "few" ? name : null);
      fleet.cells.set(name, { element, class: "", words: "" });
      all.append(element);
    });
    cells.replaceChildren(all);
    fleet.here = at === undefined ? -1 : fleet.names.indexOf(at);
  }
  for (const [name, { class: shape, words, tile }] of seen) {
    const cell = fleet.cells.get(name);
    const full = shape + (fleet.picked === tile ? " in" : "") + (fleet.names[fleet.here] === name ? " here" : "");
    if (cell.class !== full) cell.element.className = cell.class = full;
    if (cell.words !== words) cell.element.setAttribute("aria-label", `${name}: ${cell.words = words}`);
    cell.tile = tile;
  }
  fleet.tiles = tiles;
  cells.className = size + (fleet.picked !== null ? " picking" : "");
  cells.hidden = seen.size === 0;
  const { nodes, online } = status.status;
  $("nodes-count").textContent = nodes === 0 ? "" : `${online.toLocaleString("en")} of ${nodes.toLocaleString("en")} online` +
    (status.nodes_left_out ? `; ${status.nodes_left_out.toLocaleString("en")} are not drawn` : "");
  const order = [...tiles].sort(([, a], [, b]) => ORDER.indexOf(a.shape) - ORDER.indexOf(b.shape));
  list($("states"), order, ([tile]) => tile, ([tile, { shape, count }]) => [
    make("button", { type: "button", "data-tile": tile, "aria-pressed": String(fleet.picked === tile) },
      make("span", { class: `c ${shape}`, "aria-hidden": "true" }), make("b", null, count.toLocaleString("en")), text(tile)),
  ]);
  drawPicked();
  if (nodes === 0) fill($("pointed"), "No node has connected yet.");
  else drawPointed();
}

function drawPicked() {
  const of = fleet.picked === null ? null : fleet.tiles.get(fleet.picked);
  $("picked").hidden = !of;
  if (of) fill($("picked"), of.hosts.length ? text(of.hosts.join(",")) : "none");
}

function drawPointed() {
  const name = fleet.names[fleet.here], cell = fleet.cells.get(name);
  if (cell) fill($("pointed"), make("a", { href: `#node=${encodeURIComponent(name)}`, class: "name" }, name), ` ${cell.words}`);
}

function point(index) {
  const clamped = Math.max(0, Math.min(fleet.names.length - 1, index));
  const before = fleet.cells.get(fleet.names[fleet.here]), cell = fleet.cells.get(fleet.names[clamped]);
  if (!cell || before === cell) return;
  if (before) before.element.className = before.class = before.class.replace(" here", "");
  fleet.here = clamped;
  cell.element.className = cell.class = `${cell.class} here`;
  $("cells").setAttribute("aria-activedescendant", cell.element.id);
  drawPointed();
}

function columns() {
  const cells = $("cells").children;
  if (!cells.length) return 1;
  const top = cells[0].offsetTop;
  let count = 1;
  while (count < cells.length && cells[count].offsetTop === top) count += 1;
  return count;
}

const indexOf = (event) => {
  const cell = event.target.closest?.("#cells > .c");
  return cell ? Number(cell.id.slice(1)) : -1;
};

const openNode = (index) => {
  if (fleet.names[index] !== undefined) location.hash = `node=${encodeURIComponent(fleet.names[index])}`;
};

function listenToNodes() {
  const cells = $("cells");
  cells.addEventListener("pointerover", (event) => indexOf(event) >= 0 && point(indexOf(event)));
  cells.addEventListener("click", (event) => openNode(indexOf(event)));
  cells.addEventListener("focus", () => fleet.here < 0 && point(0));
  cells.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns(), PageUp: -10 * columns(),
      PageDown: 10 * columns(), Home: -Infinity, End: Infinity };
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") openNode(fleet.here);
    else if (event.key in moves) point(fleet.here + moves[event.key]);
    else return;
    event.preventDefault();
    fleet.cells.get(fleet.names[fleet.here])?.element.scrollIntoView({ block: "nearest" });
  });
  $("states").addEventListener("click", (event) => {
    const tile = event.target.closest("button")?.dataset.tile;
    if (tile === undefined) return;
    fleet.picked = fleet.picked === tile ? null : tile;
    if (link.last) drawNodes(link.last);
  });
}

// ---- Lists

const jobLink = (job, attempt) => job
  ? make("a", { href: `#job=${encodeURIComponent(job)}`, class: "name" }, text(job), attempt ? ` (${attempt})` : null)
  : null;

/** The hosts of a row. `counted`: their number is beside them already. */
function hosts(row, counted) {
  const resources = (row.resources || []).join(",");
  const shown = [row.hosts, resources].filter(Boolean).join(" ");
  const more = row.count - expand(row.hosts || "").length;
  return make("span", { class: "hosts" }, more > 0 && !counted ? `${many(row.count, "node")}: ` : null, text(shown), more > 0 ? ", …" : null);
}

const tag = (kind, word) => make("span", { class: `tag ${kind}` }, text(word));
const verdictTag = (verdict) => tag(verdict === "ok" ? "ok" : "bad", verdict);
const attemptOf = (row) => (String(row.attempt) === "0" ? null : row.attempt);

function openRow(row, at) {
  return [
    age(row.age_ms, at),
    tag(row.stuck ? "stuck" : "going", row.state),
    make("span", { class: "what" }, text(row.action), row.job ? " of " : null, jobLink(row.job, attemptOf(row))),
    hosts(row),
    make("span", { class: "why" }, text(row.why)),
  ];
}

/** 10-mount failed (exit 7): "no such device" */
function faultText(fault) {
  return [fault.script ? make("span", { class: "name" }, text(fault.script)) : null, fault.script ? " " : null, text(fault.result),
    fault.line ? ": " : null, fault.line ? make("q", null, text(fault.line)) : null];
}

function verdictRow(row, at) {
  const others = row.bad - (row.fault ? row.fault.count : 0);
  const share = others > 0 ? `; and ${many(others, "other")}` : null;
  return [
    age(row.age_ms, at),
    verdictTag(row.verdict),
    make("span", { class: "what" }, text(row.action), " of ", jobLink(row.job, attemptOf(row))),
    make("span", { class: "of" }, many(row.count, "node"), `, ${elapsed(row.elapsed_ms)}`),
    make("span", { class: "why" }, ...(row.fault ? [row.fault.hosts ? hosts(row.fault) : null, row.fault.hosts ? ": " : null, ...faultText(row.fault), share] : [])),
  ];
}

function draw(status) {
  link.last = status;
  const at = now(), of = status.status;
  fill($("cluster"), text(status.cluster));
  list($("notes"), of.notes, (note) => note, (note) => [text(note)]);
  drawNodes(status);
  const rowKey = (row) => [row.job, row.attempt, row.action, row.state, row.hosts, row.resources].join(" ");
  list($("open"), status.open, rowKey, (row) => openRow(row, at));
  $("open-none").hidden = status.open.length > 0;
  const stuck = status.open.filter((row) => row.stuck).length;
  $("open-count").textContent = status.open.length === 0 ? "" :
    [stuck ? `${stuck} stuck` : null, status.open_left_out ? `${many(status.open_left_out, "row")} more: perilog ps` : null].filter(Boolean).join(", ");
  list($("verdicts"), status.verdicts, (row) => [row.job, row.attempt, row.action].join(" "), (row) => verdictRow(row, at));
  $("verdicts-none").hidden = status.verdicts.length > 0;
  $("drained").hidden = status.drains.length === 0;
  // Hosts that are offline, or never connected, are drained, too: the map shows those that are online.
  const drained = `${many(of.drained, "node")}, ${(fleet.tiles.get("drained")?.count ?? 0).toLocaleString("en")} of them online`;
  $("drains-count").textContent = [drained, status.drains_left_out ? `${many(status.drains_left_out, "reason")} more: perilog drain` : null]
    .filter(Boolean).join("; ");
  list($("drains"), status.drains, (row) => row.reason, (row) => [
    age(row.age_ms, at), tag("drained", many(row.count, "node")), make("span", { class: "what" }, hosts(row, true)), make("span", { class: "why" }, text(row.reason)),
  ]);
  fill($("foot"), `perilog ${of.version}, epoch ${of.epoch}; ${many(of.jobs, "job")} remembered, ${many(of.actions_open, "action")} and ` +
    `${many(of.tasks_open, "task")} open; ${many(of.outbox, "release")} pending.`);
  document.title = `${stuck ? `(${stuck} stuck) ` : ""}perilog ${status.cluster}`;
  if (link.stuck !== null && stuck > link.stuck) say(`${many(stuck, "entry is", "entries are")} stuck.`);
  link.stuck = stuck;
  $("stuck").hidden = stuck === 0;
  fill($("stuck"), `${stuck} stuck`);
}

// ---- A job, or a node

function asked() {
  const [, kind, name] = location.hash.match(/^#(job|node)=(.+)$/) || [];
  try {
    return kind ? { kind, name: decodeURIComponent(name) } : null;
  } catch {
    return null;
  }
}

async function detail() {
  const of = asked();
  $("detail").hidden = !of;
  document.querySelector("main").classList.toggle("detailed", Boolean(of));
  if (!of) return;
  fill($("detail-title"), of.kind === "job" ? "Job " : "Node ", make("span", { class: "name" }, text(of.name)));
  let content;
  try {
    const answer = await ask(`${of.kind}.json?${of.kind}=${encodeURIComponent(of.name)}`);
    content = of.kind === "job" ? timeline(answer) : why(answer);
  } catch (error) {
    if (!error.status) throw error;
    content = [make("p", null, text(error.message))];
  }
  if (asked()?.name === of.name) fill($("detail-body"), ...content);
}

function facts(...pairs) {
  const shown = make("dl", { class: "facts" });
  for (const [name, value] of pairs) if (value !== null && value !== "") shown.append(make("dt", null, name), make("dd", null, value));
  return shown;
}

const clock = (ageMs) => new Date(Date.now() - ageMs).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function timeline(job) {
  const at = now();
  const shown = job.attempts_left_out ? [make("p", { class: "quiet" }, `${many(job.attempts_left_out, "earlier attempt")} not shown`)] : [];
  for (const attempt of [...job.attempts].reverse()) {
    shown.push(make("h3", null, `Attempt ${attempt.attempt}${attempt.open ? "" : ", closed"}`));
    shown.push(facts(
      ["nodes", hosts(attempt)],
      ["held", attempt.held ? `${attempt.held} of ${attempt.count} by the job` : null],
      ["released", attempt.released ? `${attempt.released} of ${attempt.count}` : null],
      ["user", job.userid === undefined ? null : String(job.userid)],
      ["milestones", (attempt.milestones || []).join(", ")],
      ["waits", attempt.waits ? text(attempt.waits) : null],
    ));
    if (attempt.actions_left_out) shown.push(make("p", { class: "quiet" }, `${many(attempt.actions_left_out, "earlier action")} not shown`));
    if (!attempt.actions.length) {
      shown.push(make("p", { class: "quiet" }, "No action has begun."));
      continue;
    }
    const begin = Math.max(...attempt.actions.map((action) => action.began_age_ms));
    const end = Math.min(...attempt.actions.map((action) => action.ended_age_ms ?? 0));
    const length = Math.max(1, begin - end);
    for (const action of attempt.actions) shown.push(...actionLine(action, begin, length, at));
    shown.push(make("div", { class: "axis" }, make("span", null, clock(begin)), make("span", null, end ? clock(end) : "now")));
  }
  return shown;
}

function actionLine(action, begin, length, at) {
  const ended = action.ended_age_ms ?? 0, bad = action.verdict && action.verdict !== "ok";
  const share = (ms) => `${((ms / length) * 100).toFixed(1)}%`;
  const bar = make("div", { class: `bar ${action.after ? "after" : ""} ${bad ? "bad" : ""} ${action.verdict ? "" : "going"}` });
  bar.style.left = share(begin - action.began_age_ms);
  bar.style.width = share(action.began_age_ms - ended);
  const end = action.verdict
    ? make("span", { class: "end" }, verdictTag(action.verdict), ` ${elapsed(action.began_age_ms - ended)}`)
    : make("span", { class: "end" }, tag("going", "open"), " ", age(action.began_age_ms, at, "since"));
  const line = make("div", { class: "line" }, make("span", { class: "name" }, text(action.action)), make("div", { class: "track", "aria-hidden": "true" }, bar), end);
  const sub = make("ul", { class: "sub" });
  sub.append(make("li", { class: "quiet" }, [`${action.ok} of ${action.count} ok`, action.bad ? `${action.bad} failed` : null, action.external ? "run by a service outside" : null].filter(Boolean).join(", ")));
  for (const row of action.open) sub.append(make("li", null, tag(row.stuck ? "stuck" : "going", row.state), " ", hosts(row), " ", text(row.why)));
  if (action.open_left_out) sub.append(make("li", { class: "quiet" }, `${many(action.open_left_out, "row")} more`));
  for (const fault of action.faults) sub.append(make("li", null, fault.hosts ? hosts(fault) : null, fault.hosts ? ": " : null, ...faultText(fault)));
  if (action.faults_left_out) sub.append(make("li", { class: "quiet" }, `${many(action.faults_left_out, "reason")} more`));
  return [line, sub];
}

function why(view) {
  const at = now(), { node } = view, drain = node.drain;
  const shown = [facts(
    ["agent", make("span", null, text(node.state), ", ", age(Math.max(0, Date.now() - node.since_ms), at, "since"))],
    ["version", node.version ?? null],
    ["boot", node.boot ? `${node.boot.slice(0, 8)} (number ${node.boot_number})` : null],
    ["drained", drain ? text(drain.reason) : null],
    ["note", node.note ? text(node.note) : null],
  )];
  const task = (of) => make("li", null,
    tag(of.state === "ended" ? "bad" : ["overdue", "lingering"].includes(of.state) ? "stuck" : "going", of.state), " ",
    text(of.action), " of ", jobLink(of.job, attemptOf(of)), ", ", age(of.age_ms, at, "since"), ": ", text(of.why),
    ...of.next.slice(0, 1).map((next) => make("div", null, make("code", null, text(next)))));
  const part = (title, rows, draw) => {
    if (rows && rows.length) shown.push(make("h3", null, title), make("ul", { class: "sub" }, ...rows.map(draw)));
  };
  part("Not ended here", view.open, task);
  part("Held by", view.held, (row) => make("li", null, text(row.action), " of ", jobLink(row.job, attemptOf(row)), ": ", text(row.why)));
  part("Failed here", view.failed, task);
  part("To type next", view.next, (next) => make("li", null, make("code", null, text(next))));
  if (!view.open.length && !view.held?.length && !drain && node.state === "online") shown.push(make("p", { class: "quiet" }, "Nothing keeps it from its next job."));
  return shown;
}

// ---- Begin

function begin() {
  listenToNodes();
  $("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = $("name").value.trim();
    if (name) location.hash = `${fleet.cells.has(name) ? "node" : "job"}=${encodeURIComponent(name)}`;
  });
  $("close").addEventListener("click", (event) => {
    event.preventDefault();
    history.pushState(null, "", location.pathname);
    detail();
    $("cells").focus();
  });
  addEventListener("hashchange", async () => {
    $("detail-body").replaceChildren();
    try {
      await detail();
    } catch {
      // The next poll says that the controller is away.
    }
    if (asked()) $("detail").focus();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(link.timer) : poll()));
  setInterval(tick, 1000);
  poll();
}

begin();
