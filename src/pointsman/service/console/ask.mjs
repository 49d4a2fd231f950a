/** Ask: a question, its path as a railway, the results, and why a document is missing. */

import { get, keys, post, search } from "./api.mjs";
import { datasets, line, strategies } from "./catalog.mjs";
import { h, live } from "./dom.mjs";
import { plain } from "./highlight.mjs";
import { hitList, openHit } from "./hits.mjs";
import { current, figure, has, milliseconds, percent, reasoned, said, t } from "./i18n.mjs";
import { advance, begin, broken } from "./journey.mjs";
import { kept } from "./keep.mjs";
import { announce, filled, problemCard } from "./notices.mjs";
import { address, here } from "./place.mjs";
import { sign } from "./signs.mjs";
import { asTable, summary, timetable } from "./railway.mjs";
import { stepsOf, wayFigure, wayInWords, wayTable } from "./way.mjs";

const NAMES = ["q", "d", "s", "k", "e", "f", "r", "n", "w", "y"]; // parameters of the address that a search depends on
const K = 5;
const EXAMPLES = 6; // questions on the empty page
const SAMPLE = 20; // documents of a dataset that they are taken from
const CANDIDATES = 5; // documents that a file name or words may mean
const NO_DOCUMENT = "no dataset that was searched has a document with this id"; // the service's words
const unfolded = kept("localStorage", "route"); // whether the user has unfolded the path of the query

/** `<pm-ask>` */
export class AskView extends HTMLElement {
  #form = null;
  #results = h("div.results", {});
  #abort = new AbortController();
  #asked = null; // the address of the results shown
  #answer = null;
  #why = null; // {id, dataset}
  #linked = null; // {id, dataset}: the hit that the address leads to

