"""From the name of a policy, which may be anything, to a part of a file's name."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

LONGEST = 80
"""Characters of a name's file beyond which a checksum stands for the rest."""
ROLES = re.compile(r"actor(-\d+)?|coordinator")
"""The parts of a checkpoint that belong to roles, which no policy may have."""


def file_name(name: str) -> str:
    """The file name of a policy's part of a checkpoint, of its weights and its log.

    Names differ wherever policies' names do, and none is that of a role's part. Letters and digits
    of ASCII, `_` and `-` stay; all else is escaped as in URLs, so that ordinary names stay as they
    are and none leads elsewhere.
    """
    found = quote(name, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if ROLES.fullmatch(found) or found.startswith("-"):
        found = f"%{ord(found[0]):02X}{found[1:]}"
    if len(found) > LONGEST:
        found = f"{found[:LONGEST]}%{hashlib.sha256(found.encode()).hexdigest()[:24]}"
    return found or "%"
