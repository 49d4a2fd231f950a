"""Words of the grammar by language: ``en``, ``zh`` and ``ru`` have what ``grammar_words.json`` has of each name.

Chinese characters are simplified. The notation is that of `pointsman.text.grammar.match`; ``about`` says what a list is
for.
"""

from __future__ import annotations

import json
from importlib import resources
from types import SimpleNamespace
from typing import Any, Final

_TABLE: Final[dict[str, dict[str, str | list[str]]]] = json.loads(
    resources.files("pointsman.text.grammar").joinpath("grammar_words.json").read_text("utf-8")
)


def _words_of(language: str) -> Any:
    lists = {name: words[language] for name, words in _TABLE.items() if language in words}
    return SimpleNamespace(**{name: text if isinstance(text, str) else " ".join(text) for name, text in lists.items()})


en, zh, ru = map(_words_of, ("en", "zh", "ru"))
