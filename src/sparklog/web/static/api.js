// Questions to the server that served this page.

export const session = {};

export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function answered(response) {
  const told = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(response.status, told.error?.code ?? "", told.error?.message ?? response.statusText);
  return told;
}

function path(name, parameters) {
  const told = Object.entries(parameters ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `/api/${name}?${new URLSearchParams(told)}`;
}

export async function get(name, parameters, signal) {
  return answered(await fetch(path(name, parameters), { signal, credentials: "same-origin" }));
}

export async function post(name, told, parameters, signal) {
  return answered(await fetch(path(name, parameters), {
    method: "POST",
    signal,
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", "X-Sparklog-Token": session.token ?? "" },
    body: JSON.stringify(told ?? {}),
  }));
}

export const events = (name, parameters) => new EventSource(path(name, parameters));

export async function know() {
  return Object.assign(session, await get("session"));
}
