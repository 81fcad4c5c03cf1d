// What each process did when, from a run's trace; without one, where the actors' time went.

import { Chart, colours } from "./charts.js";
import { ask, fill, h, number } from "./dom.js";

export function make(main, id) {
  const here = { end, update, shown: false };
  let chart = null, begin = null, stop = null, told = null;
  const note = h("p", { class: "quiet" }), place = h("div", { class: "chart tall" });
  const move = (share) => { if (!told) return; const width = stop - begin; begin = Math.max(begin + share * width, 0); stop = begin + width; load(); };
  const zoom = (by) => { if (!told) return; const middle = (begin + stop) / 2, half = ((stop - begin) / 2) * by; begin = Math.max(middle - half, 0); stop = Math.min(middle + half, told.seconds); load(); };
  const keys = h("div", { class: "bar", role: "group", "aria-label": "Move through time" },
    h("button", { onclick: () => move(-0.5) }, "◀ earlier"), h("button", { onclick: () => move(0.5) }, "later ▶"),
    h("button", { onclick: () => zoom(0.25) }, "closer"), h("button", { onclick: () => zoom(4) }, "further"),
    h("button", { onclick: () => { begin = stop = null; load(); } }, "all"));

  async function load() {
    told = await ask("timeline", { run: id, begin, end: stop });
    if (told.none) {
      fill(main, h("h1", {}, `Timeline of ${id}`), h("p", { class: "note" }, told.none),
        h("p", {}, h("a", { href: `#/run/${encodeURIComponent(id)}`, class: "link" }, "Where the actors' time goes is on the run's page.")));
      return;
    }
    begin ??= 0;
    stop ??= told.seconds;
    fill(note, `${number(begin)} to ${number(stop)} s of ${number(told.seconds)} s`, told.left_out ? `; ${number(told.left_out)} short spans are not drawn, come closer to see them` : "");
    chart ??= new Chart(place, "Timeline");
    chart.show(draw);
  }

  function draw() {
    const palette = colours(), { echarts } = window;
    const bar = (params, api) => {
      const row = api.value(0), from = api.coord([api.value(2), row]), to = api.coord([api.value(3), row]);
      const height = api.size([0, 1])[1] * 0.6, area = params.coordSys;
      const shape = echarts.graphic.clipRectByRect({ x: from[0], y: from[1] - height / 2, width: Math.max(to[0] - from[0], 0.7), height },
        { x: area.x, y: area.y, width: area.width, height: area.height });
      return shape && { type: "rect", shape, style: { fill: palette[api.value(1) % palette.length] } };
    };
    return {
      grid: { left: 8, right: 16, top: 36, bottom: 8, containLabel: true },
      legend: { data: told.kinds.map((name) => ({ name, icon: "rect" })) },
      tooltip: { formatter: ({ value }) => `${told.roles[value[0]]}: ${told.kinds[value[1]]}\n${((value[3] - value[2]) * 1000).toFixed(3)} ms, from ${value[2].toFixed(4)} s` },
      xAxis: { type: "value", min: begin, max: stop, axisLabel: { formatter: (value) => `${number(value)} s` } },
      yAxis: { type: "category", data: told.roles, inverse: true, axisLabel: { width: 150, overflow: "truncate" } },
      series: told.kinds.map((name, k) => ({ type: "custom", name, renderItem: bar, encode: { x: [2, 3], y: 0 }, itemStyle: { color: palette[k % palette.length] },
        data: told.spans.filter((each) => each[1] === k) })),
    };
  }

  async function update() {
    if (!here.shown) {
      fill(main, h("h1", {}, `Timeline of ${id}`), keys, note, h("section", { class: "card" }, place));
      here.shown = true;
    }
    await load();
    return Infinity;
  }

  function end() { chart?.end(); }
  return here;
}
