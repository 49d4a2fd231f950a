"""Text for every backend alike: folding, one analyser, language detection, sentences; English, Chinese and Russian."""

from pointsman.text.language import detect, scripts, without_scripts
from pointsman.text.sentences import sentences
from pointsman.text.tokens import ANALYZER_VERSION, DEFAULT_ANALYZER, LONGEST_TOKEN, Analyzer
from pointsman.text.unicode import fold, repair

__all__ = [
    "ANALYZER_VERSION",
    "DEFAULT_ANALYZER",
    "LONGEST_TOKEN",
    "Analyzer",
    "detect",
    "fold",
    "repair",
    "scripts",
    "sentences",
    "without_scripts",
]
