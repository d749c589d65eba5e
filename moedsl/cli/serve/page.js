// The page to plan on: a text area above its coloured copy, and the answers of the server to what is typed.

const PAUSE_MS = 150;
const OFFER_MS = 60;
const at = (id) => document.getElementById(id);
const program = at("program"), coloured = at("coloured"), offers = at("offers"), answer = at("answer"), found = at("found");
let words = new Map(); // a word of the language, and its class
let what = "plan";
let marks = []; // where diagnostics point: {start, end, severity} in UTF-16 units
let offered = [], picked = 0;
const shown = { what: "", columns: 0 }; // the answer on the page

async function post(path, body, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const response = await fetch(path, options);
  if (!response.ok) throw new Error(await response.text());
  return response;
}

function later(milliseconds, act) {
  let timer = 0, control = new AbortController();
  const stop = () => { clearTimeout(timer); control.abort(); };
  const start = () => {
    stop();
    control = new AbortController();
    const { signal } = control;
    timer = setTimeout(() => act(signal).catch((e) => { if (!signal.aborted) say(e.message); }), milliseconds);
  };
  return { start, stop };
}

function say(text) { at("said").textContent = text; }

// -- colours ---------------------------------------------------------------------------------------------------------

const PIECE = /(#[^\n]*)|("(?:[^"\\\n]|\\[^\n])*"?)|([0-9][\w.]*)|([A-Za-z_][\w]*)/g;

function classes(text) {
  const spans = [];
  for (const m of text.matchAll(PIECE)) {
    const kind = m[1] ? "comment" : m[2] ? "string" : m[3] ? "number" : words.get(m[4]);
    if (kind) spans.push({ start: m.index, end: m.index + m[0].length, kind });
  }
  return spans;
}

function paint() {
  const text = program.value, spans = classes(text);
  const cuts = new Set([0, text.length]);
  for (const s of [...spans, ...marks]) { cuts.add(Math.min(s.start, text.length)); cuts.add(Math.min(s.end, text.length)); }
  const ends = [...cuts].sort((a, b) => a - b), pieces = [];
  let next = 0;
  for (let i = 0; i + 1 < ends.length; i++) {
    const start = ends[i];
    while (next < spans.length && spans[next].end <= start) next++;
    const span = document.createElement("span");
    span.textContent = text.slice(start, ends[i + 1]);
    if (next < spans.length && spans[next].start <= start) span.classList.add(spans[next].kind);
    for (const m of marks) if (m.start <= start && start < m.end) span.classList.add(m.severity);
    pieces.push(span);
  }
  coloured.replaceChildren(...pieces, "\n");
}

// -- diagnostics -----------------------------------------------------------------------------------------------------

function offset(text, line, column) { // both from 1, the column in code points
  const lines = text.split("\n").slice(0, line);
  const before = lines.slice(0, -1).reduce((sum, l) => sum + l.length + 1, 0);
  return before + [...(lines.at(-1) ?? "")].slice(0, column - 1).join("").length;
}

function diagnose(diagnostics, text) {
  marks = [];
  found.replaceChildren(...diagnostics.map((d) => {
    const label = d.labels.find((l) => l.file === "page.moe" && l.line);
    const start = label ? offset(text, label.line, label.column) : 0;
    if (label) marks.push({ start, end: Math.max(offset(text, label.end_line, label.end_column), start + 1), severity: d.severity });
    const button = document.createElement("button"), head = document.createElement("b");
    head.textContent = `${d.severity}${label ? `, line ${label.line}` : ""}: `;
    const rest = [d.because && `because: ${d.because}`, ...d.help.map((h) => `help: ${h}`)].filter(Boolean);
    button.append(head, [d.message, ...rest].join("\n"));
    button.type = "button";
    button.addEventListener("click", () => { program.focus(); program.setSelectionRange(start, start); });
    const item = document.createElement("li");
    item.className = `of-${d.severity}`;
    item.append(button);
    return item;
  }));
  paint();
}

// -- answers ---------------------------------------------------------------------------------------------------------

const answering = later(PAUSE_MS, async (signal) => {
  const text = program.value, asked = what, since = performance.now();
  answer.classList.add("old");
  shown.columns = columns();
  const made = await (await post("answer", { what: asked, text, columns: shown.columns }, signal)).json();
  if (text !== program.value || asked !== what) return;
  diagnose(made.diagnostics, text);
  at("download").disabled = made.text === null;
  if (made.text !== null) show(asked, made.text);
  else if (asked !== shown.what) answer.replaceChildren();
  say(made.text === null ? "No plan: see the diagnostics" : `Planned in ${((performance.now() - since) / 1000).toFixed(2)} s`);
});

function columns() { // that the answer has room for
  const ruler = document.createElement("pre");
  ruler.className = "ruler";
  ruler.textContent = "0".repeat(100);
  answer.append(ruler);
  const { paddingLeft, paddingRight } = getComputedStyle(ruler), padding = parseFloat(paddingLeft) + parseFloat(paddingRight);
  const room = Math.floor((100 * (answer.clientWidth - padding)) / (ruler.offsetWidth - padding));
  ruler.remove();
  return Math.max(0, room);
}

function show(asked, text) {
  shown.what = asked;
  const element = document.createElement(asked === "report" ? "iframe" : "pre");
  if (asked === "report") {
    element.setAttribute("sandbox", "");
    element.title = "Report";
    element.srcdoc = text;
  } else {
    const [, before, verdict, after] = text.match(/^([^]*?\n)?(FITS|TIGHT|DOES NOT FIT)(?= )([^]*)$/m) ?? [];
    if (asked !== "plan" || !verdict) element.textContent = text;
    else {
      const word = document.createElement("b");
      word.className = verdict === "FITS" ? "good" : "bad";
      word.textContent = verdict;
      element.append(before ?? "", word, after);
    }
  }
  answer.replaceChildren(element);
  answer.classList.remove("old");
}

function choose(tab) {
  for (const other of document.querySelectorAll("[role=tab]")) {
    other.setAttribute("aria-selected", String(other === tab));
    other.tabIndex = other === tab ? 0 : -1;
  }
  what = tab.dataset.what;
  answer.setAttribute("aria-labelledby", tab.id);
  answering.start();
}

// -- what may stand here ---------------------------------------------------------------------------------------------

const offering = later(OFFER_MS, async (signal) => {
  const text = program.value, before = text.slice(0, program.selectionStart);
  const line = before.split("\n").length - 1, character = before.length - before.lastIndexOf("\n") - 1;
  const made = await (await post("complete", { text, line, character }, signal)).json();
  if (text !== program.value || before.length !== program.selectionStart) return;
  const start = before.length - character;
  offered = (made.items ?? []).map((i) => ({ ...i, start: start + i.start, end: start + i.end }));
  const typed = offered.length ? text.slice(offered[0].start, before.length) : "";
  if (offered.length === 1 && offered[0].insert === typed) offered = [];
  picked = 0;
  offer();
});

function offer() {
  offers.hidden = !offered.length;
  program.setAttribute("aria-expanded", String(offered.length > 0));
  offers.replaceChildren(...offered.map((o, i) => {
    const item = document.createElement("li"), name = document.createElement("span"), detail = document.createElement("span");
    name.textContent = o.label;
    detail.textContent = o.detail;
    item.id = `offer-${i}`;
    item.title = o.doc;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", String(i === picked));
    item.append(name, detail);
    item.addEventListener("mousedown", (e) => { e.preventDefault(); insert(o); });
    return item;
  }));
  if (!offered.length) { program.removeAttribute("aria-activedescendant"); return; }
  program.setAttribute("aria-activedescendant", `offer-${picked}`);
  const range = document.createRange(), place = caret();
  range.setStart(place.node, place.offset);
  const box = range.getBoundingClientRect(), editor = at("editor").getBoundingClientRect();
  offers.style.left = `${Math.max(0, Math.min(box.left - editor.left, editor.width - offers.offsetWidth))}px`;
  offers.style.top = `${box.bottom - editor.top + at("editor").scrollTop + 2}px`;
  offers.children[picked].scrollIntoView({ block: "nearest" });
}

function caret() { // where the cursor is in the coloured copy
  let rest = program.selectionStart;
  for (const piece of coloured.childNodes) {
    const node = piece.firstChild ?? piece;
    if (rest <= node.length) return { node, offset: rest };
    rest -= node.length;
  }
  return { node: coloured.lastChild, offset: 0 };
}

function insert(o) {
  program.focus();
  program.setSelectionRange(o.start, Math.max(o.end, program.selectionStart)); // more may be typed than it was offered for
  document.execCommand("insertText", false, o.insert); // the only way that keeps the browser's undo
  close();
}

function close() { offering.stop(); offered = []; offer(); }

program.addEventListener("keydown", (e) => {
  if (e.ctrlKey && e.code === "Space") { e.preventDefault(); offering.start(); return; }
  if (offers.hidden) return;
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (e.key in steps) { picked = (picked + steps[e.key] + offered.length) % offered.length; offer(); }
  else if (e.key === "Tab") insert(offered[picked]);
  else if (e.key === "Enter" && picked) insert(offered[picked]);
  else if (e.key === "Escape") close();
  else return;
  e.preventDefault();
});

program.addEventListener("input", (e) => {
  marks = [];
  paint();
  answering.start();
  if (e.inputType === "insertText" && /[\w=]/.test(e.data ?? "")) offering.start(); else close();
});
program.addEventListener("blur", close);

// -- beginning -------------------------------------------------------------------------------------------------------

function encoded(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function decoded(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
}

function open(text) {
  program.value = text;
  marks = [];
  paint();
  answering.start();
}

function linked() {
  if (!location.hash) return false;
  try { open(decoded(location.hash.slice(1))); } catch { say("The link holds no program"); return false; }
  return true;
}

at("link").addEventListener("click", async () => {
  history.replaceState(null, "", `#${encoded(program.value)}`);
  try { await navigator.clipboard.writeText(location.href); say("The link is copied"); } catch { say("The link is in the address bar"); }
});

at("download").addEventListener("click", async () => {
  try {
    const url = URL.createObjectURL(await (await post("recipe.zip", { text: program.value })).blob());
    const link = Object.assign(document.createElement("a"), { href: url, download: "recipe.zip" });
    link.click();
    URL.revokeObjectURL(url);
  } catch (e) { say(e.message); }
});

document.querySelector("nav").addEventListener("click", (e) => { if (e.target.role === "tab") choose(e.target); });
document.querySelector("nav").addEventListener("keydown", (e) => {
  const tabs = [...document.querySelectorAll("[role=tab]")], step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
  if (!step) return;
  const tab = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  tab.focus();
  choose(tab);
});
window.addEventListener("hashchange", linked);
window.addEventListener("resize", () => { if (what === "plan" && columns() !== shown.columns) answering.start(); });

const start = await (await fetch("start")).json();
words = new Map(Object.entries(start.words).flatMap(([kind, names]) => names.map((name) => [name, kind])));
at("examples").append(...start.examples.map((e) => new Option(e.title || e.name, e.name)));
at("examples").addEventListener("change", () => open(start.examples[at("examples").selectedIndex].text));
if (!linked()) open(start.examples[0].text);
