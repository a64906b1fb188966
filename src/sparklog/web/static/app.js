// The page as a whole: which part is shown, by the address behind the #; who looks at it; what is asked again.

import { know, post, session } from "/static/api.js";
import { h, problem, say } from "/static/dom.js";
import { PAGES } from "/static/pages.js";

const EVERY = 5000;
const main = document.getElementById("main");
let shown = null;
let turn = 0;

function asked() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: PAGES[path] ? path : "cluster", parameters: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function navigation(name) {
  const section = PAGES[name].section ?? name;
  document.getElementById("nav").replaceChildren(...Object.entries(PAGES).filter(([, page]) => !page.section).map(([each, page]) =>
    h("li", {}, h("a", { href: `#/${each}`, "aria-current": each === section ? "page" : null }, page.title))));
}

function visitor() {
  const leave = h("button", { type: "button", onclick: logOut }, "Log out");
  document.getElementById("visitor").replaceChildren(...(session.user ? [h("span", {}, `${session.user} `), leave] : []));
}

async function show(keepFocus) {
  const mine = ++turn;
  shown?.close?.();
  shown = null;
  const { name, parameters } = asked();
  const page = PAGES[name];
  navigation(name);
  visitor();
  if (session.login_needed) return logIn();
  const title = page.heading ? page.heading(parameters) : page.title;
  document.title = `${title} · sparklog`;
  const heading = h("h1", { tabindex: "-1" }, title);
  const content = h("div");
  main.replaceChildren(heading, content);
  if (!keepFocus) heading.focus({ preventScroll: false });
  try {
    const found = await page.show(content, parameters);
    if (mine === turn) shown = found ?? null;
    else found?.close?.();
  } catch (error) {
    if (mine === turn) failed(error, content);
  }
}

function failed(error, content) {
  if (error.status === 401) {
    session.login_needed = true;
    show();
  } else {
    content.replaceChildren(problem(error), h("button", { type: "button", onclick: () => show() }, "Try again"));
  }
}

function logIn() {
  document.title = "Log in · sparklog";
  const user = h("input", { name: "user", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const trouble = h("div");
  const send = h("button", { class: "main", type: "submit" }, "Log in");
  const form = h("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    send.disabled = true;
    try {
      Object.assign(session, await post("login", { user: user.value, password: password.value }));
      password.value = "";
      await show();
    } catch (error) {
      password.value = "";
      trouble.replaceChildren(problem(error));
      password.focus();
    } finally {
      send.disabled = false;
    }
  } }, h("label", {}, "User", user), h("label", {}, "Password", password), trouble, send);
  main.replaceChildren(h("h1", { tabindex: "-1" }, "Log in"),
    h("p", {}, "With a user and a password of the cluster. You see what that user may see."), form);
  user.focus();
}

async function logOut() {
  try {
    await post("logout");
  } catch (error) {
    say(error.message);
  }
  Object.assign(session, { user: null, token: null, login_needed: true });
  show();
}

async function refresh() {
  if (document.visibilityState === "visible" && shown?.refresh) {
    const mine = turn;
    try {
      await shown.refresh();
    } catch (error) {
      if (error.status === 401 && mine === turn) failed(error, main);
      else if (error.name !== "AbortError") say(error.message);
    }
  }
  setTimeout(refresh, EVERY);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show());
know().then(() => show(true), (error) => main.replaceChildren(problem(error)));
setTimeout(refresh, EVERY);
