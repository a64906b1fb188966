// Pages that are a table each: disks, transactions, quotas, access.

import { get } from "/static/api.js";
import { bytes, count, h, link, renew } from "/static/dom.js";
import { remembering } from "/static/page-topics.js";
import { paged, plain } from "/static/table.js";

function tablePage(title, options, above) {
  const name = options.page;
  return {
    title,
    async show(content, parameters) {
      const table = paged({ caption: title, state: { ...parameters }, remember: remembering(name), ...options });
      const first = h("div");
      content.replaceChildren(first, table.element);
      const refresh = async () => {
        if (above) renew(first, await above());
        await table.load();
      };
      await refresh();
      return { refresh };
    },
  };
}

function full(row) {
  if (row.error) return h("span", { class: "bad" }, row.error);
  if (row.total === null || row.usable === null) return "";
  const share = 1 - row.usable / row.total;
  return h("span", {}, h("meter", { min: 0, max: 1, high: 0.85, value: share, "aria-label": "used" }), ` ${Math.round(share * 100)} %`);
}

const DIRECTORIES = [
  { title: "Broker", kind: "number", cell: (row) => String(row.broker) },
  { title: "Directory", kind: "text", cell: (row) => row.path },
  { title: "Disk used", cell: full },
  { title: "Free", kind: "number", cell: (row) => bytes(row.usable) },
  { title: "Of", kind: "number", cell: (row) => bytes(row.total) },
  { title: "Logs", kind: "number", cell: (row) => bytes(row.logs) },
  { title: "Replicas", kind: "number", cell: (row) => count(row.replicas) },
];

export const disks = tablePage("Disks", {
  page: "disks", caption: "Replicas", path: "disks/replicas", searchLabel: "Partition contains",
  columns: [
    { title: "Partition", kind: "text", sort: "topic", cell: (row) => link("topic", { name: row.topic }, `${row.topic}-${row.partition}`) },
    { title: "Broker", kind: "number", cell: (row) => String(row.broker) },
    { title: "Size", kind: "number", sort: "size", cell: (row) => bytes(row.size) },
    { title: "Directory", kind: "text", cell: (row) => row.path },
  ],
}, async () => plain("Log directories", DIRECTORIES, await get("disks")));

export const transactions = tablePage("Transactions", {
  page: "transactions", path: "transactions", searchLabel: "Id contains", filters: [["open", "Only open ones"]],
  columns: [
    { title: "Transactional id", kind: "text", sort: "id", cell: (row) => row.id },
    { title: "State", sort: "state", cell: (row) => (row.error ? h("span", { class: "bad" }, row.error) : row.state) },
    { title: "Prepared write of Spark", cell: (row) => (row.is_prepared_write ? "yes" : "") },
    { title: "Open for s", kind: "number", cell: (row) => count(row.open_s) },
    { title: "Timeout s", kind: "number", cell: (row) => count(row.timeout_s) },
    { title: "Partitions", kind: "text", cell: (row) => row.partitions ?? "" },
    { title: "Producer", kind: "number", cell: (row) => String(row.producer) },
    { title: "Coordinator", kind: "number", cell: (row) => String(row.coordinator) },
  ],
});

export const quotas = tablePage("Quotas", {
  page: "quotas", path: "quotas", searchLabel: "Contains",
  columns: [
    { title: "Whose", kind: "text", cell: (row) => row.whose },
    { title: "Quota", kind: "text", sort: "name", cell: (row) => row.name },
    { title: "Value", kind: "number", sort: "value", cell: (row) => count(row.value) },
  ],
});

export const acls = tablePage("Access", {
  page: "acls", path: "acls", searchLabel: "Contains", caption: "Access control lists",
  columns: [
    { title: "Resource", sort: "resource", cell: (row) => row.resource },
    { title: "Name", kind: "text", sort: "name", cell: (row) => row.name },
    { title: "Pattern", cell: (row) => row.pattern },
    { title: "Principal", kind: "text", sort: "principal", cell: (row) => row.principal },
    { title: "Host", kind: "text", cell: (row) => row.host },
    { title: "Operation", sort: "operation", cell: (row) => row.operation },
    { title: "Permission", cell: (row) => h("span", { class: row.permission === "deny" ? "bad" : null }, row.permission) },
  ],
});
