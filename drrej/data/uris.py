"""URIs of object storage: telling them, paths below them, and messages without their credentials."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"((?:s3|gs|gcs)://)[^/@\s]*:[^@\s]*@|(\w+://)[^/@\s]*:[^/@\s]*@", re.ASCII)


def is_uri(target: str) -> bool:
    """Whether a target is on a filesystem that pyarrow opens by URI."""
    return "://" in target


def below(uri: str, relative: str) -> str:
    """The URI of a file in a folder; options such as ?endpoint_override=... stay at the end."""
    folder, mark, options = uri.partition("?")
    return f"{folder.rstrip('/')}/{relative}{mark}{options}"


def redacted(text: str) -> str:
    """A message without the credentials of URIs (s3://key:secret@bucket/...), also of such that do not parse."""
    return _CREDENTIALS.sub(lambda found: found[1] or found[2], text)
