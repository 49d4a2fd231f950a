/** Compare: one question with several strategies, side by side. */

import { keys, post } from "./api.mjs";
import { datasets, line, strategies } from "./catalog.mjs";
import { h, live } from "./dom.mjs";
import { plain } from "./highlight.mjs";
import { placeOf } from "./hits.mjs";
import { has, number, percent, t } from "./i18n.mjs";
import { announce, filled, problemCard } from "./notices.mjs";
import { address, here } from "./place.mjs";

const FIRST = ["bm25", "vector", "hybrid", "rrf"]; // chosen by default
const AT_ONCE = 4; // parallel requests
const K = 10;

/** `<pm-compare>` */
export class CompareView extends HTMLElement {
  #query = h("input", { type: "search", id: "cq", autocomplete: "off", spellcheck: "false", dir: "auto",
    placeholder: () => t("ask.placeholder") });
  #k = h("input", { type: "number", id: "ck", min: 1, max: 100, value: K });
  #choices = h("div.chips", { role: "group", "aria-label": () => t("compare.strategies") });
  #results = h("div.results", {});
  #chosen = new Set(FIRST);
  #abort = new AbortController();
  #asked = null;
  #built = false;

  connectedCallback() {
    if (this.#built) return;
    this.#built = true;
    const submit = (event) => {
      event.preventDefault();
      if (this.#query.value.trim()) this.#go();
      else this.#query.focus();
    };
    this.append(
      h("form.ask", { role: "search", on: { submit } },
        h("div.line", {}, h("label.unseen", { for: "cq" }, () => t("ask.query")), this.#query,
          h("button.primary", { type: "submit" }, () => t("compare.go"))),
        h("div.fields", {}, h("div.field", {}, h("label", { for: "ck" }, () => t("ask.k")), this.#k),
          h("div.field.wide", {}, h("span.label", { "aria-hidden": "true" }, () => t("compare.strategies")),
            this.#choices))),
      this.#results);
    this.#load();
    keys.addEventListener("changed", () => {
      this.#asked = null;
      this.#load();
      if (this.isConnected && !this.hidden) this.show(here().params);
    });
  }

  /** @param {URLSearchParams} params */
  show(params) {
    const asked = ["q", "s", "k"].map((name) => params.get(name) ?? "").join("\n");
    if (asked === this.#asked) return;
    this.#asked = asked;
    this.#query.value = params.get("q") ?? "";
    this.#k.value = params.get("k") || K;
    this.#chosen = new Set(params.get("s") ? params.get("s").split(",") : FIRST);
    this.#press();
    if (params.get("q")?.trim()) this.#run(params.get("q").trim(), [...this.#chosen], Number(this.#k.value) || K);
    else this.#results.replaceChildren(h("div.welcome", {}, h("h2", {}, () => t("compare.welcome")),
      h("p", {}, () => t("compare.welcome.more"))));
  }

  /** Focus the query field. */
  focusQuery() {
    this.#query.focus();
    this.#query.select();
  }

  #load() {
    filled(this.#choices, async () => {
      const found = await strategies();
      return found.filter(({ usable }) => usable).map(({ name, about }) => this.#chip(name, about));
    }, { brief: true });
  }

  #chip(name, about) {
    const click = () => {
      if (!this.#chosen.delete(name)) this.#chosen.add(name);
      this.#press();
    };
    return h("button.chip.plain", { type: "button", "data-name": name, "aria-pressed": String(this.#chosen.has(name)),
      title: () => (has(`strategy.${name}`) ? t(`strategy.${name}`) : about), on: { click } }, h("code", {}, name));
  }

  #press() {
    for (const chip of this.#choices.querySelectorAll("[data-name]"))
      chip.setAttribute("aria-pressed", String(this.#chosen.has(chip.dataset.name)));
  }

  #go() {
    const names = [...this.#chosen]; // in the order chosen: the others are compared with the first
    const s = names.join() === FIRST.join() ? "" : names.join(",");
    const to = address("compare", { q: this.#query.value.trim(), s,
      k: Number(this.#k.value) === K ? "" : this.#k.value });
    this.#asked = null; // the same question again means a new search
    if (to === location.hash) this.show(here().params);
    else location.hash = to;
  }

  async #run(query, names, k) {
    this.#abort.abort();
    const { signal } = (this.#abort = new AbortController());
    const columns = names.map((name) => ({ name, answer: null, problem: null }));
    await datasets().catch(() => []); // their order determines colours
    if (signal.aborted) return;
    const draw = () => this.#results.replaceChildren(...drawn(query, columns, k));
    const waiting = [...columns];
    const work = async () => {
      for (let one = waiting.shift(); one && !signal.aborted; one = waiting.shift()) {
        try {
          const body = { query, k, strategy: one.name, refuse: false };
          one.answer = await post("search", body, { signal });
        } catch (error) {
          if (signal.aborted) return;
          if (!("slug" in error)) throw error;
          one.problem = error;
        }
        draw();
      }
    };
    draw();
    this.#results.setAttribute("aria-busy", "true");
    announce(t("ask.searching"));
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (signal.aborted) return;
    this.#results.removeAttribute("aria-busy");
    announce(t("compare.done", { n: columns.length }));
    const failed = columns.map(({ problem }) => problem).filter(Boolean);
    if (failed.length && failed.length === columns.length)
      this.#results.replaceChildren(problemCard(failed[0], () => this.#run(query, names, k)));
  }
}

customElements.define("pm-compare", CompareView);

/** The table of ranks, and how far the strategies agree. */
function drawn(query, columns, k) {
  if (!columns.length) return [h("p.muted", {}, () => t("compare.none"))];
  const ranks = columns.map(({ answer }) =>
    new Map((answer?.hits ?? []).map((hit) => [`${hit.dataset}\n${hit.id}`, hit])));
  const documents = new Map();
  for (const found of ranks) for (const [at, hit] of found) documents.set(at, documents.get(at) ?? hit);
  const best = (at) => Math.min(...ranks.map((found) => found.get(at)?.rank ?? Infinity));
  const total = (at) => ranks.reduce((sum, found) => sum + (found.get(at)?.rank ?? k + 1), 0);
  const rows = [...documents].toSorted(([a], [b]) => total(a) - total(b) || best(a) - best(b));
  const heads = columns.map((column) => h("th", { scope: "col" }, head(query, column)));
  const body = rows.map(([at, hit]) => h("tr", {},
    h("th", { scope: "row", class: line(hit.dataset), "data-content": true },
      h("span.name", { dir: "auto" }, plain(hit.caption)), h("span.dataset", {}, hit.dataset ?? ""),
      typeof hit.metadata.source === "string"
        ? h("span.at", { dir: "auto" }, plain(hit.metadata.source), () => placeOf(hit.metadata) && `, ${placeOf(hit.metadata)}`)
        : null),
    ranks.map((found, column) => cell(found.get(at)?.rank, ranks[0].get(at)?.rank, column, columns[column], k))));
  const table = h("div.scroll", { tabindex: 0, role: "region", "aria-label": () => t("compare.table") },
    h("table.ranks", {},
      h("caption", {}, () => t("compare.caption", { strategy: columns[0].name })),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, () => t("compare.document")), heads)),
      h("tbody", {}, body)));
  const ready = columns.filter(({ answer }) => answer);
  return [h("section.card", {}, table), ready.length > 1 ? agreement(ready) : null].filter(Boolean);
}

function head(query, { name, answer, problem }) {
  const to = address("ask", { q: query, s: name });
  const state = h("span.state", {});
  live(state, () => {
    state.className = problem ? "state bad" : "state";
    state.textContent = problem
      ? `⚠ ${has(`problem.${problem.slug}`) ? t(`problem.${problem.slug}`) : problem.title}`
      : answer ? t("hits", { n: answer.hits.length }) : "…"; // its time would be that of one call, which proves nothing
    state.title = problem?.detail ?? "";
  });
  const used = answer && answer.strategy !== name ? h("code.muted", {}, ` → ${answer.strategy}`) : null;
  const worse = answer?.degraded.length
    ? h("span.bad", { title: answer.degraded.join("\n"), role: "img", "aria-label": () => t("degraded.title") }, " ⚠")
    : null;
  return [h("a", { href: to }, h("code", {}, name)), used, worse, state];
}

/** A rank, also shown by its colour, and its difference from the first strategy's. */
function cell(rank, base, column, { answer, problem }, k) {
  if (rank === undefined) return h("td.number.absent", {}, answer ? "–" : problem ? "⚠" : "…");
  const heat = `heat-${Math.max(0, 4 - Math.floor(((rank - 1) * 5) / Math.max(k, 5)))}`;
  const made = h("td.number", { class: heat }, h("strong", {}, () => number(rank)));
  if (column === 0) return made;
  if (base === undefined) made.append(h("span.move.new", {}, () => t("compare.new")));
  else if (base !== rank) {
    const up = base > rank;
    const by = Math.abs(base - rank);
    made.append(h("span.move", { class: up ? "up" : "down" }, h("span", { "aria-hidden": "true" },
      up ? "▲" : "▼", () => number(by)),
    h("span.unseen", {}, () => t(up ? "compare.up" : "compare.down", { n: by }))));
  }
  return made;
}

/** The share of common hits for each pair of strategies. */
function agreement(columns) {
  const sets = columns.map(({ answer }) => new Set(answer.hits.map((hit) => `${hit.dataset}\n${hit.id}`)));
  const share = (a, b) => {
    const most = Math.max(a.size, b.size);
    return most ? [...a].filter((one) => b.has(one)).length / most : 1;
  };
  const pairs = sets.flatMap((a, at) => sets.slice(at + 1).map((b) => share(a, b)));
  const mean = pairs.reduce((sum, one) => sum + one, 0) / pairs.length;
  const rows = columns.map(({ name }, at) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)),
    sets.map((other, to) => {
      const value = share(sets[at], other);
      return h("td.number", { class: at === to ? "heat-self" : `heat-${Math.min(4, Math.floor(value * 5))}` },
        () => (at === to ? "·" : percent(value)));
    })));
  return h("section.card", {},
    h("h2", {}, () => t("compare.agreement")),
    h("p.muted", {}, () => t("compare.agreement.about", { share: percent(mean) })),
    h("div.scroll", { tabindex: 0, role: "region", "aria-label": () => t("compare.agreement") },
      h("table.narrow.overlap", {},
        h("thead", {}, h("tr", {}, h("td", {}), columns.map(({ name }) => h("th", { scope: "col" }, h("code", {}, name))))),
        h("tbody", {}, rows))));
}
