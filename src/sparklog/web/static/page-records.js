// Records of a topic: a search, one record as a whole, and a live tail.

import { events, get, post } from "/static/api.js";
import { address, bytes, count, h, problem, say, time } from "/static/dom.js";
import { plain } from "/static/table.js";

const FORMS = ["auto", "json", "utf-8", "hex"];
const STARTS = [["newest", "the newest"], ["oldest", "the oldest"], ["offset", "an offset"], ["time", "a time (UTC)"]];
const PLACES = [["anywhere", "in key or value"], ["key", "in the key"], ["value", "in the value"], ["is-key", "is the key"]];
const KEPT = 200;
const LIMIT = 50;

function part(shown) {
  if (shown === null) return h("em", { class: "quiet" }, "null");
  return [shown.text, shown.is_cut && h("em", { class: "quiet" }, ` … cut, ${bytes(shown.size)} in all`)];
}

const headers = (row) => [
  ...row.headers.map(([name, value]) => h("div", {}, `${name}: `, part(value))),
  row.header_count > row.headers.length && h("div", { class: "quiet" }, `${row.headers.length} of ${row.header_count} headers`),
];

const columns = (topic, form) => [
  { title: "Offset", kind: "number", cell: (row) => h("button", { type: "button", title: "Show the whole record", onclick: () => whole(topic, row, form()) }, `${row.partition}: ${row.offset}`) },
  { title: "Time (UTC)", kind: "text", cell: (row) => time(row.timestamp) },
  { title: "Key", kind: "bytes", cell: (row) => part(row.key) },
  { title: "Value", kind: "bytes", cell: (row) => part(row.value) },
  { title: "Headers", kind: "bytes", cell: headers },
];

async function whole(topic, row, form) {
  try {
    const told = await get("record", { topic, partition: row.partition, offset: row.offset, form });
    const opener = document.activeElement;
    const titled = (title, shown) => [h("h3", {}, shown ? `${title} (${shown.form}, ${bytes(shown.size)})` : title), h("pre", { tabindex: "0" }, part(shown))];
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { dialog.remove(); opener?.focus(); } },
      h("h2", { id: "dialog-title" }, `${topic}-${row.partition}, offset ${row.offset}`),
      h("p", {}, `${time(told.timestamp)} UTC, ${told.appended ? "when it was appended" : "as its producer says"}`),
      titled("Key", told.key), titled("Value", told.value),
      h("h3", {}, "Headers"), told.headers.length ? headers(told) : h("p", { class: "quiet" }, "none"),
      h("button", { type: "button", class: "main", onclick: () => dialog.close() }, "Close"));
    document.body.append(dialog);
    dialog.showModal();
  } catch (error) {
    say(error.message);
  }
}

const choice = (name, options, value) => h("select", { name }, options.map(([each, label]) => h("option", { value: each, selected: each === value }, label)));

function fields(parameters) {
  return {
    topic: h("input", { name: "topic", required: true, value: parameters.topic ?? "", autocomplete: "off", spellcheck: "false" }),
    partition: h("input", { name: "partition", type: "number", min: 0, value: parameters.partition ?? "", placeholder: "all" }),
    from: choice("from", STARTS, parameters.from ?? "newest"),
    at: h("input", { name: "at", value: parameters.at ?? "", placeholder: "offset or 2013-07-04T12:00" }),
    text: h("input", { name: "text", value: parameters.text ?? "", autocomplete: "off" }),
    where: choice("where", PLACES, parameters.where ?? "anywhere"),
    form: choice("form", FORMS.map((each) => [each, each]), parameters.form ?? "auto"),
    isolation: choice("isolation", [["read_uncommitted", "all records"], ["read_committed", "only committed"]], parameters.isolation),
  };
}

const LABELS = { topic: "Topic", partition: "Partition", from: "From", at: "Offset or time", text: "Text", where: "Which", form: "Shown as", isolation: "Isolation" };

