/** The current place: the address after `#` names the view and holds its whole state, so that it can be linked to. */

/** @typedef {{view: string, params: URLSearchParams}} Place */

/**
 * Parses an address.
 * @param {string} [hash]
 * @returns {Place}
 */
export function here(hash = location.hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, params: new URLSearchParams(query) };
}

/**
 * Returns the address of a place, without empty parameters.
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
 * Records and returns the current place.
 * @returns {Place}
 */
export function arrive() {
  const place = here();
  last.set(place.view, place);
  return place;
}

/**
 * Returns the last place in a view; undefined if there is none.
 * @param {string} view
 * @returns {Place | undefined}
 */
export function lastOf(view) {
  return last.get(view);
}
