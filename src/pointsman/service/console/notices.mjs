/** Notices beside the content: status for screen readers, problems, the dialog for a key. */

import { key, keys, useKey } from "./api.mjs";
import { h } from "./dom.mjs";
import { plain } from "./highlight.mjs";
import { has, said, t } from "./i18n.mjs";

const status = h("div.unseen", { role: "status", "aria-live": "polite" });

/** @returns {HTMLElement} the live region for screen readers; there is one per page */
export function statusRegion() {
  return status;
}

document.addEventListener("languagechanged", () => announce("")); // it was in another language

/** @param {string} text a status message */
export function announce(text) {
  status.textContent = text;
}

/**
 * Shows an error and its remedy.
 * @param {import("./api.mjs").Problem} problem
 * @param {() => void} [again] retries
 * @returns {HTMLElement}
 */
export function problemCard(problem, again) {
  if (!("slug" in problem)) throw problem; // a bug of this page: it belongs in the browser's log
  const { slug, status: code, title, detail, request, retry } = problem;
  const known = has(`problem.${slug}`);
  const wait = h("span", {});
  const actions = h("p.actions", {});
  if (slug === "unauthorized") {
    const open = { type: "button", on: { click: () => openKeyDialog() } };
    actions.append(h("button.primary", open, () => t("key.enter")));
  }
  if (again) {
    const button = h("button", { type: "button", on: { click: again } }, () => t("problem.again"));
    actions.append(button, " ", wait);
    if (retry) countDown(button, wait, retry);
  }
  return h("section.problem", { role: "alert", "data-slug": slug },
    h("h2", { lang: known ? null : "en" }, () => (known ? t(`problem.${slug}`) : title || t("problem.strange")),
      code ? h("small", {}, ` ${code}`) : null),
    known && has(`problem.${slug}.more`) ? h("p", {}, () => t(`problem.${slug}.more`)) : null,
    detail ? h("p.detail", { lang: said(detail).lang }, () => said(detail).text) : null,
    request ? h("p.muted", {}, () => t("problem.request"), " ", h("code", {}, plain(request))) : null,
    actions.childNodes.length ? actions : null);
}

function countDown(button, wait, seconds) {
  button.disabled = true;
  const until = Date.now() + seconds * 1000;
  const tick = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    button.disabled = left > 0;
    wait.textContent = left > 0 ? t("problem.wait", { n: left }) : "";
    if (left > 0 && button.isConnected) setTimeout(tick, 250);
  };
  setTimeout(tick);
}

let dialog = null;
let lastClosed = 0; // when it was closed last

/**
 * Opens the dialog for a key.
 * @param {boolean} [refused] whether the service has just refused the key
 */
export function openKeyDialog(refused = false) {
  dialog ??= keyDialog();
  if (!dialog.isConnected) document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("input").value = key() ?? "";
  dialog.querySelector("[role=alert]").textContent = refused && key() ? t("key.wrong") : "";
}

function keyDialog() {
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", id: "key", name: "key" });
  const wrong = h("p.bad", { role: "alert" });
  const close = () => made.close();
  const replace = (text) => {
    made.addEventListener("close", () => useKey(text), { once: true }); // after the time has been noted
    close();
  };
  const use = (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text && !/^[\x21-\x7e]{1,256}$/.test(text)) {
      wrong.textContent = t("key.malformed");
      input.focus();
      return;
    }
    replace(text || null);
  };
  const made = h("dialog", { "aria-labelledby": "key-title" },
    h("form", { on: { submit: use } },
      h("h2", { id: "key-title" }, () => t("key.title")),
      h("p", {}, () => t("key.about")),
      h("label", { for: "key" }, () => t("key.label")), input, wrong,
      h("p.actions", {},
        h("button.primary", { type: "submit" }, () => t("key.use")), " ",
        h("button", { type: "button", on: { click: () => replace(null) } }, () => t("key.forget")), " ",
        h("button", { type: "button", on: { click: close } }, () => t("close")))));
  made.addEventListener("close", () => (lastClosed = performance.now()));
  return made;
}

// A key can be refused many times at once: nothing reopens a dialog that was closed since, or empties one that is open.
keys.addEventListener("needed", ({ detail: begun }) => {
  if (begun >= lastClosed && !dialog?.open) openKeyDialog(true);
});

/**
 * Shows an error in one line, where space is short and the details are elsewhere.
 * @param {import("./api.mjs").Problem} problem
 * @param {() => void} again
 * @returns {HTMLElement}
 */
function problemLine(problem, again) {
  if (!("slug" in problem)) throw problem;
  const known = has(`problem.${problem.slug}`);
  return h("span.brief", { "data-slug": problem.slug },
    h("span.bad", { lang: known ? null : "en" }, () => (known ? t(`problem.${problem.slug}`) : problem.title)),
    h("button.quiet", { type: "button", on: { click: again } }, () => t("problem.again")));
}

const fillings = new WeakMap(); // the last one of each element: what was asked for before it may arrive after it

/**
 * Fills an element with content that arrives later, or with the error, unless it is to be filled anew meanwhile.
 * @param {HTMLElement} host
 * @param {() => Promise<Node | Node[]>} make
 * @param {{brief?: boolean}} [options] whether to show errors in one line
 */
export async function filled(host, make, { brief = false } = {}) {
  const filling = {};
  const isLast = () => fillings.get(host) === filling;
  fillings.set(host, filling);
  host.setAttribute("aria-busy", "true");
  try {
    const content = [await make()].flat();
    if (isLast()) host.replaceChildren(...content);
  } catch (error) {
    if (error.name === "AbortError" || !isLast()) return; // the user has moved on
    host.replaceChildren((brief ? problemLine : problemCard)(error, () => filled(host, make, { brief })));
  } finally {
    if (isLast()) host.removeAttribute("aria-busy");
  }
}
