"""How many of the 60 questions of the tests the rules take apart, held-out ones apart.

    python benchmarks/grammar.py [-v]

With ``-v`` what went wrong is shown, but never a held-out case.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pointsman.retrieval.plan.transform import subquestions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from grammar_kit import CASES, right


def main() -> int:
    for held_out in (False, True):
        chosen = [case for case in CASES if case["held_out"] is held_out]
        wrong = [case for case in chosen if not right(case)]
        by_language = ", ".join(
            f"{language} {sum(case['language'] == language and case not in wrong for case in chosen)}"
            for language in ("en", "ru", "zh")
        )
        print(f"{'held out' if held_out else 'seen':9}{len(chosen) - len(wrong):3} of {len(chosen)} ({by_language})")
        for case in wrong if "-v" in sys.argv and not held_out else ():
            print("   ", case["text"], "->", subquestions(case["text"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
