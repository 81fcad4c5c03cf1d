// Elements made from data. Strings are always inserted as text, never as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "href") element.setAttribute("href", safe(value));
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// Prose with commands in back-ticks, which become code.
export const prose = (text) => String(text).split(/`([^`]+)`/).map((part, i) => (i % 2 ? h("code", {}, part) : part));

export const note = (text) => h("p", { class: "note" }, prose(text));

// A name that breaks only where a word of it begins.
export const breakable = (name) => String(name).split(/(?<=[/_\-@:.])(?=[A-Za-z])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

// Only links within the page are allowed.
const safe = (address) => (String(address).startsWith("#") ? address : "#/");

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// Milliseconds that this page spent waiting for replies to its GET requests.
let waited = 0, asking = 0, since = 0;
export const waitedSoFar = () => waited + (asking ? performance.now() - since : 0);

// A request of a view that was left never resolves, so that nothing is drawn over the next view.
let visit = 0;
export const leave = () => { visit += 1; };

export async function ask(name, parameters = {}, body = null) {
  const mine = visit;
  try {
    const found = await answered(name, parameters, body);
    if (mine === visit) return found;
  } catch (error) {
    if (mine === visit) throw error;
  }
  return new Promise(() => {});
}

async function answered(name, parameters, body) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined) query.append(key, each);
    }
  }
  const options = { headers: { "x-remuda": "1" }, cache: "no-store" };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  if (!body && !asking++) since = performance.now();
  let answer, found;
  try {
    answer = await fetch(`/api/${name}?${query}`, options);
    found = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  } finally {
    if (!body && !--asking) waited += performance.now() - since;
  }
  if (!answer.ok) throw new Error(found.error || `the server answered ${answer.status}`);
  return found;
}

export const address = (page, run) => `#/${page}/${encodeURIComponent(run)}`;

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e6 || (size < 1e-3 && size > 0)) return value.toExponential(2);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 });
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, word] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${word}`;
  }
  return number(value, 3);
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds), hours = Math.floor(whole / 3600);
  const minutes = String(Math.floor(whole / 60) % 60).padStart(hours ? 2 : 1, "0");
  const rest = String(whole % 60).padStart(2, "0");
  return hours ? `${hours}:${minutes}:${rest}` : `${minutes}:${rest}`;
}

export function when(seconds) {
  if (!seconds) return "–";
  const date = new Date(seconds * 1000);
  const options = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
  if (date.getFullYear() !== new Date().getFullYear()) options.year = "numeric";
  return date.toLocaleString("en-GB", options);
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(0)}%`);

export const tile = (value, words) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, words));

export function table(heads, rows, options = {}) {
  return h("div", { class: "scroll" }, h("table", { class: options.class, "aria-label": options.label },
    h("thead", {}, h("tr", {}, heads.map((head) => {
      const [words, kind] = Array.isArray(head) ? head : [head, ""];
      return h("th", { class: kind, scope: "col" }, words);
    }))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => {
      const kind = Array.isArray(heads[i]) ? heads[i][1] : "";
      return h("td", { class: kind }, typeof cell === "string" ? breakable(cell) : cell);
    }))))));
}

export function stateOf(run) {
  const kind = run.damaged ? "broken" : run.state === "is running" ? "running"
    : run.state === "did not end in order" ? "broken" : "";
  return h("span", { class: `state ${kind}` }, run.damaged ? "damaged" : run.state);
}
