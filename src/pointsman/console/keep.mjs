/** What the browser keeps: choices for good, the key until its window is closed. */

/**
 * A value that may be kept, and may be lost where the browser keeps nothing.
 * @param {"localStorage" | "sessionStorage"} where
 * @param {string} name
 */
export function kept(where, name) {
  const key = `pointsman.${name}`;
  let here = null; // also where the browser keeps nothing, as long as the page is open
  return {
    /** @returns {string | null} */
    get() {
      try {
        return window[where].getItem(key) ?? here;
      } catch {
        return here;
      }
    },
    /** @param {string | null} value null forgets it */
    set(value) {
      here = value;
      try {
        if (value === null) window[where].removeItem(key);
        else window[where].setItem(key, value);
      } catch {
        // it holds until the page is closed
      }
    },
  };
}
