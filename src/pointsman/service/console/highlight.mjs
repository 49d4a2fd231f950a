/** Highlights the parts of a text that match a query, and displays untrusted text safely. */

import { h } from "./dom.mjs";

const EMPTY = new Set(
  (
    "a an and are as at be but by can do does for from had has have how i if in into is it its me my no not of on or " +
    "our so than that the their them then there these this to was we were what when where which who whom whose why " +
    "will with would you your " +
    "а без бы был была были было быть в вам вас во вот все вы где да для до его ее если есть же за и из или им их к " +
    "как какая какие какой когда кто ли мне мы на над не нет но о об он она они от по под при с со так также там то " +
    "того тоже только у уже что чтобы это такое такой такая эта эти этот я"
  ).split(" "),
);
const HAN_EMPTY = /[的了吗呢吧是在和与及或我你他她它们这那哪么什怎]/u;
const WORD = /[\p{L}\p{N}\p{M}_]+/gu;
const HAN = /\p{Script=Han}+/gu;
const ENGLISH_ENDING = /^(?:e|s|es|ed|d|ings?|ers?|ors?|ly|y|ies|ied|ions?|ations?|able|al|ments?)$/u;
const CYRILLIC = /\p{Script=Cyrillic}/u;
const ENDING =
  /(?:иями|ями|ами|ыми|ими|ого|его|ому|ему|ть|ая|яя|ое|ее|ые|ие|ый|ий|ой|ом|ем|ах|ях|ов|ев|ей|ам|ям|ую|юю|ия|ии|ию|[аеиоуыюяьй])$/u;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]/g;

/** @typedef {[number, number]} Range start and end (exclusive), in UTF-16 units */

/**
 * Returns a function that finds the words of a query in texts: Chinese by words and pairs of characters, other scripts
 * by words whose endings may differ.
 * @param {string} query
 * @returns {(text: string) => Range[]} in order, without overlap
 */
export function finder(query) {
  const stems = new Set();
  const pairs = new Set();
  const folded = fold(query);
  for (const [word] of folded.replace(HAN, " ").matchAll(WORD)) if (!EMPTY.has(word)) stems.add(stem(word));
  for (const [run] of folded.matchAll(HAN)) {
    const characters = [...run];
    if (characters.length === 1 && !HAN_EMPTY.test(run)) pairs.add(run);
    for (let at = 0; at + 1 < characters.length; at++) {
      const pair = characters[at] + characters[at + 1];
      if (!HAN_EMPTY.test(pair)) pairs.add(pair);
    }
    for (const word of segments(run)) if (!HAN_EMPTY.test(word)) pairs.add(word);
  }
  return (text) => {
    const found = [];
    const other = fold(text);
    if (other.length !== text.length) return found; // offsets would differ
    for (const match of other.matchAll(WORD)) {
      if (stems.size && !/\p{Script=Han}/u.test(match[0]) && matches(match[0], stems))
        found.push([match.index, match.index + match[0].length]);
    }
    for (const pair of pairs)
      for (let at = other.indexOf(pair); at >= 0; at = other.indexOf(pair, at + 1)) found.push([at, at + pair.length]);
    return joined(found);
  };
}

/**
 * Marks ranges of a text.
 * @param {string} text
 * @param {Range[]} ranges in order, without overlap
 * @returns {DocumentFragment}
 */
export function marked(text, ranges) {
  const made = document.createDocumentFragment();
  let at = 0;
  for (const [start, end] of ranges) {
    made.append(plain(text.slice(at, start)), h("mark", {}, plain(text.slice(start, end))));
    at = end;
  }
  made.append(plain(text.slice(at)));
  return made;
}

/**
 * Displays untrusted text. Control characters that would reverse it or hide parts of it are made visible.
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function plain(text) {
  const made = document.createDocumentFragment();
  let at = 0;
  for (const match of text.matchAll(CONTROL)) {
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    made.append(text.slice(at, match.index), h("span.control", {}, `U+${code}`));
    at = match.index + 1;
  }
  made.append(text.slice(at));
  return made;
}

/**
 * Converts offsets in characters, as in Python, to UTF-16 units, as in browsers.
 * @param {string} text
 * @param {Range[]} spans
 * @returns {Range[]}
 */
export function units(text, spans) {
  const places = [0];
  for (const character of text) places.push(places.at(-1) + character.length);
  const last = places.length - 1;
  return joined(spans.map(([start, end]) => [places[Math.min(start, last)], places[Math.min(end, last)]]));
}

function fold(text) {
  return text.toLowerCase().replaceAll("ё", "е");
}

/** Removes a possible ending of a word: deliberately crude, as it is only used for highlighting. */
function stem(word) {
  if (CYRILLIC.test(word)) {
    const short = word.replace(ENDING, "");
    return short.length >= 3 ? short : word;
  }
  for (const ending of [/(?:ies|es|ed|ing|ly)$/u, /[es]$/u]) {
    const short = word.replace(ending, "");
    if (short !== word && short.length >= 4) return short;
  }
  return word;
}

function matches(word, stems) {
  if (stems.has(word)) return true;
  const cyrillic = CYRILLIC.test(word);
  for (let length = word.length - 1; length >= Math.max(cyrillic ? 3 : 4, word.length - 6); length--) {
    const rest = word.slice(length);
    const doubled = rest[0] === word[length - 1] ? rest.slice(1) : rest; // stop, stopped
    if (stems.has(word.slice(0, length)))
      return cyrillic ? rest.length <= 5 : ENGLISH_ENDING.test(rest) || ENGLISH_ENDING.test(doubled);
  }
  return false;
}

function segments(run) {
  if (!("Segmenter" in Intl)) return [];
  const found = [...new Intl.Segmenter("zh", { granularity: "word" }).segment(run)];
  return found.map(({ segment }) => segment).filter((word) => word.length > 1);
}

function joined(ranges) {
  const made = [];
  for (const [start, end] of ranges.toSorted((a, b) => a[0] - b[0] || a[1] - b[1])) {
    const last = made.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else if (end > start) made.push([start, end]);
  }
  return made;
}
