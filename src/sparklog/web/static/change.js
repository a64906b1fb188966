// A dialog that asks for what a change needs, and says what became of it.

import { post } from "/static/api.js";
import { h, problem, say } from "/static/dom.js";

// `fields` are {name, label, value, type, options}; `told(values)` makes the request's body; `done(answer)` follows.
export function changeButton({ label, danger, title, warning, fields, path, told, done }) {
  return h("button", { type: "button", class: danger ? "danger" : null, onclick: (event) => ask(event.currentTarget) }, label);

  function ask(opener) {
    const inputs = fields.map((field) => [field, input(field)]);
    const trouble = h("div");
    const send = h("button", { type: "submit", class: danger ? "danger" : "main" }, label);
    const close = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const form = h("form", { class: "login", onsubmit: async (event) => {
      event.preventDefault();
      send.disabled = true;
      try {
        const answer = await post(path, told(Object.fromEntries(inputs.map(([field, element]) => [field.name, element.value]))));
        dialog.close();
        say(`${title}: done`);
        await done?.(answer);
      } catch (error) {
        trouble.replaceChildren(problem(error));
      } finally {
        send.disabled = false;
      }
    } }, h("h2", { id: "dialog-title" }, title), warning && h("p", { class: "bad" }, warning),
      inputs.map(([field, element]) => h("label", {}, field.label, element)), trouble, h("div", { class: "tools" }, send, close));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { dialog.remove(); opener.focus(); } }, form);
    document.body.append(dialog);
    dialog.showModal();
  }
}

function input(field) {
  if (field.options) {
    return h("select", {}, field.options.map(([value, label]) => h("option", { value, selected: value === field.value }, label)));
  }
  return h("input", { type: field.type ?? "text", value: field.value ?? "", autocomplete: "off", required: field.required, min: field.min });
}
