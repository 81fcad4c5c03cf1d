// All runs: a table to filter and sort, and the curves of the selected runs.

import { Chart, lines } from "./charts.js";
import { address, ask, breakable, fill, h, note, number, stateOf, table, when } from "./dom.js";

const HEADS = [
  ["run", "id", "name"], ["game", "game", "name"], ["state", "state", "ended"], ["turns", "turns", "num extra"],
  ["algorithm", "algorithm", "extra"], ["seed", "seed", "num"], ["best return", "best", "num"], ["last active", "last", "num"],
];
const MOST = 60, SHOWN = 200, SETTINGS = 5;

export function make(main) {
  const here = { end, update, shown: false };
  let found = null, changes = -1, sort = ["last", -1], words = "", selected = new Set(), chart = null;
  let axis = "turns", column = "mean_return", more = SHOWN, dirty = true, compared = 0;

  const filter = h("input", { type: "search", placeholder: "Filter: game, path, state, algorithm", "aria-label": "Filter runs", size: 34,
    oninput: (event) => { words = event.target.value.toLowerCase(); more = SHOWN; draw(); } });
  const count = h("span", { class: "quiet", role: "status" });
  const body = h("div", {}), plot = h("div", { class: "chart tall" }), differ = h("div", {}), about = h("p", { class: "quiet" });
  const pick = h("select", { "aria-label": "Column to draw", onchange: (event) => { column = event.target.value; dirty = true; compare(); } });
  const over = h("select", { "aria-label": "Horizontal axis", onchange: (event) => { axis = event.target.value; dirty = true; compare(); } },
    ["turns", "seconds", "steps"].map((each) => h("option", {}, each)));
  const panel = h("section", { class: "card", hidden: true, "aria-label": "Curves of the selected runs" },
    h("div", { class: "bar" }, h("h2", {}, "Selected runs"), pick, "over", over,
      h("button", { onclick: () => { selected.clear(); draw(); compare(); } }, "Clear selection")),
    about, plot, differ);
  const title = h("h1", {}, "Runs");

  async function update() {
    const news = await ask("runs", { since: changes });
    changes = news.changes;
    if (news.runs) {
      found = news;
      draw();
    }
    if (selected.size && (news.runs || Date.now() - compared > 5000)) await compare();
    return found && found.complete ? 2000 : 250;
  }

  function matching() {
    const parts = words.split(/\s+/).filter(Boolean);
    const text = (run) => `${run.id} ${run.game} ${run.state} ${run.algorithm} ${run.damaged ? "damaged" : ""}`.toLowerCase();
    const kept = found.runs.filter((run) => parts.every((part) => text(run).includes(part)));
    const [by, way] = sort, value = (run) => (by in run ? run[by] : run.settings[by]);
    return kept.sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === b) return one.id < other.id ? -1 : 1;
      if (a === null || a === undefined) return 1;
      if (b === null || b === undefined) return -1;
      return (a < b ? -1 : 1) * way;
    });
  }

  // The settings that differ between these runs, as heads of columns.
  function settingsOf(kept) {
    const differ = found.columns.filter((key) => new Set(kept.map((run) => run.settings[key]).filter((value) => value !== null && value !== undefined)).size > 1);
    const last = (key) => key.split(".").at(-1);
    const taken = (word) => HEADS.some(([text]) => text === word) || differ.filter((key) => last(key) === word).length > 1;
    return differ.slice(0, SETTINGS).map((key) => [taken(last(key)) ? key : last(key).replaceAll("_", " "), key,
      kept.every((run) => typeof (run.settings[key] ?? 0) === "number") ? "num" : ""]);
  }

  function draw() {
    if (!here.shown) {
      fill(main, title, h("div", { class: "bar" }, filter, count), panel, body);
      here.shown = true;
    }
    const kept = matching();
    fill(title, "Runs ", h("span", { class: "quiet" }, `in ${found.directory}`));
    fill(count, found.complete ? `${kept.length} of ${found.runs.length} runs` : `${found.runs.length} runs so far…`);
    const settings = settingsOf(kept), columns = [...HEADS.slice(0, 5), ...settings, ...HEADS.slice(5)];
    const heads = [h("span", { class: "quiet", title: "Select runs to compare their curves" }, "✓"), ...columns.map(([text, by]) =>
      h("button", { title: by.includes(".") ? by : null, onclick: () => { sort = [by, sort[0] === by ? -sort[1] : by === "id" || by === "game" ? 1 : -1]; draw(); },
        "aria-label": `Sort by ${text}` }, text, sort[0] === by ? (sort[1] > 0 ? " ▲" : " ▼") : ""))];
    const rows = kept.slice(0, more).map((run) => [
      h("input", { type: "checkbox", "aria-label": `Compare ${run.id}`, checked: selected.has(run.id), onchange: (event) => {
        if (event.target.checked && selected.size < MOST) selected.add(run.id); else selected.delete(run.id);
        event.target.checked = selected.has(run.id);
        compare();
      } }),
      h("a", { href: address("run", run.id) }, breakable(run.id)), run.game, stateOf(run), number(run.turns), run.algorithm ?? "–",
      ...settings.map(([, key]) => number(run.settings[key])), number(run.seed), number(run.best), when(run.last),
    ]);
    const focused = document.activeElement?.getAttribute("aria-label");
    fill(body, found.runs.length
      ? table(heads.map((head, i) => [head, i ? columns[i - 1][2] : ""]), rows, { class: "runs", label: "Runs" })
      : note(found.complete ? "There is no run here yet. Start one with `remuda train treasure_hunt`." : "Looking…"),
    kept.length > more && h("button", { onclick: () => { more += 1000; draw(); } }, `Show ${kept.length - more} more`),
    found.runs.some((run) => run.damaged) && h("details", {}, h("summary", {}, "Damaged runs"),
      found.runs.filter((run) => run.damaged).slice(0, 100).map((run) => note(`${run.id}: ${run.damaged}`))));
    if (focused && body.contains(document.activeElement) === false) {
      body.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
  }

  async function compare() {
    panel.hidden = !selected.size;
    if (!selected.size) return;
    compared = Date.now();
    const data = await ask("compare", { run: [...selected], axis, column });
    const names = data.columns.includes(column) ? data.columns : [column, ...data.columns];
    if (dirty || pick.options.length !== names.length) {
      fill(pick, names.map((name) => h("option", { value: name, selected: name === column }, name.replaceAll("_", " "))));
      dirty = false;
    }
    chart ??= new Chart(plot, "Curves of the selected runs");
    lines(chart, data.groups.map((group) => ({ name: group.runs.length > 1 ? `${group.name} (${group.runs.length} seeds)` : group.name, curve: group.curve })), axis);
    fill(about, "Bands are standard errors over runs that differ only in their seed; for a single run, the minimum and maximum within each interval.");
    const different = Object.entries(data.different);
    fill(differ, different.length > 0 && h("details", { open: different.length < 8 }, h("summary", {}, "Settings that differ"),
      table(["key", ...[...data.groups.flatMap((group) => group.runs)]], different.map(([key, values]) => [key, ...values.map((value) => number(value))]),
        { label: "Settings that differ" })));
  }

  function end() { chart?.end(); }
  return here;
}
