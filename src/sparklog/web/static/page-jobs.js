// What brokers are at: cleaning, moves, offloads.

import { get } from "/static/api.js";
import { bytes, count, h, link, problem, renew, time } from "/static/dom.js";
import { remembering } from "/static/page-topics.js";
import { paged, plain } from "/static/table.js";

const CLEANERS = [
  { title: "Broker", kind: "number", cell: (row) => String(row.broker) },
  { title: "Cleaner", cell: (row) => (row.is_enabled ? "on" : h("span", { class: "bad" }, "off")) },
  { title: "Threads", kind: "number", cell: (row) => count(row.threads) },
  { title: "Dirtiest log", kind: "number", cell: (row) => `${row.max_dirty_percent} %` },
  { title: "Overdue s", kind: "number", cell: (row) => count(row.max_compaction_delay_secs) },
  { title: "Longest cleaning s", kind: "number", cell: (row) => count(row.max_clean_time_secs) },
];

const MOVES = [
  { title: "Partition", kind: "text", cell: (row) => row.partition },
  { title: "Replicas", cell: (row) => row.replicas.join(", ") },
  { title: "Adding", cell: (row) => row.adding.join(", ") },
  { title: "Removing", cell: (row) => row.removing.join(", ") },
];

const OFFLOADS = [
  { title: "Partition", kind: "text", cell: (row) => row.partition },
  { title: "Broker", kind: "number", cell: (row) => String(row.broker) },
  { title: "Waits for", kind: "text", cell: (row) => row.group ?? "" },
  { title: "Offloaded below", kind: "number", cell: (row) => count(row.offloaded) },
  { title: "Held records", kind: "number", cell: (row) => (row.held_records < 0 ? "" : count(row.held_records)) },
  { title: "Held", kind: "number", cell: (row) => bytes(row.held_bytes) },
  { title: "Lost records", kind: "number", cell: (row) => h("span", { class: row.lost_records ? "bad" : null }, count(row.lost_records)) },
  { title: "Refusal", kind: "text", cell: (row) => h("span", { class: "bad" }, row.refusal ?? "") },
];

function progress(row) {
  if (row.error) return h("span", { class: "bad" }, row.error);
  if (row.dirty === null) return "";
  return h("span", {}, h("progress", { max: 1, value: 1 - row.dirty, "aria-label": "clean" }), ` ${Math.round((1 - row.dirty) * 100)} %`);
}

function state(row) {
  if (row.uncleanable) return h("span", { class: "bad" }, row.uncleanable);
  return row.is_under_way ? `being cleaned by ${row.cleaned_by ?? "the broker"}` : row.is_due ? "due" : "";
}

const COMPACTION = [
  { title: "Partition", kind: "text", sort: "topic", cell: (row) => link("topic", { name: row.topic }, `${row.topic}-${row.partition}`) },
  { title: "Broker", kind: "number", cell: (row) => String(row.broker) },
  { title: "Clean", sort: "dirty", cell: progress },
  { title: "To be cleaned", kind: "number", sort: "cleanable", cell: (row) => bytes(row.cleanable_bytes) },
  { title: "State", kind: "text", cell: state },
  { title: "Last cleaned (UTC)", kind: "text", cell: (row) => (row.last ? `${time(row.last.ended_ms)}: ${bytes(row.last.bytes_before)} to ${bytes(row.last.bytes_after)}` : "") },
];

const section = (title, caption, columns, told) =>
  [h("h2", {}, title), told.error ? problem({ message: told.error }) : plain(caption, columns, told.rows)];

export const jobs = {
  title: "Jobs",
  async show(content, parameters) {
    const above = h("div");
    const table = paged({
      caption: "Compacted replicas", path: "jobs/compaction", columns: COMPACTION, state: { ...parameters },
      remember: remembering("jobs"), searchLabel: "Partition contains", filters: [["busy", "Only at work, due or failed"]],
    });
    content.replaceChildren(above, h("h2", {}, "Compaction"), table.element);
    const refresh = async () => {
      const told = await get("jobs");
      renew(above,
        ...section("Cleaners", "Cleaners of the brokers", CLEANERS, told.cleaners),
        ...section("Moves", "Partitions on the move", MOVES, told.moves),
        ...section("Offload and retention", "Replicas that wait for their offload, or whose policies fail", OFFLOADS, told.offloads));
      await table.load();
    };
    await refresh();
    return { refresh };
  },
};
