"""Makes text from documents, files and servers safe to print on a terminal."""

from __future__ import annotations

import re
from typing import Final

UNSAFE: Final = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff"
"""Characters of a regular expression's set: controls (C0, C1, DEL), line separators, the controls of writing direction
(Unicode's ``Bidi_Control`` and the deprecated ones beside it), annotation marks and lone surrogates."""

_UNSAFE: Final = re.compile(f"(?![\\t\\n])[{UNSAFE}]")
_UNSAFE_IN_LINE: Final = re.compile(f"[{UNSAFE}]")


def printable(text: str, *, one_line: bool = False) -> str:
    r"""Return a text with escapes for characters that control a terminal or turn the writing direction around.

    Everything that can be read stays as it is, in every script; so do joiners, which scripts and emoji need.

    Args:
        text: any text.
        one_line: whether tabs and line ends are escaped too.

    Example:
        >>> printable("red \x1b[31m and \u202egnp.exe"), printable("стрелка 道岔 \u0633\u06a9\u0647 👩\u200d🔧")
        ('red \\x1b[31m and \\u202egnp.exe', 'стрелка 道岔 سکه 👩\u200d🔧')
    """
    return (_UNSAFE_IN_LINE if one_line else _UNSAFE).sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
