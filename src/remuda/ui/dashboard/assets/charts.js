// Charts drawn with ECharts. Tooltips are drawn on the canvas, so that no name is read as HTML.

import { number, rate, span } from "./dom.js";

const COLOURS = {
  light: ["#2f6f5e", "#c2571a", "#3b6fb6", "#9c3d7c", "#7a8b1f", "#b3261e", "#5a5ab0", "#00838f", "#8d6e3f", "#546e7a"],
  dark: ["#5fb89f", "#f0a35e", "#7fb0f0", "#dc8fc3", "#c3d05a", "#ff8a80", "#a9a6f5", "#5fd0dc", "#d4b483", "#a7bac4"],
};
const scheme = window.matchMedia("(prefers-color-scheme: dark)");
const alive = new Set();

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const colours = () => COLOURS[scheme.matches ? "dark" : "light"];

export class Chart {
  constructor(element, label) {
    this.element = element;
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", label);
    this.chart = window.echarts.init(element, null, { renderer: "canvas" });
    this.options = null;
    this.isVisible = this.isLate = false;
    this.visibility = new IntersectionObserver((found) => {
      this.isVisible = found.at(-1).isIntersecting;
      if (this.isVisible && this.isLate) this.draw();
    }, { rootMargin: "200px" });
    this.visibility.observe(element);
    this.size = new ResizeObserver(() => this.chart.resize());
    this.size.observe(element);
    alive.add(this);
  }

  // Draws at once the first time; later redraws wait until the chart is visible or printed.
  show(options) {
    this.isLate = this.options !== null && !this.isVisible;
    this.options = options;
    if (!this.isLate) this.draw();
  }

  draw() {
    this.isLate = false;
    const quiet = variable("--quiet"), line = variable("--line"), ink = variable("--ink");
    const axis = (extra) => ({
      axisLine: { lineStyle: { color: line } }, splitLine: { lineStyle: { color: line, opacity: 0.6 } },
      nameTextStyle: { color: quiet }, ...extra, axisLabel: { color: quiet, hideOverlap: true, ...extra.axisLabel },
    });
    const found = this.options();
    for (const which of ["xAxis", "yAxis"]) {
      if (found[which]) found[which] = Array.isArray(found[which]) ? found[which].map(axis) : axis(found[which]);
    }
    this.chart.setOption({
      animation: false, color: colours(), textStyle: { fontFamily: "system-ui, sans-serif", color: ink },
      ...found,
      legend: found.legend && {
        textStyle: { color: ink }, type: "scroll", top: 0, pageTextStyle: { color: quiet },
        pageIconColor: quiet, ...found.legend,
      },
      tooltip: found.tooltip && {
        renderMode: "richText", confine: true, backgroundColor: variable("--card"), borderColor: line,
        textStyle: { color: ink, fontSize: 12 }, ...found.tooltip,
      },
    }, { notMerge: true });
  }

  end() {
    this.size.disconnect();
    this.visibility.disconnect();
    this.chart.dispose();
    alive.delete(this);
  }
}

scheme.addEventListener("change", () => {
  for (const chart of alive) if (chart.options) chart.show(chart.options);
});

window.addEventListener("beforeprint", () => {
  for (const chart of alive) if (chart.isLate) chart.draw();
});

export const shown = (axis, value) => (axis === "seconds" ? span(value) : rate(value));

// The area between two curves as one polygon.
function region(name, x, low, high, colour, opacity) {
  const known = x.map((_, k) => k).filter((k) => low[k] !== null && high[k] !== null);
  const shape = (_, api) => ({ type: "polygon", silent: true, style: { fill: colour, opacity },
    shape: { points: [...known.map((k) => api.coord([x[k], high[k]])), ...known.toReversed().map((k) => api.coord([x[k], low[k]]))] } });
  // The first item draws the polygon; the other points only make the axes cover it.
  return { type: "custom", name, silent: true, clip: true, tooltip: { show: false }, z: 1,
    renderItem: (params, api) => (params.dataIndex === 0 ? shape(params, api) : null),
    data: known.flatMap((k) => [[x[k], low[k]], [x[k], high[k]]]) };
}