function moment(from, text) {
  if (from === "offset") return text || "0";
  if (from !== "time") return "";
  const at = /^\d+$/.test(text) ? Number(text) : Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`);
  if (Number.isNaN(at)) throw new Error("a time is as in 2013-07-04T12:00, UTC if no zone is said, or in ms since 1970");
  return at;
}

export const records = {
  title: "Records",
  async show(content, parameters) {
    const given = fields(parameters);
    const out = h("div");
    const place = h("p", { class: "quiet", role: "status", "aria-live": "polite" });
    const search = h("button", { type: "submit", class: "main" }, "Search");
    const stop = h("button", { type: "button", disabled: true, onclick: () => end("Stopped.") }, "Stop");
    const live = h("button", { type: "button", onclick: tail }, "Live tail");
    const more = h("div", { class: "tools" });
    let asking = null;
    let stream = null;
    let found = [];

    const read = () => {
      const told = Object.fromEntries(Object.entries(given).map(([name, element]) => [name, element.value.trim()]));
      return { ...told, at: moment(told.from, told.at) };
    };
    const draw = () => out.replaceChildren(plain("Records", columns(given.topic.value.trim(), () => given.form.value), found));

    function busy(is) {
      search.disabled = live.disabled = is;
      stop.disabled = !is;
    }

    function end(text) {
      asking?.abort();
      stream?.close();
      asking = stream = null;
      busy(false);
      if (text) place.textContent = text;
    }

    async function look(next) {
      end();
      const mine = asking = new AbortController();
      busy(true);
      place.textContent = "Searching…";
      more.replaceChildren();
      try {
        const wanted = read();
        history.replaceState(null, "", address("records", { ...wanted, at: given.at.value.trim() }));
        const asked = { ...wanted, limit: LIMIT };
        const told = await (next ? post("records", { next }, asked, mine.signal) : get("records", asked, mine.signal));
        found = next ? [...found, ...told.records].slice(-1000) : told.records;
        draw();
        const why = { end: "to the end", records: "until there were enough", bytes: "until it had read enough", time: "until its time was over" };
        place.textContent = `Looked at ${count(told.looked_at)} records, ${bytes(told.bytes)}, ${why[told.stopped]}; shows ${count(found.length)}.`;
        const failures = Object.entries(told.failures).map(([partition, text]) => problem({ message: `partition ${partition}: ${text}` }));
        const on = Object.keys(told.next).length > 0 && h("button", { type: "button", onclick: () => look(told.next) }, "Go on from there");
        more.replaceChildren(...failures, ...(on ? [on] : []));
      } catch (error) {
        if (error.name === "AbortError") return;
        place.textContent = "";
        out.replaceChildren(problem(error));
      }
      if (asking === mine) end();
    }

    function tail() {
      end();
      busy(true);
      found = [];
      more.replaceChildren();
      out.replaceChildren();
      const { topic, partition, form } = read();
      stream = events("tail", { topic, partition, form });
      const on = (name, act) => stream.addEventListener(name, (event) => act(JSON.parse(event.data)));
      on("begun", () => { place.textContent = "Waiting for new records."; });
      on("records", (rows) => {
        if (!rows.length) return;
        found = [...rows.toReversed(), ...found].slice(0, KEPT);
        draw();
        place.textContent = `Live: the newest ${count(found.length)} records, the newest first.`;
      });
      on("passed_over", (many) => say(`${count(many)} records came too fast and were passed over`));
      on("trouble", (text) => { end(""); out.replaceChildren(problem({ message: text })); });
      stream.onerror = () => { end("The live tail has ended."); };
    }

    const form = h("form", { class: "tools", role: "search", "aria-label": "Records", onsubmit: (event) => { event.preventDefault(); look(); } },
      Object.entries(given).map(([name, element]) => h("label", {}, LABELS[name], element)), search, stop, live);
    content.replaceChildren(form, place, out, more);
    if (parameters.topic) look();
    else given.topic.focus();
    return { close: () => end() };
  },
};
