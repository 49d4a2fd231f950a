/** The service's HTTP interface: requests, problem documents, and the events of a running search. */

import { kept } from "./keep.mjs";

const ROOT = new URL("../api/", import.meta.url);
const stored = kept("sessionStorage", "key");

/**
 * Dispatches `changed` when the key changes, and `needed` when it is missing or invalid; the `detail` of the latter is
 * the time at which the refused request began, as `performance.now()` tells it.
 */
export const keys = new EventTarget();

/** @returns {string | null} the key sent with requests */
export function key() {
  return stored.get();
}

/**
 * Send this key with all further requests; null sends none.
 * @param {string | null} text
 */
export function useKey(text) {
  stored.set(text);
  keys.dispatchEvent(new Event("changed"));
}

/** An error, as described by a problem document. */
export class Problem extends Error {
  /**
   * @param {string} slug the kind: one of the service's, or `network`, `interrupted`, `strange`
   * @param {{status?: number, title?: string, detail?: string, request?: string | null, retry?: number | null}} [told]
   *   `retry` in seconds
   */
  constructor(slug, { status = 0, title = "", detail = "", request = null, retry = null } = {}) {
    super(title || slug);
    Object.assign(this, { slug, status, title, detail, request, retry });
  }

  /** @param {Record<string, unknown>} found a problem document @param {Headers} [headers] of its response */
  static of(found, headers) {
    const instance = typeof found.instance === "string" ? found.instance.replace(/^urn:request:/, "") : null;
    const retry = Number.parseInt(headers?.get("retry-after") ?? "", 10);
    return new Problem(String(found.type ?? "").replace(/^.*\//, "") || "strange", {
      status: Number(found.status) || 0,
      title: String(found.title ?? ""),
      detail: String(found.detail ?? ""),
      request: instance ?? headers?.get("x-request-id") ?? null,
      retry: Number.isNaN(retry) ? null : retry,
    });
  }
}

/**
 * @param {string} path below `/api/`
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>} the JSON of the answer
 * @throws {Problem}
 */
export async function get(path, { signal } = {}) {
  return value(await request(path, { signal }), signal);
}

/**
 * @param {string} path below `/api/`
 * @param {unknown} body
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>} the JSON of the answer
 * @throws {Problem}
 */
export async function post(path, body, { signal } = {}) {
  return value(await request(path, posting(body, signal)), signal);
}

/**
 * Yields the events of a search, up to `result`.
 * @param {unknown} body
 * @param {{signal?: AbortSignal}} [options]
 * @returns {AsyncGenerator<{event: string, data: any}>}
 * @throws {Problem} also on the event `problem`, and if the answer ends early
 */
export async function* search(body, { signal } = {}) {
  const response = await request("stream", posting(body, signal));
  const id = response.headers.get("x-request-id");
  try {
    for await (const { event, data } of events(response.body)) {
      const found = JSON.parse(data);
      if (event === "problem") throw Problem.of({ instance: id, ...found });
      yield { event, data: found };
      if (event === "result") return;
    }
  } catch (error) {
    throw foreseen(error, signal, "interrupted", id);
  }
  throw new Problem("interrupted", { request: id });
}

/**
 * Parses server-sent events as in the HTML standard, without reconnecting.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {AsyncGenerator<{event: string, data: string}>}
 */
export async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "";
  let data = [];
  try {
    for (;;) {
      const { value: chunk, done } = await reader.read();
      if (done) return; // an event without a terminating empty line is dropped
      rest += chunk;
      const lines = rest.split(/\r\n|\n|\r(?!$)/); // at the end of a chunk, CR may be half of CR LF
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { event: event || "message", data: data.join("\n") };
          event = "";
          data = [];
          continue;
        }
        const [, field, content] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
        if (field === "event") event = content ?? "";
        else if (field === "data") data.push(content ?? "");
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // it has ended, or the caller has stopped reading
  }
}

function posting(body, signal) {
  return { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal };
}

async function request(path, options) {
  const headers = new Headers(options.headers);
  const text = key();
  if (text) headers.set("Authorization", `Bearer ${text}`);
  const begun = performance.now();
  let response;
  try {
    response = await fetch(new URL(path, ROOT), { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    throw foreseen(error, options.signal, "network");
  }
  if (response.ok) return response;
  const found = await response.json().catch(() => null); // a proxy may answer with anything
  const known = found !== null && typeof found === "object" && typeof found.type === "string";
  const problem = known
    ? Problem.of(found, response.headers)
    : Problem.of({ type: "strange", status: response.status, detail: response.statusText }, response.headers);
  if (problem.status === 401) keys.dispatchEvent(new CustomEvent("needed", { detail: begun }));
  throw problem;
}

async function value(response, signal) {
  try {
    return await response.json();
  } catch (error) {
    throw foreseen(error, signal, "interrupted", response.headers.get("x-request-id"));
  }
}

function foreseen(error, signal, slug, id = null) {
  if (error instanceof Problem || signal?.aborted) return error;
  return new Problem(slug, { detail: "", request: id });
}
