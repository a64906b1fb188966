// What is under way: offloads, prepared batches, cleaning, moves.

import { get } from "/static/api.js";
import { bytes, count, h, link, problem, renew, time } from "/static/dom.js";
import { remembering } from "/static/page-topics.js";
import { paged, plain } from "/static/table.js";

const share = (value, label) => (value === null || value === undefined ? "" : h("span", {}, h("progress", { max: 1, value, "aria-label": label }), ` ${Math.floor(value * 100)} %`));

const TABLES = [
  { title: "Topic", kind: "text", cell: (row) => link("topic", { name: row.topic }, row.topic) },
  { title: "Table", kind: "text", cell: (row) => row.place ?? "" },
  { title: "Group", kind: "text", cell: (row) => link("group", { id: row.group }, row.group) },
  { title: "Offloaded", cell: (row) => (row.partitions ? share(row.share, "offloaded") : h("span", { class: "bad" }, "nothing yet")) },
  { title: "Records that wait", kind: "number", cell: (row) => count(row.lag) },
  { title: "The oldest of them (UTC)", kind: "text", cell: (row) => time(row.waits_since_ms) },
];

function decided(row) {
  if (row.error) return h("span", { class: "bad" }, row.error);
  if (!row.decided) return row.is_cut ? "none of the first is decided" : "not decided";
  return h("span", {}, row.is_cut ? "" : share(row.share, "committed"), ` committed, ${row.is_cut ? "at least " : ""}${count(row.decided)} to go`);
}

const WRITES = [
  { title: "Scope", kind: "text", cell: (row) => row.scope },
  { title: "Last decided batch", kind: "number", cell: (row) => count(row.batch) },
  { title: "Open transactions", kind: "number", cell: (row) => count(row.open) },
  { title: "Decision", kind: "text", cell: decided },
  { title: "Open for s", kind: "number", cell: (row) => count(row.open_s) },
  { title: "Topics", kind: "text", cell: (row) => row.topics },
  { title: "Partitions", kind: "number", cell: (row) => count(row.partitions) },
];

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
  return share(1 - row.dirty, "clean");
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
        ...section("Offloads", "Topics and their tables", TABLES, told.tables),
        ...section("Prepared writes", "Batches of Spark's that are not visible yet", WRITES, told.writes),
        ...section("Cleaners", "Cleaners of the brokers", CLEANERS, told.cleaners),
        ...section("Moves", "Partitions on the move", MOVES, told.moves),
        ...section("Offload and retention", "Replicas that wait for their offload, or whose policies fail", OFFLOADS, told.offloads));
      await table.load();
    };
    await refresh();
    return { refresh };
  },
};
