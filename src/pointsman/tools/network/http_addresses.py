"""Helpers shared by HTTP clients: checked addresses, ``Retry-After``, and text that is safe in an error message."""

from __future__ import annotations

import email.utils
import ipaddress
import time
from collections.abc import Collection, Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit


def address(url: str) -> SplitResult:
    """Check an address and return it split, without its fragment.

    Raises:
        InputError: the address is invalid; the message does not repeat parts that may be secret.
    """
    from pointsman.tools.errors import InputError

    try:
        url_parts = urlsplit(url)
        port_is_number = url_parts.port is None or url_parts.port > 0
    except (ValueError, AttributeError, TypeError):
        raise InputError("url is not a valid address; use one such as http://localhost:8080") from None
    if url_parts.scheme not in {"http", "https"} or not url_parts.hostname or not port_is_number:
        raise InputError("url must begin with http:// or https:// and a host, such as http://localhost:8080")
    if "@" in url_parts.netloc:
        raise InputError(f"the address of {url_parts.hostname} contains a user or password; pass the key separately")
    return url_parts._replace(fragment="")


def is_here(url: SplitResult) -> bool:
    """Whether an address belongs to this machine, so that the traffic never crosses a network.

    >>> is_here(urlsplit("http://127.0.0.1:8080")), is_here(urlsplit("http://example.org"))
    (True, False)
    """
    return is_loopback(url.hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own.

    >>> is_loopback("::1"), is_loopback("127.example.org")
    (True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def options_of(query: str, known_names: Collection[str]) -> dict[str, str]:
    """Return the options in the URL of a server: the part after its ``?``.

    >>> options_of("insecure=true&shards=3", {"insecure", "shards"})
    {'insecure': 'true', 'shards': '3'}

    Raises:
        InputError: an option is unknown, or the syntax is invalid; the message does not repeat values.
    """
    from pointsman.tools.errors import InputError

    try:
        options = dict(parse_qsl(query, keep_blank_values=True))
    except ValueError:
        raise InputError("the options of a URL are written NAME=VALUE, with & between them") from None
    if unknown_names := sorted(options.keys() - set(known_names)):
        raise InputError(
            f"unknown options {', '.join(unknown_names)} in the URL; known: {', '.join(sorted(known_names))}"
        )
    return options


def check_encrypted(url: SplitResult, remote_host: str | None, options: Mapping[str, str]) -> bool:
    """Return whether a server is used over TLS (``SCHEME+https``); without TLS, another machine needs ``insecure``.

    Args:
        url: the parts of its URL.
        remote_host: a host in the URL that is another machine; None if there is none.
        options: the options of the URL; ``insecure=true`` allows unencrypted connections.

    Raises:
        InputError: it is another machine, and neither TLS nor ``insecure`` is requested.
    """
    from pointsman.tools.errors import InputError

    secure = url.scheme.endswith("+https")
    if remote_host is not None and not secure and options.get("insecure") != "true":
        raise InputError(
            f"{remote_host} is another machine; use {url.scheme}+https://, or add ?insecure=true to send everything in "
            "the clear"
        )
    return secure


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header (seconds or a date) asks to wait; None if it is invalid.

    >>> seconds_of("3"), seconds_of("soon")
    (3.0, None)
    """
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after.strip()[:10])
    try:
        date = email.utils.parsedate_to_datetime(retry_after)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def one_line(text: bytes | str, limit: int = 100) -> str:
    r"""Return the beginning of an external text on one line, for an error message.

    >>> one_line(b"<h1>Bad\r\n gateway</h1>")
    '<h1>Bad gateway</h1>'
    """
    text = text[: 4 * limit].decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return f"{line[:limit]}…" if len(line) > limit else line or "nothing"
