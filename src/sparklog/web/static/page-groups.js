// Consumer groups: how far each is behind, now and over time.

import { get, session } from "/static/api.js";
import { changeButton } from "/static/change.js";
import { chart, rates } from "/static/chart.js";
import { count, facts, h, link, renew } from "/static/dom.js";
import { remembering } from "/static/page-topics.js";
import { paged, plain } from "/static/table.js";

const lag = (row) => (row.error ? h("span", { class: "bad" }, row.error) : row.lag === null ? "" : count(row.lag) + (row.unknown ? " and more" : ""));

const GROUPS = [
  { title: "Group", kind: "text", sort: "id", cell: (row) => link("group", { id: row.id }, row.id || "(no name)") },
  { title: "State", sort: "state", cell: (row) => row.state },
  { title: "Type", cell: (row) => row.type },
  { title: "Protocol", kind: "text", cell: (row) => row.protocol },
  { title: "Lag in records", kind: "number", cell: lag },
];

export const groups = {
  title: "Groups",
  async show(content, parameters) {
    const table = paged({
      caption: "Consumer groups", path: "groups", columns: GROUPS, state: { ...parameters },
      remember: remembering("groups"), searchLabel: "Name contains",
    });
    content.replaceChildren(table.element);
    await table.load();
    return { refresh: table.load };
  },
};

const PARTITIONS = [
  { title: "Partition", kind: "text", sort: "partition", cell: (row) => link("records", { topic: row.topic, partition: row.partition, from: "offset", at: row.committed ?? 0 }, `${row.topic}-${row.partition}`) },
  { title: "Committed", kind: "number", cell: (row) => count(row.committed) },
  { title: "End offset", kind: "number", cell: (row) => count(row.end) },
  { title: "Lag", kind: "number", sort: "lag", cell: (row) => count(row.lag) },
  { title: "Client", kind: "text", cell: (row) => row.client ?? "" },
];

const MEMBERS = [
  { title: "Client", kind: "text", cell: (row) => row.client },
  { title: "Host", kind: "text", cell: (row) => row.host },
  { title: "Instance", kind: "text", cell: (row) => row.instance ?? "" },
  { title: "Member", kind: "text", cell: (row) => row.id },
  { title: "Partitions", kind: "number", cell: (row) => count(row.partitions) },
];

export const group = {
  title: "Group",
  section: "groups",
  heading: (parameters) => `Group ${parameters.id ?? ""}`,
  async show(content, parameters) {
    const { id, ...state } = parameters;
    const above = h("div");
    const below = h("div");
    const table = paged({
      caption: "Partitions", path: "group", parameters: { id }, columns: PARTITIONS, state,
      remember: remembering("group", { id }), searchLabel: "Partition contains",
      answered: (told) => {
        renew(above,
          facts([
            ["State", told.state], ["Members", count(told.member_count)], ["Assignor", told.assignor],
            ["Lag in records", told.lag === null ? "not known" : count(told.lag)],
          ]),
          h("h2", {}, "Lag over time"),
          h("p", { class: "quiet" }, "As seen since this page looks at the group; a sample every five seconds."),
          chart("Lag in records", told.samples.map(([at, value]) => [at, value])),
          h("h2", {}, "Records read"),
          h("p", { class: "quiet" }, "By what the group commits: between two commits nothing, then all at once."),
          chart("Records committed a second", rates(told.samples.map(([at, , committed]) => [at, committed]))));
        renew(below, plain("Members", MEMBERS, told.members));
      },
    });
    const changes = session.changes_allowed && h("div", { class: "tools" }, changeButton({
      label: "Reset offsets", danger: true, title: `Set where ${id} reads on`,
      warning: "The group must have no members.",
      fields: [
        { name: "topic", label: "Topic", required: true },
        { name: "from", label: "Where", value: "oldest", options: [["oldest", "the first offset"], ["newest", "the end"], ["offset", "an offset"], ["time", "a time (ms since 1970)"]] },
        { name: "at", label: "Offset or time", value: "0", type: "number", min: 0 },
      ],
      path: "group/reset", told: (values) => ({ id, ...values, at: values.at }), done: () => table.load(),
    }));
    content.replaceChildren(...[above, changes, h("h2", {}, "Partitions"), table.element, h("h2", {}, "Members"), below].filter(Boolean));
    await table.load();
    return { refresh: table.load };
  },
};
