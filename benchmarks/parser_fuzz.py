"""100,000 generated answers through the answer parser: nothing out of range, no foreign exception, linear time."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from pointsman.selector.selection_answers import parse_selection

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from test_selector_model_answers import (  # the table of awkward answers
    MULTI,
    RU,
    SINGLE,
    THREE,
    TWELVE,
    TWINS,
    YEARS,
    ZH,
)

TABLE = [text for text, _ in SINGLE + MULTI]
ALPHABET = (
    "0123456789 \n\t{}[]()<>\"'`“”‘’«»「」,，、:：;.。!?-–—=#№*_\\/|abcXYZабвёЖ第个选项编号一二十不是和或ⅡⅣ②"
    "\ud800\udfff\x00\u2028"
)
EN = "not no none option answer choose best but 1 2 3 4 0 -1 2.0 99999999999999999999"
OTHER = "и не а вариант ответ выбираю или ни 或 和 选择 答案 不是 而是 最合适 第 个"
WORDS = [*EN.split(), *OTHER.split()]
MEGABYTE = (
    "a ",
    "{",
    '{"',
    '{"a":[',
    "[1,",
    '{"choice": 1} ',
    "1 ",
    "not ",
    "第",
    "“",
    "\\",
    "9",
    "<think>",
    "\n2. news",
)


def mutate(random_: random.Random) -> str:
    text = random_.choice(TABLE)
    for _ in range(random_.randint(1, 4)):
        at = random_.randint(0, len(text))
        to = min(len(text), at + random_.randint(0, 6))
        piece = random_.choice(
            [
                "",
                random_.choice(ALPHABET),
                random_.choice(WORDS),
                f" {random_.choice(WORDS)} ",
                random_.choice(TABLE)[:40],
            ]
        )
        text = text[:at] + piece + text[to:] if random_.random() < 0.8 else text[:at]
    return text


def noise(random_: random.Random) -> str:
    if random_.random() < 0.5:
        return "".join(random_.choices(ALPHABET, k=random_.randint(0, 60)))
    return " ".join(random_.choices(WORDS, k=random_.randint(0, 12)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    options = [THREE, ZH, RU, TWELVE, TWINS, YEARS]
    outcomes: Counter[str] = Counter()
    out_of_range = foreign = 0
    started = time.perf_counter()
    for _ in range(arguments.answers):
        text = mutate(random_) if random_.random() < 0.8 else noise(random_)
        choices, most = random_.choice(options), random_.randint(1, 3)
        try:
            parsed = parse_selection(text, choices, max_outputs=most, allow_none=random_.random() < 0.3)
        except Exception as error:  # noqa: BLE001  (counted and shown: there must be none)
            foreign += 1
            print(f"{type(error).__name__}: {error}: {text!r}")
            continue
        outcomes[parsed.defect or ("selected" if parsed.selections else "none of them")] += 1
        numbers = [selection.index for selection in parsed.selections]
        out_of_range += not all(0 <= number < len(choices) for number in numbers) or len(set(numbers)) > most
    seconds = time.perf_counter() - started
    print(f"{arguments.answers} answers in {seconds:.1f} s ({1e6 * seconds / max(1, arguments.answers):.0f} µs each)")
    for outcome, count in outcomes.most_common():
        print(f"  {outcome:18}{count:8}")
    print(f"out of range: {out_of_range}, foreign exceptions: {foreign}")
    for piece in MEGABYTE:
        text = piece * (1_000_000 // len(piece))
        started = time.perf_counter()
        parsed = parse_selection(text, THREE)
        print(f"  1 MB of {piece!r:18} {parsed.defect or 'selected':14} {time.perf_counter() - started:6.2f} s")
    return out_of_range + foreign > 0


if __name__ == "__main__":
    sys.exit(main())
