"""How many of the 120 questions and dialogues of the tests the rules take apart and fill in, held-out ones apart.

    python benchmarks/grammar.py [-v]

With ``-v`` what went wrong is shown, but never a held-out case.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from grammar_kit import CASES, answer, right


def main() -> int:
    for task in ("decompose", "disambiguate"):
        for held_out in (False, True):
            chosen = [case for case in CASES if task in case["id"] and case["held_out"] is held_out]
            wrong = [case for case in chosen if not right(case)]
            by_language = ", ".join(
                f"{language} {sum(case['language'] == language and case not in wrong for case in chosen)}"
                for language in ("en", "ru", "zh")
            )
            kind = "held out" if held_out else "seen"
            print(f"{task:13}{kind:9}{len(chosen) - len(wrong):3} of {len(chosen)} ({by_language})")
            for case in wrong if "-v" in sys.argv and not held_out else ():
                print("   ", case["text"], "->", answer(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
