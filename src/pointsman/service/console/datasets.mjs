/** Datasets: their health and their documents, read-only. */

import { get, keys, post } from "./api.mjs";
import { datasets, line } from "./catalog.mjs";
import { h, live } from "./dom.mjs";
import { plain } from "./highlight.mjs";
import { isCode, metadata, placeOf } from "./hits.mjs";
import { bytes, has, number, reasoned, t } from "./i18n.mjs";
import { announce, filled, problemCard } from "./notices.mjs";
import { address, here, lastOf } from "./place.mjs";
import { routeForm } from "./routes.mjs";

const PAGE = 40; // passages

/** `<pm-datasets>` */
export class DatasetsView extends HTMLElement {
  #table = h("div", {});
  #page = h("div", {});
  #built = false;
  #shown = null;

  connectedCallback() {
    if (this.#built) return;
    this.#built = true;
    this.append(h("h1.unseen", {}, () => t("view.datasets")), this.#table, this.#page);
    keys.addEventListener("changed", () => {
      this.#shown = null;
      if (this.isConnected && !this.hidden) this.show(here().params);
    });
  }

  /** @param {URLSearchParams} params */
  show(params) {
    const name = params.get("name");
    if (this.#shown === null || !name) filled(this.#table, () => this.#overview());
    this.#shown = name ?? "";
    if (!name) return this.#page.replaceChildren();
    filled(this.#page, () => browsed(name, params));
  }

  async #overview() {
    const found = await datasets({ fresh: true });
    if (!found.length)
      return h("div.welcome", {}, h("h2", {}, () => t("datasets.none")), h("p", {}, () => t("datasets.none.more"), " ",
        h("code", {}, "pointsman index FILES… --dataset NAME")));
    const sum = (field) => found.reduce((total, one) => total + one[field], 0);
    const heads = ["name", "documents", "size", "embedder", "index", "verify"];
    return h("section.card", {},
      h("p.headline", {}, () => t("datasets.sum", { n: found.length, documents: number(sum("documents")),
        size: bytes(sum("bytes")) })),
      h("div.scroll", { tabindex: 0, role: "region", "aria-label": () => t("view.datasets") },
        h("table.datasets", {},
          h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col" }, () => t(`datasets.${one}`))))),
          h("tbody", {}, found.map(row)))));
  }
}

customElements.define("pm-datasets", DatasetsView);

function row(dataset) {
  const { name, description, documents, embedder, indexing_technique: technique } = dataset;
  const behind = dataset.sequence - dataset.keyword_index_sequence;
  const due = dataset.vectors_due;
  const verdict = h("div.checked", { "aria-live": "polite" });
  const verify = async () => {
    button.disabled = true;
    verdict.replaceChildren(h("span.muted", {}, () => t("datasets.verifying")));
    try {
      verdict.replaceChildren(checked(await post(`datasets/${encodeURIComponent(name)}/verify`, {})));
    } catch (error) {
      verdict.replaceChildren(problemCard(error));
    } finally {
      button.disabled = false;
    }
  };
  const button = h("button", { type: "button", on: { click: verify },
    "aria-label": () => t("datasets.verify.of", { name }) }, () => t("datasets.verify"));
  return h("tr", { class: line(name) },
    h("th", { scope: "row", "data-content": true },
      h("a.dataset", { href: address("datasets", { name }) }, name), h("span.about", { dir: "auto" }, plain(description)),
      h("span.about", { dir: "auto" }, () => dateColumn(dataset)),
      h("span.about", {}, () => routesOf(dataset.routes ?? []))),
    h("td.number", { "data-label": () => t("datasets.documents") }, () => number(documents)),
    h("td.number", { "data-label": () => t("datasets.size") }, () => bytes(dataset.bytes)),
    h("td", { "data-label": () => t("datasets.embedder") }, h("span", {}, () => (has(`technique.${technique}`) ? t(`technique.${technique}`) : technique)),
      embedder ? h("code.about", {}, embedder) : null),
    h("td", { "data-label": () => t("datasets.index") }, h("span", { class: behind ? "warn" : "good" },
      () => (behind ? t("datasets.behind", { n: behind }) : t("datasets.current"))),
      due ? h("span.about.warn", {}, () => t("datasets.due", { n: due })) : null),
    h("td", {}, button, verdict));
}

/** Which column is the date, if any field holds dates. */
function dateColumn({ date_column: told, date_column_reasons: reasons }) {
  const code = reasons?.[0]?.code ?? "date_none";
  if (code === "date_none") return "";
  const mark = code === "date_absent" || code === "date_several" ? "⚠ " : "";
  return mark + t("datasets.date", { column: reasoned(reasons, told).text });
}

/** How many questions took each route. */
function routesOf(counts) {
  const sums = counts.reduce((all, { route, queries }) => ({ ...all, [route]: (all[route] ?? 0) + queries }), {});
  const routes = Object.entries(sums).map(([route, queries]) => `${route} ${number(queries)}`).join(", ");
  return routes && t("datasets.routes", { routes });
}

function checked({ documents, in_keyword_index: keyword, in_vector_index: vector, problems }) {
  if (!problems.length) return h("span.good", {}, () => t("datasets.sound", { n: documents }));
  return h("div", {},
    h("strong.bad", {}, () => t("datasets.problems", { n: problems.length })),
    h("p.muted", {}, () => t("datasets.counts", { documents: number(documents), keyword: number(keyword),
      vector: number(vector) })),
    h("ul", { lang: "en" }, problems.slice(0, 20).map((one) => h("li", {}, plain(one)))));
}

// ── documents ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The previous page's cursor for every page reached from one. */
const before = new Map();

async function browsed(name, params) {
  await datasets(); // their order determines colours
  const [after, find] = [params.get("after"), params.get("find")?.trim()];
  const page = await pageOf(name, { after, find, id: params.get("id") });
  const chosen = { name, find };
  if (page.next) before.set(`${name} ${page.next}`, after ?? "");
  const previous = before.get(`${name} ${after}`);
  announce(t("datasets.shown", { n: page.documents.length, name }));
  const input = h("input", { type: "text", id: "document", autocomplete: "off", spellcheck: "false",
    value: find ?? params.get("id") ?? "" });
  const submit = (event) => {
    event.preventDefault();
    location.hash = address("datasets", { name, find: input.value.trim() });
  };
  const turn = h("nav.pages", { "aria-label": () => t("datasets.pages") },
    after || find || params.get("id") ? h("a", { href: address("datasets", { name }) }, () => t("datasets.first")) : null,
    previous === undefined ? null
      : h("a", { href: address("datasets", { ...chosen, after: previous }) }, () => t("datasets.previous")),
    page.next ? h("a.next", { href: address("datasets", { ...chosen, after: page.next }) }, () => t("datasets.next"))
      : null);
  const title = h("h2", {});
  live(title, () => title.replaceChildren(t("datasets.documents_of"), " ", h("span.dataset", { class: line(name),
    "data-content": true }, name)));
  const files = bySource(page.documents);
  const open = files.length === 1 && Boolean(find || params.get("id"));
  return h("section.card.browse", { class: line(name) },
    h("div.head", {}, title,
      h("form", { on: { submit } }, h("label", { for: "document" }, () => t("datasets.find")), " ", input, " ",
        h("button", { type: "submit" }, () => t("datasets.open")))),
    files.length ? h("ul.documents", {}, files.map((passages) => file(name, passages, open)))
      : h("p.muted", {}, () => t("datasets.empty")),
    turn, routeForm(name));
}

/** Documents of a dataset: a page of all, those of the files with a name, or the one with an id. */
async function pageOf(name, { after, find, id }) {
  const path = `datasets/${encodeURIComponent(name)}`;
  const page = (more) => get(`${path}/documents?${new URLSearchParams({ limit: PAGE, ...(after && { after }), ...more })}`);
  const one = async (wanted) =>
    ({ documents: [await get(`${path}/document?${new URLSearchParams({ id: wanted })}`)], next: null });
  if (id) return one(id);
  if (!find) return page({});
  const named = await page({ filters: `source icontains ${JSON.stringify(find)}` });
  return named.documents.length || after ? named : one(find);
}

/** The passages of one file follow one another. */
function bySource(documents) {
  const files = [];
  for (const document of documents) {
    const { source } = document.metadata;
    if (typeof source === "string" && source && files.at(-1)?.[0].metadata.source === source) files.at(-1).push(document);
    else files.push([document]);
  }
  return files;
}

/** A file and its passages; a document that is not from a file stands for itself. */
function file(name, passages, open) {
  const [first] = passages;
  const { source, title } = first.metadata;
  const label = [source, title, first.id].find((one) => typeof one === "string" && one);
  if (passages.length === 1) return entry(name, first, label, open);
  return h("li.file", {}, h("details", { open }, h("summary", { dir: "auto" },
    h("span.name", { "data-content": true }, plain(label)),
    h("span.first", {}, () => t("datasets.passages", { n: passages.length }))),
  h("ul.documents", {}, passages.map((one) => entry(name, one, () => placeOf(one.metadata) || one.id, false)))));
}

function entry(name, document, label, open) {
  const shown = typeof label === "function" ? label : plain(label);
  return h("li", {}, h("details", { open }, h("summary", { dir: "auto", "data-content": true },
    h("span.name", {}, shown), h("span.first", {}, plain(document.text.slice(0, 160)))),
  h("div.text.whole", { class: isCode(document) ? "code" : null, dir: "auto", "data-content": true, tabindex: 0,
    role: "region", "aria-label": () => t("hit.text") }, plain(document.text)),
  metadata(document), asked(name, document.id)));
}

/** Links to why this document was, or was not, among the hits of the last question, if there is one. */
function asked(name, id) {
  const last = lastOf("ask");
  if (!last?.params.get("q")) return null;
  const to = address("ask", { ...Object.fromEntries(last.params), why: id, in: name });
  const query = h("q", { "data-content": true }, plain(last.params.get("q")));
  return h("p", {}, h("a", { href: to }, h("span", {}, () => t("datasets.why")), " ", query));
}
