// A population: payoffs, ratings, the equilibrium and the lineage of its policies.

import { against, Chart, colours, heat, lines } from "./charts.js";
import { ask, breakable, fill, h, note, number, percent, prose, table } from "./dom.js";

const natural = new Intl.Collator("en", { numeric: true }).compare;
const heading = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
const MEASURES = ["diversity", "nash_support", "nash_entropy", "exploitability", "transitive_share", "fitness_mean"];

export function make(main, id) {
  const here = { end, update, shown: false };
  const charts = new Map(), captions = new Map();
  const notes = h("div", {}), members = h("div", {}), grid = h("div", { class: "grid" });

  function chart(title, words, kind = "chart") {
    if (!charts.has(title)) {
      const place = h("div", { class: kind });
      const caption = h("p", { class: "quiet" });
      grid.append(h("section", { class: kind.includes("tall") ? "card wide" : "card", "aria-label": title }, h("h2", {}, title), caption, place));
      charts.set(title, new Chart(place, title));
      captions.set(title, caption);
    }
    fill(captions.get(title), words);
    return charts.get(title);
  }

  async function update() {
    const [data, run] = await Promise.all([ask("population", { run: id }), ask("run", { run: id })]);
    if (!here.shown) {
      fill(main, h("h1", {}, breakable(`Population of ${id}`)), notes, grid, h("section", { class: "card" }, h("h2", {}, "Members"), members));
      here.shown = true;
    }
    // of teams and of many seats, the run's own analysis has the equilibrium
    const analysed = Object.values(run.status?.members ?? {}).some((each) => (each.nash ?? null) !== null);
    fill(notes, data.none && note(data.none), data.mixture_none && !analysed && h("p", { class: "quiet" }, prose(`Equilibrium: ${data.mixture_none}`)));
    drawMembers(run, data);
    if (data.payoffs) {
      drawPayoffs(data.payoffs);
      if (data.map) drawMap(data.payoffs.names, data.map, data.payoffs.means);
      if (data.mixture) drawMixture(data.payoffs.names, data.mixture);
    }
    if (data.lineage?.length) drawLineage(data.lineage);
    await drawCurves(run);
    return run.running ? 3000 : 15000;
  }

  function drawMembers(run, data) {
    const found = Object.entries(run.status?.members ?? {});
    found.sort((one, other) => other[1].rating - one[1].rating);
    const mixture = new Map((data.payoffs?.names ?? []).map((name, i) => [name, data.mixture?.[i]]));
    fill(members, found.length
      ? table(["member", ["rating", "num"], ["wins", "num"], ["seats", "num"], ["mean return", "num"], ["total reward", "num"], ["welfare", "num"], ["in the equilibrium", "num"], "parent"],
        found.slice(0, 300).map(([name, each]) => [each.learns ? h("b", {}, name) : name, `${number(each.rating, 3)} ± ${number(each.uncertainty, 2)}`,
          percent(each.win_rate), number(each.games), number(each.mean_return), number(each.total_reward), number(each.welfare), percent(mixture.get(name) ?? each.nash), each.parent ?? ""]), { label: "Members" })
      : h("p", { class: "quiet" }, "Every policy of this run keeps its own seat, so there is no population."));
  }

  // In self-play only the learner meets the others: its row says everything.
  function drawPayoffs({ names, means, errors, matches }) {
    const met = (i, j) => i !== j && means[i][j] !== null;
    const hub = names.findIndex((_, i) => names.every((_, j) => j === i || names.every((_, k) => k === i || !met(j, k))));
    if (names.length > 2 && hub >= 0) against(chart("Payoffs", `Mean return per match of ${names[hub]} against each member, ± standard error. No two others have met.`), names, means[hub], errors[hub], matches[hub], hub);
    else heat(chart("Payoffs", "Mean return per match of the row's policy against the column's.", "chart tall"), names, means, errors, matches);
  }

  function drawMap(names, positions, means) {
    const score = means.map((row) => { const known = row.filter((v) => v !== null); return known.reduce((a, b) => a + b, 0) / Math.max(known.length, 1); });
    chart("Map", "Members with similar payoffs are close together (multidimensional scaling). Larger points earn more.").show(() => ({
      grid: { left: 10, right: 20, top: 14, bottom: 10, containLabel: true },
      tooltip: { formatter: ({ dataIndex: i }) => `${names[i]}\n${number(score[i])} per match on average` },
      xAxis: { type: "value", scale: true, axisLabel: { show: false } }, yAxis: { type: "value", scale: true, axisLabel: { show: false } },
      series: [{ type: "scatter", data: positions.map((at) => at.slice(0, 2)),
        symbolSize: (_, { dataIndex: i }) => { const low = Math.min(...score), high = Math.max(...score); return 8 + 16 * ((score[i] - low) / (high - low || 1)); },
        itemStyle: { color: ({ dataIndex: i }) => colours()[names[i].includes("@") ? 9 : 0], opacity: 0.8 },
        label: { show: names.length <= 24, position: "right", formatter: ({ dataIndex: i }) => names[i], fontSize: 10 } }],
    }));
  }

  function drawMixture(names, mixture) {
    const played = names.map((name, i) => [name, mixture[i] ?? 0]).filter(([, share]) => share > 1e-4).sort((one, other) => one[1] - other[1]);
    chart("Equilibrium", "The share of each member in the Nash equilibrium of the mean payoffs.").show(() => ({
      grid: { left: 8, right: 40, top: 8, bottom: 8, containLabel: true }, tooltip: { formatter: ({ name, value }) => `${name}: ${percent(value)}` },
      xAxis: { type: "value", max: 1, axisLabel: { formatter: percent } }, yAxis: { type: "category", data: played.map(([name]) => name), axisLabel: { width: 110, overflow: "truncate" } },
      series: [{ type: "bar", data: played.map(([, share]) => share), barMaxWidth: 18, label: { show: true, position: "right", formatter: ({ value }) => percent(value) } }],
    }));
  }

  // Each policy is a line from its birth to the next birth in the slot; an arrow leads from the parent to the birth.
  function drawLineage(births) {
    const rows = [...new Set(births.map((born) => born.policy))], last = Math.max(...births.map((born) => born.matches), 1) * 1.05;
    const lives = births.map((born) => {
      const next = births.find((other) => other.policy === born.policy && other.generation === born.generation + 1);
      return { ...born, end: next ? next.matches : last };
    });
    const fates = lives.map((born) => [born.matches, born.end, rows.indexOf(born.policy)]);
    const links = lives.filter((born) => born.parent !== null && rows.includes(born.parent))
      .map((born) => ({ coords: [[born.matches, rows.indexOf(born.parent)], [born.matches, rows.indexOf(born.policy)]] }));
    const words = (born) => [`${born.policy}, generation ${born.generation}`, `born after ${number(born.matches)} matches`,
      born.parent === null ? "initialised at random" : `child of ${born.parent} (generation ${born.parent_generation})` + (born.second ? ` and ${born.second}` : ""),
      ...Object.entries(born.hyperparameters).slice(0, 10).map(([name, value]) => `${name}: ${number(value)}`)].join("\n");
    chart("Lineage", "One row per slot of the population, over finished matches. When a policy is replaced, an arrow leads from the parent to the new policy. Hover over a birth to see its initial hyperparameters.", rows.length > 10 ? "chart tall" : "chart").show(() => ({
      grid: { left: 8, right: 20, top: 10, bottom: 8, containLabel: true },
      tooltip: { trigger: "item", formatter: ({ seriesId, dataIndex }) => (seriesId === "births" ? words(lives[dataIndex]) : "") },
      xAxis: { type: "value", max: last, axisLabel: { formatter: (value) => number(value, 3) } },
      yAxis: { type: "category", data: rows, inverse: true, axisLabel: { width: 110, overflow: "truncate" } },
      series: [
        { type: "lines", coordinateSystem: "cartesian2d", silent: true, data: fates.map(([a, b, row]) => ({ coords: [[a, row], [b, row]] })), lineStyle: { width: 3, opacity: 0.55, color: colours()[0] } },
        { type: "lines", coordinateSystem: "cartesian2d", silent: true, data: links, symbol: ["none", "arrow"], symbolSize: 6, lineStyle: { width: 1, opacity: 0.6, color: colours()[1] } },
        { id: "births", type: "scatter", data: lives.map((born) => [born.matches, rows.indexOf(born.policy)]), symbolSize: 9, itemStyle: { color: colours()[0] } },
      ],
    }));
  }

  async function drawCurves(run) {
    const ending = (word) => run.columns.filter((name) => name.endsWith(`/${word}`)).sort(natural);
    const groups = [["Ratings", "The estimated skill of each learner.", ending("rating"), "/rating"]];
    const genes = [...new Set(run.columns.filter((name) => name.includes("/hyperparameters/")).map((name) => name.split("/hyperparameters/")[1]))];
    for (const gene of genes.slice(0, 12)) groups.push([heading(gene.split(".").at(-1)), "The value of this hyperparameter for each policy; evolution changes it.", ending(`hyperparameters/${gene}`), `/hyperparameters/${gene}`]);
    const measures = MEASURES.map((name) => `population/${name}`).filter((name) => run.columns.includes(name));
    for (const name of measures) groups.push([heading(name.slice(11)), "From the analyses made during the run.", [name], null]);
    const columns = groups.flatMap(([, , names]) => names.slice(0, 10)).slice(0, 60);
    if (!columns.length) return;
    const found = await ask("curves", { run: id, axis: "turns", column: columns });
    for (const [title, words, names, cut] of groups) {
      const known = names.slice(0, 10).filter((name) => found.columns[name]?.x.length);
      const values = new Set(known.flatMap((name) => found.columns[name].y));
      if (cut?.startsWith("/hyperparameters/") && values.size < 2) continue;  // it does not evolve
      if (known.length) lines(chart(title, words), known.map((name) => ({ name: cut ? name.slice(0, -cut.length) : title, curve: { x: found.columns[name].x, y: found.columns[name].y } })), "turns");
    }
  }

  function end() { for (const each of charts.values()) each.end(); }
  return here;
}
