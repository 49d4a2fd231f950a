/** The page: frame, views, keyboard. */

import "./ask.mjs";
import { key, keys } from "./api.mjs";
import { me } from "./catalog.mjs";
import { h } from "./dom.mjs";
import { current, LANGUAGES, speak, t } from "./i18n.mjs";
import { kept } from "./keep.mjs";
import { openKeyDialog, problemCard, statusRegion } from "./notices.mjs";
import { address, arrive, here } from "./place.mjs";
import { sign } from "./signs.mjs";

const VIEWS = {
  ask: async () => {},
  compare: () => import("./compare.mjs"),
  datasets: () => import("./datasets.mjs"),
  evaluation: () => import("./evaluation.mjs"),
};
const THEMES = ["auto", "light", "dark"];

const theme = kept("localStorage", "theme");
const shortcuts = kept("localStorage", "shortcuts");
const views = new Map();
const links = new Map();
const main = h("main", { id: "main", tabindex: -1 });
const help = helpDialog();

// ── frame ────────────────────────────────────────────────────────────────────────────────────────────────────────────

function frame() {
  const nav = h("nav", { "aria-label": () => t("nav") }, Object.keys(VIEWS).map((view) => {
    const link = h("a", { href: `#${view}` }, () => t(`view.${view}`));
    links.set(view, link);
    return link;
  }));
  const languages = h("select", { id: "language", "aria-label": () => t("language"),
    on: { change: ({ target }) => speak(target.value) } },
    Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, lang: code }, name)));
  languages.value = current();
  const themes = h("button.icon", { type: "button", id: "theme", on: { click: nextTheme },
    "aria-label": () => t("theme", { theme: t(`theme.${theme.get() ?? "auto"}`) }),
    title: () => t("theme", { theme: t(`theme.${theme.get() ?? "auto"}`) }) });
  const icons = { auto: "◐", light: "☀", dark: "☾" };
  const showTheme = () => (themes.textContent = icons[theme.get() ?? "auto"]);
  function nextTheme() {
    const next = THEMES[(THEMES.indexOf(theme.get() ?? "auto") + 1) % THEMES.length];
    theme.set(next === "auto" ? null : next);
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    showTheme();
    for (const name of ["aria-label", "title"]) themes.setAttribute(name, t("theme", { theme: t(`theme.${next}`) }));
  }
  showTheme();
  const who = h("button.quiet", { type: "button", id: "who", on: { click: () => openKeyDialog() } });
  let latest = null;
  const showKey = async () => {
    const asked = (latest = me());
    const told = await asked.catch(() => null); // errors are shown where the value is needed
    if (asked !== latest) return; // the key has changed meanwhile
    const name = told?.key?.name;
    who.replaceChildren(sign("key"), name ? h("span", { "data-content": true }, name)
      : h("span", {}, () => t(key() ? "key.given" : "key.none")));
  };
  keys.addEventListener("changed", showKey);
  showKey();
  const mark = h("img", { src: new URL("icon.svg", import.meta.url).pathname, alt: "", width: 28, height: 28 });
  return [
    h("a.skip", { href: "#main", on: { click: skip } }, () => t("skip")),
    h("header", {}, h("a.brand", { href: "#ask" }, mark, h("span", {}, "Pointsman")), nav,
      h("div.tools", {}, who, languages, themes,
        h("button.icon", { type: "button", id: "help", "aria-label": () => t("help.title"), title: () => t("help.title"),
          on: { click: () => help.showModal() } }, "?"))),
    main, statusRegion(), help,
  ];
}

function skip(event) {
  event.preventDefault(); // the address belongs to the views
  main.focus();
}

