/** Hits: the documents found, with the query's words highlighted, and each one's path into the answer. */

import { get } from "./api.mjs";
import { line } from "./catalog.mjs";
import { h, live } from "./dom.mjs";
import { finder, marked, plain, units } from "./highlight.mjs";
import { percent, score, t, worded } from "./i18n.mjs";
import { filled } from "./notices.mjs";
import { address, here } from "./place.mjs";
import { wayFigure, wayInWords, wayTable } from "./way.mjs";

const SHORT = 420; // characters of a closed hit
const BEFORE = 90; // of them before the first matching word
const AROUND = 1500; // characters of the source shown on each side of a passage
const CODE = /^(?:[chrs]|cc|cs|cpp|hpp|go|java|[cm]?[jt]sx?|json[lc]?|kts?|lua|php|pl|py|rb|rs|scala|sh|sql|swift|toml|xml|ya?ml)$/;
const PAGES = { // of which a file is made
  xlsx: "sheet", ods: "sheet", pptx: "slide", odp: "slide", ipynb: "cell", json: "record", mbox: "message",
};
const EMPHASIS = /(?<![\p{L}\p{N}_*])(\*\*|__|\*|_)(?=[^\s*_])([^*_]{0,200}[^\s*_])\1(?![\p{L}\p{N}_*])/gu;
const BULLET = /^([ \t]*)[*+][ \t]+(?=[\p{L}[`"“«])/gmu;
const FENCE = /^[ \t]*(?:```|~~~)[^\n`]*(?:\n|$)/gm;
const LONG = 20_000; // characters of an opened hit until the user requests all

/**
 * The hits of an answer.
 * @param {any[]} hits
 * @param {string} query
 * @param {((dataset: string | null, id: string) => import("./way.mjs").Step[]) | null} steps
 * @returns {HTMLElement}
 */
export function hitList(hits, query, steps) {
  const find = finder(query);
  const isWeak = (/** @type {any} */ { odds }) => odds === "nearest";
  const weak = hits.find((hit, place) => place > 0 && isWeak(hit) && !isWeak(hits[place - 1]) && hits.slice(place).every(isWeak));
  const cards = new Map(); // by text
  for (const hit of hits) {
    const text = hit.text.normalize("NFKC").toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ").trim();
    const alike = cards.get(text) ?? [];
    alike.push(hitCard(hit, find, steps, hit === weak));
    cards.set(text, alike);
  }
  return h("ol.hits", {}, [...cards.values()].map(([first, ...copies]) => {
    if (copies.length)
      first.append(h("details.copies", {}, h("summary", {}, () => t("hit.copies", { n: copies.length })),
        h("ol.hits", {}, copies)));
    return first;
  }));
}

/**
 * Opens the hit of a document and brings it into view.
 * @param {ParentNode} root
 * @param {string} id
 * @param {string | null} dataset
 * @returns {boolean} whether the hit is there
 */
export function openHit(root, id, dataset) {
  const card = [...root.querySelectorAll(".hit")]
    .find((one) => one.dataset.id === id && (!dataset || one.dataset.in === dataset));
  if (!card) return false;
  const copies = card.closest("details.copies");
  if (copies) copies.open = true;
  const button = card.querySelector("[data-hit]");
  if (button.getAttribute("aria-expanded") === "false") button.click();
  button.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
  return true;
}

/**
 * One hit; its heading opens it.
 * @param {any} hit
 * @param {(text: string) => import("./highlight.mjs").Range[]} find
 * @param {((dataset: string | null, id: string) => import("./way.mjs").Step[]) | null} steps
 * @param {boolean} [weak] whether it is the first weak hit
 * @returns {HTMLElement}
 */
export function hitCard(hit, find, steps, weak = false) {
  const id = `hit-${hit.rank}`;
  const more = h("div.more", { id, hidden: true });
  const toggle = () => {
    const open = more.hidden;
    if (open && !more.childNodes.length) more.append(...opened(hit, find, steps));
    more.hidden = !open;
    short.hidden = open;
    button.setAttribute("aria-expanded", String(open));
  };
  const button = h("button.title", {
    type: "button",
    dir: "auto",
    "aria-expanded": "false",
    "aria-controls": id,
    "data-hit": hit.rank,
    on: { click: toggle },
  }, plain(hit.caption));
  const short = h("p.text", { class: isCode(hit) ? "code" : null, dir: "auto", "data-content": true },
    snippet(shownText(hit), find));
  return h("li.hit", { class: line(hit.dataset), value: hit.rank, "data-id": hit.id, "data-in": hit.dataset },
    weak ? h("p.weak", {}, () => t("hit.weak")) : null,
    h("span.rank", { "aria-hidden": "true" }, String(hit.rank)),
    h("h3", { "data-content": true }, button),
    h("p.facts", {},
      hit.dataset === null ? null : h("span.dataset", { "data-content": true }, hit.dataset),
      typeof hit.relevance === "number"
        ? h("span.relevance", {}, h("meter", { min: 0, max: 1, value: hit.relevance, "aria-hidden": "true" }), " ",
          () => `${worded(`odds_${hit.odds}`)} · ${t("hit.relevance", { relevance: percent(hit.relevance) })}`)
        : h("span", {}, () => t("hit.score", { score: score(hit.score) })),
      hit.excerpt ? h("span.tag", {}, () => t("hit.excerpt")) : null,
      source(hit)),
    short, more);
}

/**
 * Returns the beginning of a text, or the part where the words of the query begin.
 * @param {string} text
 * @param {(text: string) => import("./highlight.mjs").Range[]} find
 * @returns {Node}
 */
export function snippet(text, find) {
  const ranges = find(text.slice(0, LONG));
  const first = ranges[0]?.[0] ?? 0;
  let start = first > SHORT - BEFORE ? first - BEFORE : 0;
  if (start) start = Math.max(text.lastIndexOf(" ", start), start - 20) + 1;
  if (isTail(text, start)) start--;
  let end = Math.min(start + SHORT, text.length);
  if (end < text.length) end = Math.max(text.lastIndexOf(" ", end), end - 20);
  if (isTail(text, end)) end--;
  const within = ranges.filter(([from, to]) => from >= start && to <= end).map(([a, b]) => [a - start, b - start]);
  const made = marked(text.slice(start, end), within);
  if (start) made.prepend("… ");
  if (end < text.length) made.append(" …");
  return made;
}

/** The text of a hit without Markdown's marks of emphasis and fences of code, its bullets as such. */
function shownText({ text, metadata: { kind } }) {
  return kind === "md" ? text.replace(EMPHASIS, "$2").replace(BULLET, "$1• ").replace(FENCE, "") : text;
}

function isTail(text, at) {
  return /[\udc00-\udfff]/.test(text.charAt(at));
}

function opened(hit, find, steps) {
  const way = steps?.(hit.dataset, hit.id) ?? [];
  const parts = [whole(hit, find), leads(hit)];
  if (way.some(({ rank }) => rank !== null)) {
    const told = h("p.summary", {});
    live(told, () => told.replaceChildren(wayInWords({ steps: way, rank: hit.rank })));
    parts.push(h("h4", {}, () => t("way.title")), told, wayFigure(way),
      h("details", {}, h("summary", {}, () => t("way.figures")), wayTable(way)));
  }
  parts.push(h("h4", {}, () => t("hit.metadata")), metadata(hit));
  return parts;
}

function whole(hit, find) {
  const text = hit.excerpt?.full_text ?? hit.text;
  const host = h("div.text.whole", { class: isCode(hit) ? "code" : null, dir: "auto", "data-content": true, tabindex: 0,
    role: "region", "aria-label": () => t("hit.text") });
  const show = (end) => {
    const part = text.slice(0, isTail(text, end) ? end - 1 : end);
    const spans = hit.excerpt ? units(text, hit.excerpt.spans) : null;
    if (!spans) host.replaceChildren(marked(part, find(part)));
    else {
      host.replaceChildren();
      let at = 0;
      for (const [from, to] of spans) {
        const chosen = part.slice(from, to);
        host.append(plain(part.slice(at, from)), h("span.kept", {}, marked(chosen, find(chosen))));
        at = to;
      }
      host.append(plain(part.slice(at)));
    }
  };
  show(LONG);
  if (text.length <= LONG) return host;
  const all = h("button", { type: "button", on: { click: () => (show(text.length), all.remove()) } },
    () => t("hit.all", { n: text.length }));
  return h("div", {}, host, all);
}

/**
 * Metadata as a list of names and values.
 * @param {{id: string, metadata: Record<string, unknown>}} document
 * @returns {HTMLElement}
 */
export function metadata({ id, metadata: found }) {
  const rows = Object.entries(found).map(([name, value]) => [
    h("dt", {}, plain(name)),
    h("dd", { dir: "auto" }, plain(typeof value === "string" ? value : JSON.stringify(value))),
  ]);
  return h("dl.metadata", { "data-content": true }, h("dt", {}, "id"), h("dd", {}, h("code", {}, plain(id))), rows);
}

/**
 * Whether a passage is source code.
 * @param {{metadata: Record<string, unknown>}} document
 */
export function isCode({ metadata: { kind } }) {
  return typeof kind === "string" && CODE.test(kind);
}

/** Where a hit leads: its source with the passage marked among its neighbours, and an address to share. */
function leads(hit) {
  const { hit: _, of: __, ...params } = Object.fromEntries(here().params);
  const share = h("a", { href: address("ask", { ...params, hit: hit.id, of: hit.dataset }) }, () => t("hit.link"));
  if (typeof hit.metadata.source !== "string" || typeof hit.metadata.start !== "number" || !hit.dataset)
    return h("p.leads", {}, share);
  const host = h("div", {});
  const toggle = () => {
    if (around.open && !host.childNodes.length) filled(host, () => surroundings(hit, AROUND, host));
  };
  const around = h("details.around", { on: { toggle } }, h("summary", {}, () => t("hit.around")), host);
  return h("div.leads", {}, around, h("p", {}, share));
}

/** The text around a passage; offsets are those of its citation, in characters. */
async function surroundings(hit, reach, host) {
  const { source: name, hash, start, end } = hit.citation;
  const query = new URLSearchParams({ source: name, ...(hash && { hash }), start: Math.max(start - reach, 0),
    end: end + reach });
  const { text, start: from, length } = await get(`datasets/${encodeURIComponent(hit.dataset)}/text?${query}`);
  const [[first, last] = [0, 0]] = units(text, [[start - from, end - from]]);
  const mark = h("mark", {}, plain(text.slice(first, last)));
  const box = h("div.text.whole", { class: isCode(hit) ? "code" : null, dir: "auto", "data-content": true, tabindex: 0,
    role: "region", "aria-label": () => t("hit.around") },
  from > 0 ? "… " : null, plain(text.slice(0, first)), mark, plain(text.slice(last)),
  end + reach < length ? " …" : null);
  requestAnimationFrame(() => (box.scrollTop = mark.offsetTop - box.offsetTop - box.clientHeight / 3));
  const whole = from === 0 && end + reach >= length;
  const more = () => filled(host, () => surroundings(hit, reach * 10, host));
  return [box, whole ? "" : h("button", { type: "button", on: { click: more } }, () => t("hit.around.more"))];
}

/**
 * The page and the lines of a passage in its source, as far as they are known.
 * @param {Record<string, unknown>} metadata
 * @returns {string}
 */
export function placeOf({ kind, page, page_end: end, record, message, line: first, last_line: last }) {
  const number = { json: record, mbox: message }[kind] ?? page;
  const row = PAGES[kind] === "sheet" ? "row" : "line";
  return [
    typeof number === "number" ? t(`hit.at.${PAGES[kind] ?? "page"}`, { n: end > number ? `${number}–${end}` : number }) : null,
    typeof first === "number" ? t(`hit.at.${row}${last > first ? "s" : ""}`, { first, last }) : null,
  ].filter(Boolean).join(", ");
}

function source(hit) {
  const { source: found, url } = hit.metadata;
  const shown = [url, found].find((one) => typeof one === "string" && one);
  if (!shown) return null;
  const web = /^https?:\/\//i.test(shown) && URL.canParse(shown);
  const attributes = { href: web && new URL(shown).href, rel: "noopener noreferrer", target: "_blank" };
  return h("span.source", { "data-content": true, dir: "auto" },
    web ? h("a", attributes, plain(shown)) : plain(shown), h("span.at", {}, () => {
      const { page, page_end } = hit.citation; // of the sentence that answers
      const at = placeOf({ ...hit.metadata, page, page_end });
      return at && `, ${at}`;
    }));
}
