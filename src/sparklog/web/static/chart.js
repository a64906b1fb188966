// Small line charts. What one shows is said in words too, for those who do not see it.

import { count, h, problem, renew, s, time } from "/static/dom.js";

const WIDTH = 720;
const HEIGHT = 200;
const LEFT = 90;
const BOTTOM = 24;
const TOP = 10;

const short = (value) => (value < 10 ? Math.round(value * 10) / 10 : Math.round(value));

// How fast a number grew between one sample and the next: [ms, a second]. One that fell did not grow.
export const rates = (samples) => samples.slice(1).map(([at, value], before) =>
  [at, short(Math.max(0, value - samples[before][1]) * 1000 / Math.max(1, at - samples[before][0]))]);

// The chart of records that were written, when it is `told` of them; or why it is not.
export const drawn = (container, told) => told.then((found) => renew(container, written(found)), (error) => renew(container, problem(error)));

const written = (told) => (told.samples === null
  ? h("p", { class: "quiet" }, `${count(told.partitions)} partitions are more than the ${count(told.most)} whose ends this page asks for every five seconds. The brokers' metrics tell the rate.`)
  : chart("Records written a second", rates(told.samples)));

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
    s("text", { x: LEFT - 8, y: y(most * share) + 4, "text-anchor": "end" }, count(short(most * share)))));
  const marks = points.length === 1 ? [s("circle", { class: "line", cx: x(times[0]), cy: y(values[0]), r: 3 })] : [];
  return s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told },
    s("title", {}, told), grid,
    s("polyline", { class: "line", points: points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
    marks,
    s("text", { x: LEFT, y: HEIGHT - 6 }, points.length ? time(from).slice(11, 19) : ""),
    s("text", { x: WIDTH - 10, y: HEIGHT - 6, "text-anchor": "end" }, points.length ? time(to).slice(11, 19) : ""));
}
