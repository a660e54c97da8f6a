"""URLs of folders on object storage, such as ``s3://bucket/runs/demo``; they hold no credentials.

The functions only read texts. :mod:`fsdpo_data.core.remote_folder` opens the folders.
"""

import os
import re

from fsdpo_data.core.errors import InputError

#: Protocol, host and path of a URL.
_URL = re.compile(r"(?P<protocol>[a-z][a-z0-9+.-]*)://(?P<host>[^/]*)(?P<path>.*)", re.I | re.S)
#: Protocols whose host may follow a user or account name, as in ``abfs://container@account``.
_ACCOUNT_PROTOCOLS = ("abfs", "abfss", "hdfs", "sftp", "ssh")
_CREDENTIALS_ADVICE = (
    "expected a URL without a password, a key or a query. Set the credentials in the environment, "
    "for example in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
)
_USER = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(://[^\s'\"<>?]*)\?[^\s'\"<>]*")
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL", re.I)
_MIN_SECRET_CHARS = 8  #: Shorter values of the environment occur in other words.


def is_url(value: object) -> bool:
    """Return whether an option's value is a URL, and not a local path.

    >>> is_url("s3://bucket/runs/demo"), is_url("runs/demo")
    (True, False)
    """
    return isinstance(value, str) and "://" in value


def protocol_of(url: str) -> str:
    """Return the protocol of a URL, such as ``s3``."""
    return url.partition("://")[0]


def check_url(url: str, field: str) -> None:
    """Refuse a URL that is malformed or that contains credentials.

    Args:
        url: The URL of a folder.
        field: Name of the option for the error, such as ``BuildOptions.out``.

    Raises:
        InputError: if the URL is refused; its text has no credentials.
    """
    match = _URL.fullmatch(url)
    public_url = hide_credentials(url)
    if match is None or not match["host"] + match["path"].strip("/"):
        raise InputError(
            "expected a local path, or PROTOCOL://PATH such as s3://bucket/runs/demo.",
            field=field,
            value=public_url,
        )
    user, has_user, _ = match["host"].rpartition("@")
    has_secret_user = has_user and (
        ":" in user or match["protocol"].lower() not in _ACCOUNT_PROTOCOLS
    )
    if has_secret_user or "?" in match["host"] + match["path"]:
        raise InputError(_CREDENTIALS_ADVICE, field=field, value=public_url)
    if {".", ".."} & set(match["path"].split("/")):
        raise InputError("expected a path without `.` and `..`.", field=field, value=public_url)


def hide_credentials(text: str) -> str:
    """Return a text without user names and queries of URLs, and without secrets of the environment.

    >>> hide_credentials("no answer from https://user:password@host/a?signature=1")
    'no answer from https://host/a'
    """
    text = _QUERY.sub(r"\1", _USER.sub("", text))
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET_CHARS:
            text = text.replace(value, "…")
    return text