  connectedCallback() {
    if (this.#form) return;
    this.#form = new SearchForm((params) => this.#go(params));
    this.append(this.#form.element, this.#results);
    this.#results.append(welcome());
    keys.addEventListener("changed", () => {
      this.#asked = null;
      this.#form.load();
      if (this.isConnected && !this.hidden) this.show(here().params);
    });
  }

  /** @param {URLSearchParams} params */
  show(params) {
    const asked = key(params);
    this.#why = params.has("why") ? { id: params.get("why"), dataset: params.get("in") } : null;
    this.#linked = params.has("hit") ? { id: params.get("hit"), dataset: params.get("of") } : null;
    if (asked !== this.#asked) {
      this.#form.params = params;
      this.#asked = asked;
      if (params.get("q")?.trim()) this.#search(body(params));
      else this.#clear();
    } else {
      this.#explainAgain?.();
      this.#open();
    }
  }

  /** Opens the hit that the address leads to; says so if it is not in the answer. */
  #open() {
    this.#results.querySelector(".gone")?.remove();
    if (!this.#linked || !this.#answer) return;
    const { id, dataset } = this.#linked;
    if (openHit(this.#results, id, dataset)) return;
    const { hit: _, of: __, ...params } = Object.fromEntries(here().params);
    const why = address("ask", { ...params, why: id, in: dataset });
    this.#results.querySelector(".headline")?.after(h("p.gone", {}, () => t("hit.gone"), " ",
      h("a", { href: why }, () => t("why.title"))));
  }

  /** Focus the query field. */
  focusQuery() {
    this.#form.focus();
  }

  /** Stops a running search; returns false if there is none. */
  stop() {
    if (!this.#form.busy) return false;
    this.#abort.abort();
    return true;
  }

  #explainAgain = null;

  #go(params) {
    const to = address("ask", params);
    this.#asked = null; // the same question again means a new search
    if (to === location.hash) this.show(here().params);
    else location.hash = to;
  }

  #clear() {
    this.#abort.abort();
    this.#answer = null;
    this.#results.replaceChildren(welcome());
  }

  async #search(asked) {
    this.#abort.abort();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    const again = () => this.#search(asked);
    const view = new Result(asked);
    this.#form.busy = true;
    this.#explainAgain = null;
    this.#answer = null;
    this.#results.replaceChildren(view.element);
    announce(t("ask.searching"));
    let journey = begin(asked.query, asked.refuse !== false);
    try {
      view.journey = journey;
      const known = datasets().catch(() => []); // their order determines colours; the search reports errors
      for await (const { event, data } of search({ ...asked, trace: "lists" }, { signal })) {
        await known;
        journey = advance(journey, event, data);
        view.journey = journey;
        if (event === "result") this.#answered(view, asked, data);
      }
    } catch (error) {
      if (signal !== this.#abort.signal) return; // a newer question has replaced this one
      view.journey = broken(journey);
      view.problem = signal.aborted ? null : problemCard(error, again);
      announce(t(signal.aborted ? "ask.stopped" : "ask.failed"));
    } finally {
      if (signal === this.#abort.signal) this.#form.busy = false;
    }
  }

  #answered(view, asked, answer) {
    this.#answer = answer;
    const insist = () => this.#go({ ...Object.fromEntries(here().params), n: "0" });
    const asIs = address("ask", { ...Object.fromEntries(here().params), w: "1" });
    view.answer(answer, insist, asIs);
    const why = new Why(asked, (id, dataset) => {
      const params = Object.fromEntries(here().params);
      location.hash = address("ask", { ...params, why: id, in: dataset });
    });
    view.aside = why.element;
    this.#explainAgain = () => why.show(this.#why);
    why.show(this.#why);
    this.#open();
    const told = answer.refused ? "ask.refused" : "ask.answered";
    announce(t(told, { n: answer.hits.length, time: milliseconds(answer.milliseconds) }));
  }
}

customElements.define("pm-ask", AskView);

/** All parameters that a search depends on, as one string. */
function key(params) {
  return NAMES.map((name) => params.get(name) ?? "").join("\n");
}

/** Converts an address to a search request. */
function body(params) {
  const number = Number.parseInt(params.get("k") ?? "", 10);
  return {
    query: params.get("q").trim(),
    k: number > 0 ? number : K,
    strategy: params.get("s") || "auto",
    datasets: params.get("d") ? params.get("d").split(",") : null,
    filters: params.get("f") || null,
    effort: ["fast", "thorough"].includes(params.get("e")) ? params.get("e") : "balanced",
    rerank: new Map([["0", false], ["1", true], ["late", "late"]]).get(params.get("r")) ?? null,
    refuse: params.get("n") === "0" ? false : null,
    spelling: params.get("w") !== "1", // as written
    syntax: params.get("y") === "hard" ? "hard" : "auto",
  };
}

const QUOTES = [['"', '"'], ["«", "»"], ["“", "”"], ["„", "“"], ["„", "”"], ["「", "」"]];

/** A question without a part of its syntax, in whichever quotation marks it is written; null if it is not there. */
function without(question, part) {
  const [, sign, phrase] = /^([-+]?)"(.*)"$/.exec(part) ?? [];
  const forms = phrase === undefined ? [part, part.replace(/^(-?)"([^"]*)"(?=[:：])/, "$1$2")]
    : QUOTES.flatMap(([open, close]) => [`+${open}${phrase}${close}`, `${sign}${open}${phrase}${close}`]);
  const written = forms.find((form) => question.includes(form));
  return written ? question.replace(written, " ").replace(/\s+/g, " ").trim() : null;
}

/** The syntax of a question that was not obeyed, as it is a sentence; one click insists on it. */
function hardForm({ decisions }) {
  return decisions.filter(({ what }) => what === "hard_form").map(({ value }) => {
    const href = address("ask", { ...Object.fromEntries(here().params), y: "hard" });
    return h("p.understood.chips", {}, () => t("ask.loose"),
      h("a.chip.hard", { href, "data-content": true }, () => t("ask.hard", { part: value })));
  });
}

/** What was understood of a question's syntax: each part can be taken away. */
function understood({ asked, decisions }) {
  const parts = decisions.filter(({ what }) => what === "syntax")
    .flatMap(({ value }) => value.match(/-?(?:[^\s:："]+|"[^"]*")[:：][<>=]*(?:"[^"]*"|\([^)]*\)|[^\s"(]\S*)|[-+]?"[^"]*"|\S+/g) ?? []);
  const chips = parts.map((part) => {
    const q = without(asked, part);
    if (!q) return h("span.chip", { "data-content": true }, plain(part));
    const href = address("ask", { ...Object.fromEntries(here().params), q });
    return h("a.chip", { href, "data-content": true, title: () => t("ask.without", { part }) },
      plain(part), h("span", { "aria-hidden": "true" }, "×"));
  });
  return chips.length ? [h("p.understood.chips", {}, () => t("ask.understood"), chips)] : [];
}

function welcome() {
  const examples = h("div.examples", {});
  showExamples(examples);
  return h("div.welcome", {},
    h("h2", {}, () => t("ask.welcome")),
    h("p", {}, () => t("ask.welcome.more")),
    examples,
    h("p.muted", {}, h("kbd", {}, "/"), " ", () => t("help.query"), " · ", h("kbd", {}, "?"), " ",
      () => t("help.help")));
}

/** Questions that the documents answer: their own headings. In an empty workspace: how to index some. */
async function showExamples(host) {
  try {
    const all = await datasets();
    if (!all.length)
      return host.replaceChildren(h("p", {}, () => t("datasets.none.more")),
        h("pre", {}, h("code", {}, "pointsman index FILES… --dataset NAME")));
    const some = all.filter(({ documents }) => documents).slice(0, EXAMPLES);
    const each = await Promise.all(some.map(({ name }) => headings(name)));
    const inTurn = Array.from({ length: SAMPLE }, (_, at) => each.map((own) => own[at])).flat(); // of every dataset
    const questions = [...new Set(inTurn.filter(Boolean))].slice(0, EXAMPLES);
    if (questions.length)
      host.replaceChildren(h("p.muted", {}, () => t("ask.try")), h("ul", { "data-content": true }, questions.map((q) =>
        h("li", {}, h("a", { href: address("ask", { q }), dir: "auto" }, plain(q))))));
  } catch (error) {
    if (!("slug" in error)) throw error; // errors of the service are shown beside the datasets
  }
}

/** The headings of some documents of a dataset, then their titles; names of sheets are no questions. */
async function headings(name) {
  const { documents } = await get(`datasets/${encodeURIComponent(name)}/documents?limit=${SAMPLE}`);
  const texts = documents.filter(({ metadata }) => metadata.kind !== "xlsx" && metadata.kind !== "ods");
  const all = [
    ...texts.map(({ metadata }) => (Array.isArray(metadata.headings) ? metadata.headings.at(-1) : null)),
    ...texts.map(({ metadata }) => metadata.title),
  ];
  return [...new Set(all.filter((one) => typeof one === "string" && one.length > 3 && one.length <= 80))];
}

// ── question ─────────────────────────────────────────────────────────────────────────────────────────────────────────

class SearchForm {
  #busy = false;
  #wanted = "";
  #strategies = [{ name: "auto", about: "", usable: true, why_not: null }];
  #query = h("input", { type: "search", id: "q", autocomplete: "off", spellcheck: "false", enterkeyhint: "search",
    dir: "auto", placeholder: () => t("ask.placeholder") });
  #button = h("button.primary", { type: "submit" }, () => t(this.#busy ? "ask.again" : "ask.go"));
  #strategy = h("select", { id: "strategy" });
  #k = h("input", { type: "number", id: "k", min: 1, max: 200, value: K });
  #effort = h("select", { id: "effort" }, ["fast", "balanced", "thorough"].map((one) =>
    h("option", { value: one === "balanced" ? "" : one }, () => t(`effort.${one}`))));
  #filter = h("input", { type: "text", id: "filter", autocomplete: "off", spellcheck: "false",
    placeholder: "year >= 2020 and lang = ru" });
  #rerank = h("select", { id: "rerank" }, ["", "1", "late", "0"].map((one) =>
    h("option", { value: one }, () => t(`rerank.${one || "default"}`))));
  #refuse = h("input", { type: "checkbox", id: "refuse" });
  #chips = h("div.chips", { role: "group", "aria-label": () => t("ask.datasets") });
  #about = h("dl.strategies", {});
  #set = h("span.set", {}); // the options that differ from the defaults: they count, also while they are folded
  #chosen = new Set();
  #given = new URLSearchParams(); // the address that the form shows

  constructor(go) {
    const submit = (event) => {
      event.preventDefault();
      if (this.#query.value.trim()) go(this.#params());
      else this.focus();
    };
    const field = (input, name) => h("div.field", {}, h("label", { for: input.id }, () => t(name)), input);
    this.#strategy.addEventListener("change", () => this.#fits());
    this.#refuse.checked = true;
    this.more = h("details.options", { on: { toggle: () => this.more.open && this.#loadStrategies() } },
      h("summary", {}, () => t("ask.options"), this.#set),
      h("div.fields", {}, field(this.#strategy, "ask.strategy"), field(this.#k, "ask.k"), field(this.#filter, "ask.filter"), field(this.#effort, "ask.effort"),
        field(this.#rerank, "ask.rerank"),
        h("div.field.check", {}, this.#refuse, h("label", { for: "refuse" }, () => t("ask.refuse")))),
      h("details", {}, h("summary", {}, () => t("ask.strategies")), this.#about));
    this.element = h("form.ask", { role: "search", on: { submit } },
      h("div.line", {}, h("label.unseen", { for: "q" }, () => t("ask.query")), this.#query, this.#button),
      h("div.scope", {}, this.#chips, this.more));
    live(this.#strategy, () => this.#describe());
    live(this.#set, () => this.#set.replaceChildren(...optionsSet(this.#given)));
    this.load();
  }

  /** Loads the datasets, and the strategies if they are shown. */
  load() {
    filled(this.#chips, async () => {
      const found = await datasets();
      if (!found.length) return h("span.muted", {}, () => t("ask.no_datasets"));
      return found.map(({ name }) => this.#chip(name));
    }, { brief: true });
    if (this.more.open) this.#loadStrategies();
  }

  /** Loads the strategies: when the options are opened, so that nothing stands before a question that was linked to. */
  #loadStrategies() {
    strategies().then((found) => {
      this.#strategies = found;
      this.#describe();
    }, () => this.#describe()); // the error is shown beside the datasets
  }

  get busy() {
    return this.#busy;
  }

  set busy(value) {
    this.#busy = value;
    this.element.classList.toggle("busy", value);
  }

  set params(params) {
    this.#query.value = params.get("q") ?? "";
    this.#k.value = params.get("k") || K;
    this.#filter.value = params.get("f") ?? "";
    this.#effort.value = params.get("e") ?? "";
    this.#rerank.value = params.get("r") ?? "";
    this.#refuse.checked = params.get("n") !== "0";
    this.#chosen = new Set((params.get("d") ?? "").split(",").filter(Boolean));
    this.#wanted = params.get("s") ?? "auto";
    this.#describe();
    this.#press();
    this.#given = params;
    this.#set.replaceChildren(...optionsSet(params));
  }

  focus() {
    this.#query.focus();
    this.#query.select();
  }

  #params() {
    const strategy = this.#strategy.value;
    return {
      q: this.#query.value.trim(),
      d: [...this.#chosen].join(","),
      s: strategy === "auto" ? "" : strategy,
      k: Number(this.#k.value) === K ? "" : this.#k.value,
      e: this.#effort.disabled ? "" : this.#effort.value,
      f: this.#filter.value.trim(),
      r: this.#rerank.value,
      n: this.#refuse.checked ? "" : "0",
    };
  }

  #chip(name) {
    const click = () => {
      if (!this.#chosen.delete(name)) this.#chosen.add(name);
      this.#press();
    };
    const pressed = String(this.#chosen.has(name));
    return h("button.chip", { type: "button", class: line(name), "aria-pressed": pressed, "data-name": name,
      "data-content": true, on: { click } }, name);
  }

  #press() {
    for (const chip of this.#chips.querySelectorAll("[data-name]"))
      chip.setAttribute("aria-pressed", String(this.#chosen.has(chip.dataset.name)));
  }

  /** Lists the strategies in the interface language; unusable ones say why. */
  #describe() {
    const wanted = this.#wanted || this.#strategy.value || "auto";
    this.#wanted = wanted;
    const options = this.#strategies.map(({ name, usable, why_not: why }) => {
      const label = usable ? name : `${name} – ${t("strategy.unusable", { why: lack(why).text })}`;
      return h("option", { value: name, disabled: !usable, title: current() === "en" ? why : null, lang: usable ? null : lack(why).lang }, label);
    });
    this.#strategy.replaceChildren(...options);
    if (!this.#strategies.some(({ name }) => name === wanted)) this.#strategy.append(h("option", { value: wanted },
      wanted));
    this.#strategy.value = wanted;
    this.#about.replaceChildren(...this.#strategies.flatMap(({ name, about, usable, why_not: why }) => {
      const known = has(`strategy.${name}`);
      const told = known ? t(`strategy.${name}`) : about;
      return [
        h("dt", {}, h("code", {}, name)),
        h("dd", {}, h("span", { lang: known || !about ? null : "en" }, told),
          usable ? null : h("span.why", { lang: current() === "en" ? null : "en" }, " ", why)),
      ];
    }));
    this.#fits();
  }

  #fits() {
    this.#wanted = this.#strategy.value;
    this.#effort.disabled = this.#strategy.value !== "auto";
  }
}

/** The options in an address that differ from the defaults, as tags. */
function optionsSet(params) {
  const code = (text) => h("code", { "data-content": true }, plain(text));
  const told = {
    s: (name) => code(name),
    k: (k) => t("hits", { n: Number(k) || K }),
    f: (filter) => code(filter),
    e: (effort) => `${t("ask.effort")}: ${has(`effort.${effort}`) ? t(`effort.${effort}`) : effort}`,
    r: (rerank) => `${t("ask.rerank")}: ${has(`rerank.${rerank}`) ? t(`rerank.${rerank}`) : rerank}`,
    n: () => t("ask.never_refuse"),
    w: () => t("ask.as_written"),
  };
  return Object.entries(told).filter(([name]) => params.get(name))
    .map(([name, tell]) => h("span.tag", {}, tell(params.get(name))));
}

function lack(why) {
  return said(why ?? "");
}

// ── answer ───────────────────────────────────────────────────────────────────────────────────────────────────────────

class Result {
  #railway = document.createElement("pm-railway");
  #strategy = h("span.choice", {});
  #under = h("div.under", {});
  #main = h("div.main", {}, h("p.muted", {}, () => t("ask.searching")));
  #aside = h("aside", { "aria-label": () => t("why.title") });
  #journey = null;
  #asked;

  constructor(asked) {
    this.#asked = asked;
    const toggle = ({ target }) => unfolded.set(target.open ? "yes" : null);
    const route = h("details.card.route", { open: unfolded.get() === "yes", on: { toggle } },
      h("summary", {}, h("h2", {}, () => t("railway.title")), this.#strategy), this.#railway, this.#under);
    this.element = h("div.columns", {}, this.#main, h("div.beside", {}, route, this.#aside));
  }

  set journey(journey) {
    this.#journey = journey;
    this.#railway.journey = journey;
    if (journey.phase !== "running") this.#told();
  }

  set problem(card) {
    if (card) this.#main.replaceChildren(card);
    else this.#main.replaceChildren(h("p.muted", {}, () => t("ask.stopped")));
  }

  set aside(element) {
    this.#aside.replaceChildren(element);
  }

  answer(answer, insist, asIs) {
    const { query, hits, refused, degraded, trace, spelling } = answer;
    const steps = trace ? stepsOf(answer) : null;
    const headline = h("p.headline", {}, () => t(refused ? "ask.refused" : "ask.answered",
      { n: hits.length, time: milliseconds(answer.milliseconds) }));
    this.#main.replaceChildren(h("h2.unseen", {}, () => t("ask.hits")), headline);
    if (spelling) {
      const quote = (text) => h("q", { "data-content": true }, plain(text));
      this.#main.append(h("p.corrected", {}, () => t("ask.showing"), " ", quote(spelling.text),
        spelling.both ? [" + ", quote(spelling.instead)] : null,
        " · ", h("a", { href: asIs }, () => t("ask.instead"), " ", quote(spelling.instead))));
    }
    this.#main.append(...understood(answer), ...hardForm(answer));
    if (degraded.length) this.#main.append(degradation(degraded));
    if (answer.verdict === "unsure") this.#main.append(h("p.unsure", {}, () => t("ask.unsure")));
    if (refused) this.#main.append(refusal(refused, this.#asked, answer.datasets.length ? insist : null));
    else if (hits.length) this.#main.append(hitList(hits, query, steps));
    else this.#main.append(h("p.muted", {}, () => t("ask.nothing")));
    this.#choice(answer);
  }

  /** Shows the strategy chosen, and why. */
  #choice({ strategy, reason, reasons, hits, confidence: sure, reranked }) {
    const told = h("span.reason", {});
    live(told, () => {
      const { text, lang } = reasoned(reasons, reason);
      told.replaceChildren(plain(text));
      if (lang) told.lang = lang;
      else told.removeAttribute("lang");
    });
    this.#strategy.replaceChildren(h("code.strategy", {}, strategy));
    this.#under.prepend(h("p.because", {},
      typeof sure === "number" && hits.length
        ? h("span.tag", {}, () => t("choice.confidence", { sure: percent(sure) })) : null,
      reranked ? h("span.tag", {}, () => t("choice.reranked")) : null, told));
  }

  #told() {
    const journey = this.#journey;
    const table = h("div.as-table", { hidden: true });
    live(table, () => table.replaceChildren(asTable(journey)));
    const click = () => {
      table.hidden = !table.hidden;
      button.setAttribute("aria-expanded", String(!table.hidden));
    };
    const button = h("button.quiet", { type: "button", "aria-expanded": "false", on: { click } },
      () => t("railway.table"));
    const time = journey.total === null ? null : h("details.time", {},
      h("summary", {}, () => t("railway.time", { time: milliseconds(journey.total) })), timetable(journey));
    const passed = journey.before.length + journey.branches.length > 0;
    this.#under.replaceChildren(h("p.unseen", {}, () => summary(journey)), time ?? "", ...(passed ? [button, table] : []));
  }
}

function degradation(causes) {
  return h("section.degraded", { "aria-label": () => t("degraded.title") },
    h("h2", {}, sign("warning"), " ", () => t("degraded.title")),
    h("p", {}, () => t("degraded.about")),
    h("ul", {}, causes.map((cause) => {
      const item = h("li", {});
      live(item, () => {
        const { text, lang } = said(cause);
        item.replaceChildren(h("span", { lang }, plain(text)));
      });
      return item;
    })));
}

function refusal(refused, asked, insist) {
  const { nearest, near_misses: misses, score, threshold, scale, reason, reasons } = refused;
  const closest = misses?.length ? misses : nearest ? [nearest] : [];
  const measured = typeof score === "number" && typeof threshold === "number";
  const why = h("p", {});
  live(why, () => {
    const values = { score: scale === "probability" ? percent(score) : figure(score ?? 0, 3), scale: scale ?? "",
      threshold: scale === "probability" ? percent(threshold) : figure(threshold ?? 0, 3) };
    if (measured) why.replaceChildren(t(scale === "probability" ? "refused.chance" : "refused.score", values));
    else {
      const { text, lang } = reasoned(reasons, reason);
      why.replaceChildren(h("span", { lang }, plain(text)));
    }
  });
  return h("section.refused", { "aria-labelledby": "refused" },
    h("h2", { id: "refused" }, sign("halt"), " ", () => t("refused.title")), why,
    insist ? h("p.actions", {}, h("button.primary", { type: "button", on: { click: insist } },
      () => t("refused.insist"))) : null,
    closest.length ? h("h3", {}, () => t("refused.nearest")) : null,
    closest.length ? hitList(closest, asked.query, null) : null);
}

// ── why not ──────────────────────────────────────────────────────────────────────────────────────────────────────────

class Why {
  #id = h("input", { type: "text", id: "why", autocomplete: "off", spellcheck: "false", required: true });
  #dataset = h("select", { id: "why-dataset" });
  #found = h("div", { "aria-live": "polite" });
  #asked;

  constructor(asked, go) {
    this.#asked = asked;
    const submit = (event) => {
      event.preventDefault();
      const [id, dataset] = [this.#id.value.trim(), this.#dataset.value];
      if (id) go(id, dataset);
    };
    this.element = h("form.card.why", { on: { submit } },
      h("h2", {}, () => t("why.title")),
      h("p.muted", {}, () => t("why.about")),
      h("div.field", {}, h("label", { for: "why" }, () => t("why.id")), this.#id),
      h("div.field", {}, h("label", { for: "why-dataset" }, () => t("why.dataset")), this.#dataset),
      h("button", { type: "submit" }, () => t("why.ask")), this.#found);
    const any = h("option", { value: "" }, () => t("why.any"));
    this.#dataset.append(any);
    this.#loaded = datasets().then((found) => {
      const names = (asked.datasets ?? found.map(({ name }) => name));
      this.#dataset.append(...names.map((name) => h("option", { value: name }, name)));
    }, () => {}); // without the list, only "any dataset" is offered
  }

  #loaded;
  #shown = "";

  async show(why) {
    await this.#loaded;
    const wanted = JSON.stringify(why);
    if (wanted === this.#shown) return;
    this.#shown = wanted;
    this.#id.value = why?.id ?? "";
    this.#dataset.value = why?.dataset ?? "";
    if (!why?.id) return this.#found.replaceChildren();
    await filled(this.#found, async () => {
      const { explanation, others } = await this.#explained(why.id, why.dataset || null);
      if (!explanation) return h("p.summary", {}, () => t("why.nothing"));
      const told = h("p.summary", {});
      live(told, () => told.replaceChildren(wayInWords(explanation)));
      const { steps, id, dataset } = explanation;
      const there = steps.some(({ rank }) => rank !== null);
      return [
        h("h3", { "data-content": true }, dataset ? h("span.dataset", { class: line(dataset) }, dataset) : null, " ",
          h("code", {}, plain(id))),
        told, there ? wayFigure(steps) : "", steps.length ? wayTable(steps) : "",
        others.length ? h("h4", {}, () => t("why.others")) : "",
        others.length ? h("ul.others", { "data-content": true }, others.map((hit) => h("li", {},
          h("a", { href: address("ask", { ...Object.fromEntries(here().params), why: hit.id, in: hit.dataset }),
            dir: "auto" }, plain(hit.citation?.place ?? hit.id)), " ", h("span.muted", {}, plain(hit.title ?? ""))))) : "",
      ];
    });
  }

  /** Explains the document with an id, else the best passage of a file with this name, else the best for these words. */
  async #explained(text, dataset) {
    const explain = async (id, within) => {
      const { answer: _, ...explanation } = await post("explain", { ...this.#asked, document_id: id, dataset: within });
      return explanation;
    };
    const explanation = await explain(text, dataset);
    if (explanation.summary !== NO_DOCUMENT) return { explanation, others: [] };
    const wish = { k: CANDIDATES, refuse: false, datasets: dataset ? [dataset] : this.#asked.datasets };
    let { hits } = await post("search",
      { ...wish, query: this.#asked.query, filters: { source: { icontains: text } } });
    if (!hits.length) ({ hits } = await post("search", { ...wish, query: text }));
    const [best, ...others] = hits;
    return best ? { explanation: await explain(best.id, best.dataset), others } : { explanation: null, others };
  }
}