// Curves with bands: [{name, curve: {x, y, low?, high?}}].
export function lines(chart, curves, axis, extra = {}) {
  chart.show(() => {
    const palette = colours(), series = [], hasLegend = curves.length > 1 || extra.legend;
    let below = null;
    curves.forEach(({ name, curve }, i) => {
      const colour = palette[i % palette.length];
      let { x, y, low, high } = curve;
      if (extra.area) {  // stack each curve on those before it
        low = below ?? y.map(() => 0);
        high = below = y.map((value, k) => (low[k] ?? 0) + (value ?? 0));
      }
      if (low) series.push(region(`${name}\u200b`, x, low, high, colour, extra.area ? 0.75 : 0.15));
      series.push({ type: "line", name, symbol: x.length < 3 ? "circle" : "none", symbolSize: 5,
        data: x.map((at, k) => [at, extra.area ? high[k] : y[k], y[k]]),
        lineStyle: { width: extra.area ? 0.5 : 1.6, color: colour }, itemStyle: { color: colour }, emphasis: { disabled: true } });
    });
    return {
      grid: { left: 8, right: 18, top: hasLegend ? 34 : 14, bottom: 4, containLabel: true },
      legend: hasLegend ? { data: curves.map(({ name }) => name) } : undefined,
      tooltip: {
        trigger: "axis", order: "valueDesc",
        formatter: (found) => [shown(axis, found[0].value[0]), ...found
          .filter((each) => !each.seriesName.endsWith("\u200b"))
          .slice(0, 12).map((each) => `${each.seriesName}: ${number(each.value[2])}`)].join("\n"),
      },
      xAxis: { type: "value", min: "dataMin", max: "dataMax", splitLine: { show: false },
        axisLabel: { formatter: (value) => shown(axis, value) } },
      yAxis: { type: "value", scale: !extra.area, max: extra.most, axisLabel: { formatter: (value) => number(value, 6) } },
      series,
    };
  });
}

// The payoffs of one member against each other: points with standard errors.
export function against(chart, names, means, errors, matches, self) {
  const met = names.map((_, i) => i).filter((i) => i !== self && means[i] !== null);
  const bar = (_, api) => {
    const [x, low] = api.coord([api.value(0), api.value(1)]), high = api.coord([api.value(0), api.value(2)])[1];
    return { type: "line", shape: { x1: x, y1: low, x2: x, y2: high }, style: { stroke: colours()[0], opacity: 0.5, lineWidth: 1.5 } };
  };
  chart.show(() => ({
    grid: { left: 8, right: 12, top: 10, bottom: 4, containLabel: true },
    tooltip: { formatter: ({ dataIndex: i }) => `${names[self]} against ${names[met[i]]}\n${number(means[met[i]])} ± ` +
      `${number(errors[met[i]])} (standard error)\n${number(matches[met[i]])} matches` },
    xAxis: { type: "category", data: met.map((i) => names[i]), axisLabel: { rotate: met.length > 6 ? 60 : 0, width: 110, overflow: "truncate" } },
    yAxis: { type: "value", scale: true, axisLabel: { formatter: (value) => number(value, 6) } },
    series: [
      { type: "scatter", data: met.map((i) => means[i]), symbolSize: 7, itemStyle: { color: colours()[0] } },
      { type: "custom", silent: true, renderItem: bar, encode: { x: 0, y: [1, 2] },
        data: met.map((i, at) => [at, means[i] - (errors[i] ?? 0), means[i] + (errors[i] ?? 0)]) },
    ],
  }));
}

export function heat(chart, names, values, errors, matches) {
  const known = values.flat().filter((value) => value !== null);
  const size = Math.max(...known.map(Math.abs), 1e-9);
  const cells = [];
  values.forEach((row, i) => row.forEach((value, j) => { if (value !== null) cells.push([j, i, value]); }));
  chart.show(() => ({
    grid: { left: 8, right: 12, top: 8, bottom: 50, containLabel: true },
    tooltip: {
      formatter: ({ value: [j, i, value] }) => `${names[i]} against ${names[j]}\n${number(value)} ± ` +
        `${number(errors[i][j])} (standard error)\n${number(matches[i][j])} matches`,
    },
    xAxis: { type: "category", data: names, axisLabel: { rotate: names.length > 6 ? 60 : 0, width: 110, overflow: "truncate" }, splitArea: { show: false } },
    yAxis: { type: "category", data: names, inverse: true, axisLabel: { width: 110, overflow: "truncate" } },
    visualMap: { min: -size, max: size, calculable: false, orient: "horizontal", left: "center", bottom: 0, itemHeight: 90, itemWidth: 10,
      textStyle: { color: variable("--quiet") }, formatter: (value) => number(value, 3),
      text: [number(size, 3), number(-size, 3)],
      inRange: { color: scheme.matches ? ["#b5482a", "#6d3522", variable("--card"), "#22504a", "#2f8f74"] : ["#d9804f", "#f0cdb4", variable("--card"), "#bcdcd3", "#5fae98"] } },
    series: [{ type: "heatmap", data: cells, label: { show: names.length <= 10, color: variable("--ink"), formatter: ({ value }) => number(value[2], 2) },
      itemStyle: { borderColor: variable("--card"), borderWidth: 1 } }],
  }));
}
