/** Values stored in the browser: choices permanently, the key until the window is closed. */

/**
 * A stored value; it is lost if the browser does not allow storage.
 * @param {"localStorage" | "sessionStorage"} where
 * @param {string} name
 */
export function kept(where, name) {
  const key = `pointsman.${name}`;
  let here = null; // kept while the page is open, even without storage
  return {
    /** @returns {string | null} */
    get() {
      try {
        return window[where].getItem(key) ?? here;
      } catch {
        return here;
      }
    },
    /** @param {string | null} value null removes it */
    set(value) {
      here = value;
      try {
        if (value === null) window[where].removeItem(key);
        else window[where].setItem(key, value);
      } catch {
        // it is kept until the page is closed
      }
    },
  };
}
