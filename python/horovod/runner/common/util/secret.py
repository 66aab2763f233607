"""Keys that the processes of one job share, and the authentication of messages with them."""

from __future__ import annotations

import hashlib
import hmac
import secrets

DIGEST_LENGTH = 32  # bytes of a key, and of HMAC-SHA-256


def make_secret_key() -> bytes:
    """Returns a new random key of 32 bytes."""
    return secrets.token_bytes(DIGEST_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Returns the HMAC-SHA-256 of a message, 32 bytes."""
    return hmac.new(key, message, hashlib.sha256).digest()


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Returns true if the digest was made with this key; compares in constant time."""
    return hmac.compare_digest(compute_digest(key, message), digest)
