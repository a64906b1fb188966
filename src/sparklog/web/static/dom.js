// Elements from names, attributes and children. A child that is no node becomes text: nothing is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

export function say(text) {
  const status = document.getElementById("status");
  status.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { status.textContent = ""; }, 6000);
}

export const problem = (error) => h("p", { class: "error", role: "alert" }, error.message ?? String(error));

const counts = new Intl.NumberFormat("en");
export const count = (value) => (value === null || value === undefined ? "" : counts.format(typeof value === "string" ? BigInt(value) : value));

export function bytes(value) {
  if (value === null || value === undefined || value < 0) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  for (; value >= 1024 && at < units.length - 1; at++) value /= 1024;
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}

// A time that no calendar has is told in milliseconds.
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "";
  const date = new Date(Number(ms));
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString().replace("T", " ").replace("Z", "");
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value, kind]) =>
    h("div", {}, h("dt", {}, name), h("dd", { class: kind ?? null }, value ?? ""))));
}

export const link = (page, parameters, text) => h("a", { href: address(page, parameters) }, text);

export function address(page, parameters) {
  const told = Object.entries(parameters ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  const query = new URLSearchParams(told.map(([name, value]) => [name, String(value)])).toString();
  return `#/${page}${query ? `?${query}` : ""}`;
}

// What the visitor is in, by keyboard, is not drawn anew under the hands.
export function renew(container, ...children) {
  if (!container.contains(document.activeElement)) container.replaceChildren(...children);
}
