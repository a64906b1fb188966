// A table of settings with their sources; those that somebody set come first.

import { h } from "/static/dom.js";
import { plain } from "/static/table.js";

const COLUMNS = [
  { title: "Setting", kind: "text", cell: (row) => row.name },
  { title: "Value", kind: "text", cell: (row) => (row.sensitive ? h("em", {}, "secret") : row.value ?? "") },
  { title: "Source", cell: (row) => h("span", { class: row.is_default ? "quiet" : null }, row.source) },
];

export function settings(caption, entries) {
  const set = entries.filter((each) => !each.is_default);
  return plain(caption, COLUMNS, [...set, ...entries.filter((each) => each.is_default)]);
}
