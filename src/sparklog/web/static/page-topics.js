// Topics, and one topic with its partitions and settings.

import { get, session } from "/static/api.js";
import { changeButton } from "/static/change.js";
import { drawn } from "/static/chart.js";
import { address, count, facts, h, link } from "/static/dom.js";
import { settings } from "/static/settings.js";
import { paged } from "/static/table.js";

const problems = (value) => h("span", { class: value ? "bad" : "quiet" }, count(value));

const TOPICS = [
  { title: "Topic", kind: "text", sort: "name", cell: (row) => link("topic", { name: row.name }, row.name) },
  { title: "Partitions", kind: "number", sort: "partitions", cell: (row) => count(row.partitions) },
  { title: "Replicas", kind: "number", cell: (row) => count(row.replicas) },
  { title: "Under-replicated", kind: "number", sort: "under_replicated", cell: (row) => problems(row.under_replicated) },
  { title: "Without a leader", kind: "number", cell: (row) => problems(row.without_leader) },
];

export const remembering = (page, fixed) => (state) =>
  history.replaceState(null, "", address(page, { ...fixed, ...state, offset: state.offset || "" }));

export const topics = {
  title: "Topics",
  async show(content, parameters) {
    const table = paged({
      caption: "Topics", path: "topics", columns: TOPICS, state: { ...parameters },
      remember: remembering("topics"), searchLabel: "Name contains", filters: [["internal", "The cluster's own too"]],
    });
    const make = session.changes_allowed && h("div", { class: "tools" }, changeButton({
      label: "Create a topic", title: "Create a topic",
      fields: [
        { name: "name", label: "Name", required: true },
        { name: "partitions", label: "Partitions (-1: the brokers' default)", value: "-1", type: "number", min: -1 },
        { name: "replicas", label: "Replicas (-1: the brokers' default)", value: "-1", type: "number", min: -1 },
      ],
      path: "topic/create", told: ({ name, partitions, replicas }) => ({ name, partitions: Number(partitions), replicas: Number(replicas) }),
      done: () => table.load(),
    }));
    content.replaceChildren(...[make, table.element].filter(Boolean));
    await table.load();
    return { refresh: table.load };
  },
};

const ids = (found) => found.join(", ");

const PARTITIONS = [
  { title: "Partition", kind: "number", sort: "partition", cell: (row) => count(row.partition) },
  { title: "Leader", kind: "number", sort: "leader", cell: (row) => (row.leader === null ? h("span", { class: "bad" }, "none") : String(row.leader)) },
  { title: "Replicas", cell: (row) => ids(row.replicas) },
  { title: "In sync", cell: (row) => h("span", { class: row.isr.length < row.replicas.length ? "bad" : null }, ids(row.isr)) },
  { title: "Offline", cell: (row) => h("span", { class: "bad" }, ids(row.offline)) },
  { title: "First offset", kind: "number", cell: (row) => count(row.first) },
  { title: "End offset", kind: "number", cell: (row) => count(row.end) },
  { title: "Records at most", kind: "number", cell: (row) => (row.error ? h("span", { class: "bad" }, row.error) : count(row.records)) },
];

export const topic = {
  title: "Topic",
  section: "topics",
  heading: (parameters) => `Topic ${parameters.name ?? ""}`,
  async show(content, parameters) {
    const { name, ...state } = parameters;
    const [told, entries] = await Promise.all([get("topic", { name }), get("topic/settings", { name })]);
    const table = paged({
      caption: "Partitions", path: "topic/partitions", parameters: { name }, columns: PARTITIONS, state,
      remember: remembering("topic", { name }), searchLabel: "Number contains", filters: [["problems", "Only with problems"]],
    });
    const rate = h("div");
    content.replaceChildren(
      facts([
        ["Partitions", count(told.partitions)],
        ["Replicas", count(told.replicas)],
        ["Under-replicated", count(told.under_replicated), told.under_replicated ? "bad" : "good"],
        ["Without a leader", count(told.without_leader), told.without_leader ? "bad" : "good"],
        ["Id", told.id],
      ]),
      h("div", { class: "tools" }, link("records", { topic: name }, "Browse its records"), session.changes_allowed && changes(name)),
      h("h2", {}, "Partitions"), table.element,
      h("h2", {}, "Records written"),
      h("p", { class: "quiet" }, "As seen since this page looks at the topic; a sample every five seconds."), rate,
      h("h2", {}, "Settings"), settings("Settings of the topic", entries));
    const refresh = () => Promise.all([table.load(), drawn(rate, get("topic/written", { name }))]);
    await refresh();
    return { refresh };
  },
};

const changes = (name) => [
  changeButton({
    label: "Change a setting", title: `Change a setting of ${name}`,
    fields: [{ name: "setting", label: "Setting", required: true }, { name: "value", label: "Value (empty: back to the default)" }],
    path: "topic/alter", told: ({ setting, value }) => ({ name, settings: { [setting]: value === "" ? null : value } }),
    done: () => dispatchEvent(new HashChangeEvent("hashchange")),
  }),
  changeButton({
    label: "Delete the topic", danger: true, title: `Delete ${name}`, warning: "All its records are gone then.",
    fields: [{ name: "again", label: "Type its name to delete it", required: true }],
    path: "topic/delete", told: ({ again }) => ({ name, again }), done: () => { location.hash = "#/topics"; },
  }),
];
