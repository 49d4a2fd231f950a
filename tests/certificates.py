"""Certificates for tests of TLS: an authority, and what it issued to a server on 127.0.0.1 and to a client."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files.

    Attributes:
        authority: the certificate that the others are checked with.
        server: the server's certificate, for 127.0.0.1.
        server_key: its key.
        client: the client's certificate.
        client_key: its key.
    """

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def certificates(folder: Path) -> Certificates:
    """Make new ones, valid for a day."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    issuer: Any = None

    def made(name: str, *extensions: Any) -> tuple[Path, Path]:
        nonlocal issuer
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer, signing_key = issuer or (subject, key)
        builder = x509.CertificateBuilder(signer, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(signing_key, hashes.SHA256())
        issuer = issuer or (subject, key)
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths

    authority, _ = made("authority", x509.BasicConstraints(ca=True, path_length=None))
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    return Certificates(authority, *made("server", here), *made("client"))
