// Tables: a plain one of rows, and one whose rows the server gives page by page.

import { get } from "/static/api.js";
import { count, h, problem } from "/static/dom.js";

// A column: {title, cell(row) -> node or text, kind: "number" | "text" | "bytes", sort: the server's name for it}.

function head(columns, order, sorted) {
  return h("thead", {}, h("tr", {}, columns.map((column) => {
    const mine = order && column.sort && order.sort === column.sort;
    const title = column.sort && sorted
      ? h("button", { type: "button", onclick: () => sorted(column.sort) }, column.title)
      : column.title;
    return h("th", { scope: "col", class: column.kind, "aria-sort": mine ? (order.descending ? "descending" : "ascending") : null }, title);
  })));
}

function line(columns, row) {
  return h("tr", {}, columns.map((column, at) => {
    const cell = column.cell(row);
    return at === 0 ? h("th", { scope: "row", class: column.kind }, cell) : h("td", { class: column.kind }, cell);
  }));
}

// A function that gives the focus back to the same place: a column's button, or what is in a cell of the same row.
function focusIn(table) {
  const active = document.activeElement;
  const cell = table.contains(active) && active.closest("th, td");
  if (!cell) return () => {};
  const column = cell.cellIndex;
  const row = cell.closest("tbody") ? cell.parentElement.cells[0].textContent : null;
  return () => {
    const lines = [...table.querySelectorAll(row === null ? "thead tr" : "tbody tr")];
    const line = row === null ? lines[0] : lines.find((each) => each.cells[0].textContent === row);
    line?.cells[column]?.querySelector("a, button")?.focus({ preventScroll: true });
  };
}

export function plain(caption, columns, rows) {
  if (!rows.length) return h("p", { class: "quiet" }, `${caption}: none.`);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), head(columns), h("tbody", {}, rows.map((row) => line(columns, row)))));
}

export const LIMIT = 100;

// Its state is in `state` (search, sort, descending, offset), told to `remember` when the visitor changes it.
export function paged({ caption, path, parameters, columns, state, remember, searchLabel, filters, answered }) {
  const body = h("tbody");
  const table = h("table", { "aria-busy": "true" });
  const trouble = h("div");
  const place = h("span", { class: "quiet", role: "status", "aria-live": "polite" });
  const back = h("button", { type: "button", onclick: () => move(state.offset - LIMIT) }, "Previous");
  const on = h("button", { type: "button", onclick: () => move(state.offset + LIMIT) }, "Next");
  const last = h("button", { type: "button", onclick: () => move(Math.floor((total - 1) / LIMIT) * LIMIT) }, "Last");
  const first = h("button", { type: "button", onclick: () => move(0) }, "First");
  let total = 0;
  let shown = "";
  let asking = null;
  let timer = null;
  state.offset = Number(state.offset) || 0;

  function change(what) {
    Object.assign(state, { offset: 0 }, what);
    remember(state);
    return load();
  }
  const move = (offset) => change({ offset: Math.max(0, offset) });

  function sorted(name) {
    change({ sort: name, descending: state.sort === name ? !state.descending : false });
  }

  async function load() {
    asking?.abort();
    const mine = asking = new AbortController();
    table.setAttribute("aria-busy", "true");
    try {
      draw(await get(path, { ...parameters, ...state, limit: LIMIT }, mine.signal));
      trouble.replaceChildren();
    } catch (error) {
      if (error.name === "AbortError") return;
      trouble.replaceChildren(problem(error));
    }
    table.removeAttribute("aria-busy");
  }

  function draw(answer) {
    answered?.(answer);
    total = answer.total;
    const last_row = answer.offset + answer.rows.length;
    place.textContent = total ? `${count(answer.offset + 1)} to ${count(last_row)} of ${count(total)}` : "none";
    back.disabled = first.disabled = answer.offset === 0;
    on.disabled = last.disabled = last_row >= total;
    const told = JSON.stringify([answer.rows, total, state]);
    if (told === shown) return;
    shown = told;
    const focusAgain = focusIn(table);
    body.replaceChildren(...answer.rows.map((row) => line(columns, row)));
    table.replaceChildren(h("caption", {}, caption), head(columns, state, sorted), body);
    focusAgain();
  }

  const search = searchLabel && h("label", {}, searchLabel, h("input", {
    type: "search", value: state.search ?? "", autocomplete: "off",
    oninput: (event) => {
      clearTimeout(timer);
      const wanted = event.target.value;
      timer = setTimeout(() => change({ search: wanted }), 200);
    },
  }));
  const checks = (filters ?? []).map(([name, label]) => h("label", { class: "check" }, h("input", {
    type: "checkbox", checked: state[name] === true || state[name] === "true",
    onchange: (event) => change({ [name]: event.target.checked }),
  }), label));
  const element = h("section", { "aria-label": caption },
    h("div", { class: "tools" }, search, checks),
    trouble,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${caption}, table` }, table),
    h("div", { class: "tools" }, first, back, on, last, place));
  return { element, load };
}
