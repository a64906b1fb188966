// A small line chart. What it shows is said in words too, for those who do not see it.

import { count, s, time } from "/static/dom.js";

const WIDTH = 720;
const HEIGHT = 200;
const LEFT = 90;
const BOTTOM = 24;
const TOP = 10;

// `points` are [ms, value], the oldest first.
export function chart(title, points) {
  const values = points.map(([, value]) => value);
  const times = points.map(([at]) => at);
  const [most, from, to] = [Math.max(1, ...values), Math.min(...times), Math.max(...times)];
  const x = (at) => LEFT + (to === from ? 0.5 : (at - from) / (to - from)) * (WIDTH - LEFT - 10);
  const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  const told = points.length
    ? `${title}: ${points.length} samples from ${time(from)} to ${time(to)} UTC, now ${count(values.at(-1))}, least ${count(Math.min(...values))}, most ${count(Math.max(...values))}`
    : `${title}: no samples yet`;
  const grid = [0, 0.5, 1].map((share) => s("g", {},
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - 10, y1: y(most * share), y2: y(most * share) }),
    s("text", { x: LEFT - 8, y: y(most * share) + 4, "text-anchor": "end" }, count(Math.round(most * share)))));
  const marks = points.length === 1 ? [s("circle", { class: "line", cx: x(times[0]), cy: y(values[0]), r: 3 })] : [];
  return s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told },
    s("title", {}, told), grid,
    s("polyline", { class: "line", points: points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
    marks,
    s("text", { x: LEFT, y: HEIGHT - 6 }, points.length ? time(from).slice(11, 19) : ""),
    s("text", { x: WIDTH - 10, y: HEIGHT - 6, "text-anchor": "end" }, points.length ? time(to).slice(11, 19) : ""));
}
