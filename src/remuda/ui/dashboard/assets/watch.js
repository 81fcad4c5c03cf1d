// Episodes of a run's policies, which the server plays at the viewer's pace; a person may play along.

import { Chart, colours } from "./charts.js";
import { ask, breakable, fill, h, note, number, table } from "./dom.js";

const AHEAD = 30, ME = "me", ALIVE = 30000;

export function make(main, id) {
  const here = { end, update, shown: false };
  let name = null, about = null, turns = [], over = false, at = 0, playing = true, speed = 5, agent = null, loading = false, timer = null, chart = null, seed = 0, mayAsk = false, read = 0, question = null, polled = 0;
  const seats = new Map();
  const picture = h("img", { alt: "", hidden: true }), words = h("p", { class: "quiet", role: "status" }), earned = h("div", {}), chose = h("div", { class: "chart" });
  const turnOfMine = h("div", { class: "bar", role: "group", "aria-label": "Your action" });
  const keep = h("button", { hidden: true, onclick: download }, "Keep the trajectory");
  const fault = h("div", {}), places = h("div", { class: "bar", role: "group", "aria-label": "Policies by agent" }), explained = h("select", { "aria-label": "Agent whose choice is explained", onchange: (event) => { agent = event.target.value; draw(); } });
  const pause = h("button", { class: "main", onclick: () => { playing = !playing; control(); } }, "Pause");
  const slide = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Turn", oninput: (event) => { playing = false; at = Number(event.target.value); control(); draw(); } });
  const pace = h("select", { "aria-label": "Turns a second", onchange: (event) => { speed = Number(event.target.value); control(); } }, [1, 2, 5, 10, 20].map((each) => h("option", { selected: each === 5, value: each }, `${each} turns/s`)));
  const number_ = h("input", { type: "number", min: 0, value: 0, style: "width: 6rem", "aria-label": "Seed of the game" });
  const draws = h("input", { type: "checkbox", id: "sampled" }), live = h("input", { type: "checkbox", id: "live", onchange: begin });
  const weights = h("p", { class: "quiet" });
  const step = (by) => { playing = false; at = Math.max(0, Math.min(at + by, turns.length - 1)); control(); draw(); more(); };

  function layout() {
    fill(main, h("h1", {}, breakable(`Watch ${id}`)), weights, fault, places,
      h("div", { class: "bar" }, "seed", number_, draws, h("label", { for: "sampled" }, "explore as in training"), mayAsk ? [live, h("label", { for: "live" }, "use the current weights")] : [], h("button", { onclick: begin }, "Play from the start")),
      h("div", { class: "stage" },
        h("section", { class: "card", "aria-label": "The game" }, picture, turnOfMine, words,
          h("div", { class: "bar", role: "group", "aria-label": "Playback" }, h("button", { onclick: () => step(-1), "aria-label": "One turn back" }, "◀"), pause,
            h("button", { onclick: () => step(1), "aria-label": "One turn forward" }, "▶"), pace, slide, keep)),
        h("section", { class: "card", "aria-label": "Choices" }, h("div", { class: "bar" }, h("h2", {}, "How it chose"), explained), chose, earned)));
    here.shown = true;
  }

  async function begin() {
    seed = Math.max(0, Math.floor(Number(number_.value) || 0));
    abandon();
    turns = []; over = false; at = 0; playing = true; read = 0;
    fill(fault);
    fill(words, "Loading the policies…");
    try {
      name = (await ask("watch", {}, { run: id, seats: Object.fromEntries(seats), seed, sampled: draws.checked, live: live.checked })).watch;
    } catch (error) {
      fill(fault, note(error.message));
      return;
    }
    about = null;
    await more();
    control();
  }

  async function more() {
    if (!name || loading || over || turns.length > at + AHEAD) return;
    if (question && Date.now() - polled < ALIVE) return;  // the server ends episodes that no page watches
    polled = Date.now();
    await take(() => ask("watched", { watch: name, first: read, count: about === null ? 2 : 10 }));
  }

  // Sends the action of a person; the reply has the turns until the next question.
  async function act(action) {
    if (!question || loading) return;
    question = null;
    playing = true;
    control();
    await take(() => ask("act", {}, { watch: name, action, first: read }));
  }

  async function take(request) {
    loading = true;
    const requested = name;
    try {
      const found = await request();
      if (requested !== name) return;
      for (const line of found.lines) {
        if (line.error) fill(fault, note(line.error));
        else if (line.agents) settle(line);
        else if (line.question) { question = line.question; polled = Date.now(); }
        else turns.push(line);
      }
      read += found.lines.length;
      over = found.over;
      if (plays()) at = Math.max(turns.length - 1, 0);
      draw();
    } catch (error) {
      if (requested === name) { fill(fault, note(error.message)); over = true; }
    } finally {
      loading = false;
    }
  }

  const plays = () => about !== null && Object.values(about.seats).includes(ME);

  // Ends an episode that waits for a person.
  function abandon() {
    if (name && plays() && !over) ask("act", {}, { watch: name, action: null }).catch(() => {});
    name = question = null;
  }

  // What the agents did, as JSON; the pictures stay behind.
  function download() {
    const kept = turns.map(({ turn, actions, returns }) => ({ turn, actions, returns }));
    const text = JSON.stringify({ run: id, game: about.game, seed, seats: about.seats, versions: about.versions, turns: kept }, null, 1);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = `${about.game}-${seed}.json`.replaceAll(/[^\w.-]/g, "_");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function drawQuestion() {
    keep.hidden = !(over && plays());
    turnOfMine.hidden = !question;
    if (!question) return;
    fill(turnOfMine, h("b", {}, `${question.agent}, your turn: ${question.words}`), question.allowed.map((action) =>
      h("button", { class: "main", onclick: () => act(action) }, question.names[action])));
  }

  function settle(line) {
    const first = about === null;
    about = line;
    if (!first) return;
    fill(weights, line.live ? "Played with the weights that the run was using." : "Played with the newest weights that the run has saved.");
    agent = line.agents.includes(agent) ? agent : line.agents[0];
    fill(explained, line.agents.map((each) => h("option", { value: each, selected: each === agent }, each)));
    const choices = [...line.policies, ...line.scripted, "random"];
    fill(places, line.agents.slice(0, 24).map((each) => {
      const list = [...new Set([line.seats[each], ...choices, ...(line.playable.includes(each) ? [ME] : [])])];
      return h("label", {}, `${each} `, h("select", { "aria-label": `Policy of ${each}`, onchange: (event) => { seats.set(each, event.target.value); begin(); } },
        list.map((choice) => h("option", { value: choice, selected: choice === line.seats[each] }, choice))),
        each in line.versions && h("span", { class: "quiet" }, ` version ${number(line.versions[each])}`));
    }));
  }

  function control() {
    clearInterval(timer);
    fill(pause, playing ? "Pause" : "Play");
    pause.setAttribute("aria-pressed", String(playing));
    timer = setInterval(() => {
      if (document.hidden) return;
      if (playing && at < turns.length - 1) { at += 1; draw(); }
      more();
    }, 1000 / speed);
  }

  function draw() {
    const turn = turns[at];
    drawQuestion();
    if (!turn) return;
    slide.max = String(turns.length - 1);
    slide.value = String(at);
    const shown = question && at === turns.length - 1 ? question.picture : turn.picture;
    picture.hidden = !shown;
    if (shown) picture.src = `data:image/png;base64,${shown}`;
    picture.alt = `The game after turn ${turn.turn}`;
    fill(words, `turn ${turn.turn}`, turn.over ? " · the episode is over" : "", turn.picture ? "" : " · this environment draws no pictures");
    fill(earned, table(["agent", "action", ["return so far", "num"]], about.agents.slice(0, 40).map((each) => {
      const did = turn.actions[each];
      return [each, did === undefined ? "–" : Array.isArray(did) ? did.map((value) => number(value, 3)).join(", ") : String(did), number(turn.returns[each])];
    }), { label: "Agents" }));
    const by = turn.chose_by[agent];
    chose.hidden = !by;
    if (!by) return;
    const kind = by.probabilities ? "probabilities" : "values", values = by[kind];
    const known = values.filter((value) => value !== null), low = kind === "values" ? Math.min(...known) : 0;
    const room = kind === "values" ? 0.1 * (Math.max(...known) - low) || 1 : 0;  // the smallest value has a bar, too
    const order = values.map((value, i) => [by.names[i], value]).reverse();
    chart ??= new Chart(chose, "The policy's value of each action");
    chart.show(() => ({
      grid: { left: 8, right: 54, top: 24, bottom: 8, containLabel: true },
      title: { text: by.expects === undefined ? kind : `${kind} · expects ${number(by.expects, 3)} (discounted)`, textStyle: { fontSize: 12, fontWeight: "normal", color: "gray" } },
      xAxis: { type: "value", min: 0, ...(kind === "values" ? { axisLabel: { show: false }, splitLine: { show: false } } : { max: 1 }) },
      yAxis: { type: "category", data: order.map(([label]) => label) },
      series: [{ type: "bar", barMaxWidth: 18, data: order.map(([label, value]) => ({ value: value === null ? null : value - low + room, itemStyle: { color: colours()[String(turn.actions[agent]) === label ? 1 : 0] } })),
        label: { show: true, position: "right", formatter: ({ dataIndex: i }) => (order[i][1] === null ? "not allowed" : number(order[i][1], 3)) } }],
    }));
  }

  async function update() {
    if (!here.shown) {
      const found = await ask("run", { run: id });  // fails if the run does not exist
      mayAsk = found.control && found.running;
      draws.checked = found.settings["run.evaluate_sampled"] === true;  // the default is the run's setting
      layout();
      await begin();
    }
    return Infinity;
  }

  function end() { clearInterval(timer); chart?.end(); abandon(); }
  return here;
}
