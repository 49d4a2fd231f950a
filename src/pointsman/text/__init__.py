"""Text processing for all backends: folding, one analyser, language detection, sentence splitting (en, zh, ru)."""

from pointsman.text.language import detect, scripts, without_scripts, words_of_scripts
from pointsman.text.sentences import sentences
from pointsman.text.tokens import ANALYZER_VERSION, DEFAULT_ANALYZER, LONGEST_TOKEN, Analyzer, query_tokens
from pointsman.text.unicode import fold, repair

__all__ = [
    "ANALYZER_VERSION",
    "DEFAULT_ANALYZER",
    "LONGEST_TOKEN",
    "Analyzer",
    "detect",
    "fold",
    "query_tokens",
    "repair",
    "scripts",
    "sentences",
    "without_scripts",
    "words_of_scripts",
]
