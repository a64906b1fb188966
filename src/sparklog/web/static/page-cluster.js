// The cluster and its brokers.

import { get } from "/static/api.js";
import { drawn } from "/static/chart.js";
import { count, facts, h, link, renew } from "/static/dom.js";
import { settings } from "/static/settings.js";
import { plain } from "/static/table.js";

const COLUMNS = [
  { title: "Broker", kind: "number", cell: (row) => (row.host === null ? String(row.id) : link("broker", { id: row.id }, String(row.id))) },
  { title: "Address", kind: "text", cell: (row) => (row.host === null ? "" : `${row.host}:${row.port}`) },
  { title: "Role", cell: (row) => (row.is_controller ? "controller" : "") },
  { title: "Rack", kind: "text", cell: (row) => row.rack ?? "" },
  { title: "Leads", kind: "number", cell: (row) => count(row.leads) },
  { title: "Replicas", kind: "number", cell: (row) => count(row.replicas) },
  { title: "Out of sync", kind: "number", cell: (row) => h("span", { class: row.out_of_sync ? "bad" : null }, count(row.out_of_sync)) },
  { title: "Protocol of Kafka", kind: "text", cell: (row) => (row.error ? h("span", { class: "bad" }, row.error) : row.protocol ?? "") },
];

const bad = (value) => (value ? "bad" : "good");

export const cluster = {
  title: "Cluster",
  async show(content) {
    const above = h("div");
    const rate = h("div");
    const refresh = () => Promise.all([look(above), drawn(rate, get("cluster/written"))]);
    content.replaceChildren(above, h("h2", {}, "Records written"),
      h("p", { class: "quiet" }, "To all topics, the cluster's own too, as seen since this page looks; a sample every five seconds."), rate);
    await refresh();
    return { refresh };
  },
};

async function look(above) {
  const told = await get("cluster");
  renew(above,
    facts([
      ["Cluster", told.cluster_id],
      ["Brokers", count(told.brokers.filter((each) => each.host !== null).length)],
      ["Controller", told.controller < 0 ? "none" : String(told.controller), told.controller < 0 ? "bad" : null],
      ["Topics", count(told.topics)],
      ["Partitions", count(told.partitions)],
      ["Under-replicated", count(told.under_replicated), bad(told.under_replicated)],
      ["Without a leader", count(told.without_leader), bad(told.without_leader)],
    ]),
    plain("Brokers", COLUMNS, told.brokers));
}

export const broker = {
  title: "Broker",
  section: "cluster",
  heading: (parameters) => `Broker ${parameters.id}`,
  async show(content, parameters) {
    content.replaceChildren(settings("Settings of the broker", await get("broker/settings", { id: parameters.id })));
  },
};
