/** Where one is: the address behind `#` names the view and holds its whole state, so that it can be linked to. */

/** @typedef {{view: string, params: URLSearchParams}} Place */

/**
 * The place that an address names.
 * @param {string} [hash]
 * @returns {Place}
 */
export function here(hash = location.hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, params: new URLSearchParams(query) };
}

/**
 * The address of a place; what is empty is left out.
 * @param {string} view
 * @param {Record<string, string | number | null | undefined>} [params]
 * @returns {string}
 */
export function address(view, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#${view}${query && `?${query}`}`;
}

/** @type {Map<string, Place>} */
const last = new Map();

/**
 * Note where one is now.
 * @returns {Place}
 */
export function arrive() {
  const place = here();
  last.set(place.view, place);
  return place;
}

/**
 * Where one was last in a view; undefined if never.
 * @param {string} view
 * @returns {Place | undefined}
 */
export function lastOf(view) {
  return last.get(view);
}
