"""Keys that the processes of one job share, and the authentication of messages with them."""

from __future__ import annotations

import hashlib
import hmac
import secrets

DIGEST_LENGTH = 32  # bytes of a key, and of HMAC-SHA-256


def make_secret_key() -> bytes:
    """A new random key of 32 bytes."""
    return secrets.token_bytes(DIGEST_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """The 32 bytes of HMAC-SHA-256 that authenticate a message."""
    return hmac.new(key, message, hashlib.sha256).digest()


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether the message comes from somebody who has the key; takes the same time for every answer."""
    return hmac.compare_digest(compute_digest(key, message), digest)