function helpDialog() {
  const own = h("input", { type: "checkbox", id: "shortcuts" });
  own.checked = shortcuts.get() !== "off";
  own.addEventListener("change", () => shortcuts.set(own.checked ? null : "off"));
  const rows = [["/", "query"], ["j", "next"], ["k", "previous"], ["Enter", "open"], ["1 – 4", "views"], ["Esc", "stop"],
    ["?", "help"]];
  const dialog = h("dialog", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, () => t("help.title")),
    h("dl.keys", {}, rows.map(([name, what]) => [
      h("dt", {}, h("kbd", {}, name), name === "j" ? [" ", h("kbd", {}, "↓")] : name === "k" ? [" ", h("kbd", {}, "↑")]
        : null),
      h("dd", {}, () => t(`help.${what}`))])),
    h("p.field.check", {}, own, h("label", { for: "shortcuts" }, () => t("help.shortcuts"))),
    h("h3", {}, () => t("help.signs")),
    h("dl.keys", {}, ["switch", "line", "buffer", "warning", "halt"].map((name) => [
      h("dt", {}, sign(name)), h("dd", {}, () => t(`help.sign.${name}`))])),
    h("p.actions", {}, h("button.primary", { type: "button", on: { click: () => dialog.close() } }, () => t("close"))));
  return dialog;
}

// ── views ────────────────────────────────────────────────────────────────────────────────────────────────────────────

async function show() {
  const { view: named, params } = arrive();
  const view = Object.hasOwn(VIEWS, named) ? named : "ask";
  links.get(view).href = address(view, Object.fromEntries(params)); // going back restores the view
  for (const [name, link] of links) {
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    await VIEWS[view]();
  } catch (error) {
    main.replaceChildren(problemCard(Object.assign(error, { slug: "network" }), () => location.reload()));
    views.clear();
    return;
  }
  if (here().view !== named) return; // the user has moved on
  if (!views.has(view)) {
    const made = document.createElement(`pm-${view}`);
    views.set(view, made);
  }
  for (const [name, element] of views) element.hidden = name !== view;
  const element = views.get(view);
  if (!element.isConnected) main.append(element);
  element.show(params);
}

// ── keyboard ─────────────────────────────────────────────────────────────────────────────────────────────────────────

function pressed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return; // it handles its own keys
  const { target, key: name } = event;
  const writes = target.matches("input, textarea, select, [contenteditable]");
  if (name === "Escape") {
    if (views.get("ask")?.stop()) return;
    if (writes) target.blur();
    else fold(target);
    return;
  }
  const hits = [...main.querySelectorAll("[data-hit]")].filter((hit) => hit.checkVisibility());
  const within = target.closest(".hit, .hits");
  if (name === "ArrowDown" && target.id === "q" && hits.length) step(hits, 1);
  else if (writes) return;
  else if (within && name === "ArrowDown" && target.matches("[data-hit]")) step(hits, 1);
  else if (within && name === "ArrowUp" && target.matches("[data-hit]")) step(hits, -1);
  else if (shortcuts.get() === "off") return;
  else if (name === "/") ask();
  else if (name === "?") help.showModal();
  else if (name === "j") step(hits, 1);
  else if (name === "k") step(hits, -1);
  else if (/^[1-4]$/.test(name)) {
    const link = [...links.values()][Number(name) - 1];
    link.click();
    link.focus();
  } else return;
  event.preventDefault();
}

function step(hits, by) {
  const at = hits.findIndex((hit) => hit.closest(".hit").contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : hits.length - 1) : Math.min(Math.max(at + by, 0), hits.length - 1);
  hits[next]?.focus();
  hits[next]?.closest(".hit").scrollIntoView({ block: "nearest" });
}

function fold(target) {
  const open = target.closest(".hit")?.querySelector("[data-hit][aria-expanded=true]");
  open?.click();
  open?.focus();
}

async function ask() {
  const named = here().view;
  if (named !== "compare" && named !== "ask") {
    location.hash = "#ask";
    await show(); // it may be the first time
  }
  views.get(named === "compare" ? "compare" : "ask")?.focusQuery();
}

// ── begin ────────────────────────────────────────────────────────────────────────────────────────────────────────────

document.body.append(...frame());
addEventListener("hashchange", show);
addEventListener("keydown", pressed);
await show();
if (here().view !== "compare" && !here().params.has("q") && !matchMedia("(pointer: coarse)").matches)
  views.get("ask")?.focusQuery(); // at the start there is nothing else to do; a touch screen would show its keyboard
setTimeout(() => { // after the first answer, while the network is up; shown views report errors
  for (const load of Object.values(VIEWS)) load().catch(() => {});
}, 2000);
