// One run: its progress, curves, processes, logs and configuration.

import { Chart, lines } from "./charts.js";
import { address, ask, breakable, fill, h, note, number, percent, prose, rate, span, stateOf, table, tile } from "./dom.js";

const COLUMNS = [
  ["mean_return", "Return, mean over episodes"], ["loss", "Loss"], ["entropy", "Entropy"], ["staleness", "Staleness, versions"],
  ["replay_ratio", "Replay ratio"], ["epsilon", "Exploration rate"], ["explained_variance", "Explained variance"],
];
const FEW = 8, MOST = 60;  // policies in a chart, columns in a request
const natural = new Intl.Collator("en", { numeric: true }).compare;

// Values of options are JSON; other text is a string.
const valueOf = (text) => { try { return JSON.parse(text); } catch { return text.trim(); } };
const textOf = (value) => (typeof value === "string" && valueOf(value) === value ? value : JSON.stringify(value));

export function make(main, id) {
  const here = { end, update, shown: false };
  const charts = new Map();
  let data = null, axis = "turns", drawn = -1, question = 0, offered = false, log = null, own = [];
  const head = h("div", {}), tiles = h("div", { class: "tiles" }), notes = h("div", {}), grid = h("div", { class: "grid" });
  const control = h("section", { class: "card", hidden: true, "aria-label": "Control" }), message = h("span", { role: "status" });
  const roles = h("div", {}), policies = h("div", {}), logs = h("div", {}), rest = h("div", {});
  const over = h("select", { "aria-label": "Curves over", onchange: (event) => { axis = event.target.value; redraw(); } },
    ["turns", "seconds", "steps"].map((each) => h("option", {}, each)));
  const add = h("select", { "aria-label": "Draw another column", onchange: (event) => {
    if (event.target.value) own.push(event.target.value);
    event.target.value = "";
    redraw();
  } });

  async function update() {
    data = await ask("run", { run: id });
    if (!here.shown) {
      fill(main, head, notes, tiles, control, h("div", { class: "bar" }, "Curves over", over, add), grid,
        h("div", { class: "grid" }, h("section", { class: "card wide" }, h("h2", {}, "Policies"), policies),
          h("section", { class: "card wide" }, h("h2", {}, "Roles"), roles, logs), h("section", { class: "card wide" }, h("h2", {}, "Configuration"), rest)));
      here.shown = true;
      drawOnce();
    }
    draw();
    offer();
    if (data.read_bytes !== drawn) await curves();
    return data.running ? 1000 : data.complete ? 5000 : 300;
  }

  // A run that is starting or has finished training refuses requests; the next poll tries again.
  function offer() {
    const may = data.control && data.running;
    if (may && !offered) {
      offered = true;
      controls().then(offer).catch(() => { offered = false; });
    }
    control.hidden = !(may && control.hasChildNodes());
  }

  function drawOnce() {
    const settings = Object.entries(data.settings);
    const find = h("input", { type: "search", placeholder: "Find a key", "aria-label": "Find a key of the configuration", oninput: () => list() });
    const place = h("div", {});
    const list = () => fill(place, table(["key", "value"], settings.filter(([key]) => key.includes(find.value)).slice(0, 400)
      .map(([key, value]) => [key, value === null ? "null" : String(value)]), { label: "Configuration" }));
    fill(rest, h("details", {}, h("summary", {}, `${settings.length} settings`), h("div", { class: "bar" }, find), place));
    list();
    fill(add, h("option", { value: "" }, "Draw another column…"), data.columns.map((name) => h("option", { value: name }, name)));
  }

  function draw() {
    const status = data.status, summary = data.summary;
    fill(head, h("h1", {}, breakable(id)), h("p", { class: "quiet" }, stateOf(data.run), ` · ${data.run.game} · seed ${number(data.run.seed)}`,
      status ? ` · ${status.schedule}` : "", summary ? ` · ${summary.layout}` : "",
      data.ledger && [" · ", h("a", { href: address("population", id), class: "link" }, "its population")],
      data.trace && [" · ", h("a", { href: address("timeline", id), class: "link" }, "its timeline")]));
    fill(notes,
      data.damaged && note(`Damaged: ${data.damaged}`),
      data.damaged_lines > 0 && note(`${data.damaged_lines} lines of metrics.jsonl are damaged and were skipped`),
      !data.complete && h("p", { class: "quiet" }, "Its metrics are still being read; the curves are incomplete."),
      data.every > 1 && h("p", { class: "quiet" }, `The run is long: one of every ${data.every} records is drawn.`),
      (status?.errors ?? []).slice(-3).map((error) => note(error.message)));
    const late = status && data.running && status.age > 5 ? h("span", { class: "bad" }, ` (${span(status.age)} ago)`) : "";
    fill(tiles, status
      ? [tile(number(status.turns), ["turns", late]), tile(span(status.seconds), "running time"), tile(rate(status.agent_steps_per_second), "agent-steps/s"),
        tile(percent(status.shares?.wait), "of the actors' time spent waiting"), tile(number(status.wait_seconds), "seconds waited in total"),
        status.matches > 0 && tile(number(status.matches), "matches"),
        tile(number(data.checkpoints), "checkpoints"), tile(data.best ? number(data.best.mean_return) : "–", `best ${data.best?.sampled ? "sampled" : "greedy"} return`)]
      : note("There is no status: the run has not started, or its files are damaged."));
    if (!status) return;
    const names = Object.keys(status.policies);
    fill(policies, names.length > 0 && table(["policy", ["return", "num"], ["updates", "num"], ["version", "num"], ["staleness", "num"], ["replay ratio", "num"], ["busy", "num"], ["not finite", "num"]],
      names.slice(0, 200).map((name) => {
        const each = status.policies[name];
        return [name, number(each.mean_return), number(each.updates), number(each.version), number(each.staleness), number(each.replay_ratio),
          percent(each.busy), each.halted ? h("span", { class: "bad" }, "stopped") : number(each.nonfinite)];
      }), { label: "Policies" }), names.length > 200 && h("p", { class: "quiet" }, `and ${names.length - 200} more`));
    const over = !data.running || Boolean(status.ended);
    fill(roles, table(["role", ["process", "num"], "state", ["last heartbeat", "num"], ["processors", "num"], ["restarts", "num"], "last problem", "log"],
      status.roles.map((role) => [role.name, over ? "" : role.pid ?? "", over ? "ended" : role.state,
        h("span", { class: !over && role.heartbeat_age > 5 ? "bad" : "" }, !over ? span(role.heartbeat_age) : "–"),
        role.processor === null || role.processor === undefined ? "–" : role.processor.toFixed(2), role.restarts, role.problem,
        data.logs.includes(role.log) && h("button", { onclick: () => openLog(role.log), "aria-label": `Log of ${role.name}` }, "log")]), { label: "Roles" }));
  }

  // The requests that a run accepts. Stopping needs a second click.
  async function controls() {
    const send = async (words, request) => {
      fill(message, `${words}…`);
      try {
        const { done } = await ask("control", {}, { run: id, ...request });
        fill(message, prose(done));
      } catch (error) { fill(message, prose(error.message)); }
    };
    const known = (await ask("control", {}, { run: id, do: "list" })).done;
    const policy = h("select", { "aria-label": "Policy", onchange: () => names() }, h("option", { value: "" }, "all policies"), Object.keys(known).map((name) => h("option", { value: name }, name)));
    const what = h("select", { "aria-label": "Hyperparameter", onchange: () => value() });
    const to = h("input", { type: "number", step: "any", "aria-label": "New value", style: "width: 9rem" });
    const of = () => known[policy.value] ?? Object.values(known)[0] ?? {};
    const value = () => { to.value = of()[what.value] ?? ""; };
    const names = () => { fill(what, Object.keys(of()).map((name) => h("option", { value: name }, name))); value(); };
    const stop = h("button", { onclick: () => {
      if (stop.dataset.sure) send("Stop requested", { do: "stop" });
      else { stop.dataset.sure = "yes"; fill(stop, "Stop: sure?"); setTimeout(() => { delete stop.dataset.sure; fill(stop, "Stop the run"); }, 4000); }
    } }, "Stop the run");
    names();
    const environment = await optionControls(send).catch(() => null);  // the other controls work without it
    fill(control, h("div", { class: "bar" }, h("h2", {}, "Control"), h("button", { onclick: () => send("Checkpoint requested", { do: "checkpoint" }) }, "Save a checkpoint"), stop,
      policy, what, to, h("button", { onclick: () => {
        if (to.value === "") fill(message, "Enter a number; nothing was changed");  // a half-typed number is empty, too
        else send("Change requested", { do: "set", policy: policy.value || null, values: { [what.value]: Number(to.value) } });
      } }, "Set"), environment, message));
  }

  // The environment options that the run may change; nothing if its environment declares none.
  async function optionControls(send) {
    const read = async () => (await ask("control", {}, { run: id, do: "list_options" })).done;
    let known = await read();
    if (!Object.keys(known).length) return null;
    const what = h("select", { "aria-label": "Environment option", onchange: () => value() }, Object.keys(known).map((name) => h("option", { value: name }, name)));
    const to = h("input", { type: "text", "aria-label": "New value of the option", style: "width: 9rem" });
    const value = () => { to.value = known[what.value] === null ? "" : textOf(known[what.value]); };
    value();
    return [what, to, h("button", { "aria-label": "Set the option", onclick: async () => {
      if (to.value.trim() === "") { fill(message, "Enter a value; nothing was changed"); return; }
      await send("Change requested", { do: "set_option", name: what.value, value: valueOf(to.value) });
      known = await read().catch(() => known);
      value();
    } }, "Set from the next reset")];
  }

  async function openLog(name) {
    log = name;
    const found = await ask("log", { run: id, name });
    const text = h("pre", { tabindex: "0", "aria-label": `Log ${name}` }, found.text || "(empty)");
    fill(logs, h("div", { class: "bar" }, h("h2", {}, name), found.cut && h("span", { class: "quiet" }, `the end of ${number(found.bytes)} bytes`),
      h("button", { onclick: () => openLog(name) }, "Read again"), h("button", { onclick: () => { log = null; fill(logs); } }, "Close")), text);
    text.scrollTop = text.scrollHeight;
  }

  // The charts: each column for all policies that have it, a few columns of the run, and the columns that the user added.
  function groupsToDraw() {
    const has = new Set(data.columns), found = [], several = Object.keys(data.status?.policies ?? {}).length > 1;
    for (const [column, words] of COLUMNS) {
      const every = data.columns.filter((name) => name.endsWith(`/${column}`) && !/^(run|actor|game|population)\//.test(name)).sort(natural);
      if (every.length) found.push([words, every.slice(0, FEW), (name) => name.slice(0, -column.length - 1), { legend: several }]);
    }
    const speed = ["run/agent_steps_per_second", "run/turns_per_second"].filter((name) => has.has(name));
    if (speed.length) found.push(["Throughput, 1/s", speed.slice(0, 1), () => "agent-steps/s"]);
    const shares = data.columns.filter((name) => name.startsWith("actor/"));
    if (shares.length) found.push(["Where the actors' time goes", shares, (name) => name.slice(6), { area: true, most: 1 }]);
    const game = data.columns.filter((name) => name.startsWith("game/"));
    if (game.length) found.push(["Episode metrics", game.slice(0, FEW), (name) => name.slice(5).replaceAll("_", " ")]);
    for (const name of own) found.push([name, [name], () => name]);
    return found;
  }

  // The query has changed; if there is no reply, the next poll tries again.
  function redraw() {
    drawn = -1;
    curves().catch(() => {});
  }

  async function curves() {
    const shownAxis = axis, mine = ++question;
    const read = data.read_bytes;
    const groups = groupsToDraw();
    const columns = [...new Set(groups.flatMap(([, names]) => names))];
    if (!columns.length) {
      clear();
      fill(grid, h("p", { class: "quiet" }, "There are no records yet."));
      drawn = read;
      return;
    }
    const parts = Array.from({ length: Math.ceil(columns.length / MOST) }, (_, i) => columns.slice(MOST * i, MOST * (i + 1)));
    const answers = await Promise.all(parts.map((column) => ask("curves", { run: id, axis: shownAxis, column })));
    const found = Object.assign({}, ...answers.map((each) => each.columns));
    if (mine !== question) return;  // a newer query replaces this one
    drawn = read;
    for (const [title, names, short, extra] of groups) {
      const known = names.filter((name) => found[name]?.x.length);
      if (!known.length) continue;
      if (!charts.has(title)) {
        if (!charts.size) fill(grid);
        const place = h("div", { class: "chart" });
        grid.append(h("section", { class: "card", "aria-label": title }, h("h2", {}, title), place));
        charts.set(title, new Chart(place, title));
      }
      const alone = known.length === 1;
      lines(charts.get(title), known.map((name) => ({ name: short(name), curve: alone ? found[name] : { x: found[name].x, y: found[name].y } })), shownAxis, extra);
    }
  }

  function end() {
    offered = true;  // request no controls any more
    clear();
  }

  function clear() {
    for (const chart of charts.values()) chart.end();
    charts.clear();
  }
  return here;
}
