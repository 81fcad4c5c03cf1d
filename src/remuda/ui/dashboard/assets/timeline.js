// The timeline of each process, from a run's trace.

import { Chart, colours } from "./charts.js";
import { ask, breakable, fill, h, note, number } from "./dom.js";

export function make(main, id) {
  const here = { end, update, shown: false };
  let chart = null, begin = null, stop = null, trace = null;
  const extent = h("p", { class: "quiet" }), place = h("div", { class: "chart tall" });
  const move = (share) => { if (!trace) return; const width = stop - begin; begin = Math.max(begin + share * width, 0); stop = begin + width; load(); };
  const zoom = (by) => { if (!trace) return; const middle = (begin + stop) / 2, half = ((stop - begin) / 2) * by; begin = Math.max(middle - half, 0); stop = Math.min(middle + half, trace.seconds); load(); };
  const keys = h("div", { class: "bar", role: "group", "aria-label": "Move through time" },
    h("button", { onclick: () => move(-0.5) }, "◀ earlier"), h("button", { onclick: () => move(0.5) }, "later ▶"),
    h("button", { onclick: () => zoom(0.25) }, "zoom in"), h("button", { onclick: () => zoom(4) }, "zoom out"),
    h("button", { onclick: () => { begin = stop = null; load(); } }, "all"));

  async function load() {
    trace = await ask("timeline", { run: id, begin, end: stop });
    if (trace.none) {
      fill(main, h("h1", {}, breakable(`Timeline of ${id}`)), note(trace.none),
        h("p", {}, h("a", { href: `#/run/${encodeURIComponent(id)}`, class: "link" }, "The run's page shows how the actors spend their time.")));
      return;
    }
    begin ??= 0;
    stop ??= trace.seconds;
    fill(extent, `${number(begin)} to ${number(stop)} s of ${number(trace.seconds)} s`, trace.left_out ? `; ${number(trace.left_out)} short spans are not drawn, zoom in to see them` : "");
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
      legend: { data: trace.kinds.map((name) => ({ name, icon: "rect" })) },
      tooltip: { formatter: ({ value }) => `${trace.roles[value[0]]}: ${trace.kinds[value[1]]}\n${((value[3] - value[2]) * 1000).toFixed(3)} ms, from ${value[2].toFixed(4)} s` },
      xAxis: { type: "value", min: begin, max: stop, axisLabel: { formatter: (value) => `${number(value)} s` } },
      yAxis: { type: "category", data: trace.roles, inverse: true, axisLabel: { width: 150, overflow: "truncate" } },
      series: trace.kinds.map((name, k) => ({ type: "custom", name, renderItem: bar, encode: { x: [2, 3], y: 0 }, itemStyle: { color: palette[k % palette.length] },
        data: trace.spans.filter((each) => each[1] === k) })),
    };
  }

  async function update() {
    if (!here.shown) {
      fill(main, h("h1", {}, breakable(`Timeline of ${id}`)), keys, extent, h("section", { class: "card" }, place));
      here.shown = true;
    }
    await load();
    return Infinity;
  }

  function end() { chart?.end(); }
  return here;
}
