/** Datasets and strategies: requested from the service once, and again when they may have changed. */

import { get, keys } from "./api.mjs";

let asked = new Map();
keys.addEventListener("changed", () => asked.clear());

function once(path) {
  if (!asked.has(path)) {
    const found = get(path);
    asked.set(path, found);
    found.catch(() => asked.get(path) === found && asked.delete(path)); // by now it may have been asked for again
  }
  return asked.get(path);
}

/** @returns {Promise<any[]>} the datasets, by name; this order determines colours */
export async function datasets({ fresh = false } = {}) {
  if (fresh) asked.delete("datasets");
  const found = (await once("datasets")).datasets;
  found.forEach(({ name }, at) => lines.set(name, at % LINES));
  return found;
}

/** @returns {Promise<any[]>} the strategies */
export async function strategies() {
  return (await once("strategies")).strategies;
}

/** @returns {Promise<any>} what the key allows */
export function me() {
  return once("me");
}

const LINES = 8;
const lines = new Map();

/**
 * Returns the CSS class for a dataset's colour.
 * @param {string | null} name
 */
export function line(name) {
  if (!lines.has(name)) lines.set(name, lines.size % LINES);
  return `line-${lines.get(name)}`;
}
