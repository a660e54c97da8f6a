"""The server process: its options, its socket, and a stop that answers what is in flight."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

from fsdpo_data.core.errors import InputError, UnavailableError, install_command
from fsdpo_data.core.options import Option, Options
from fsdpo_data.engines.options import ScorerOptions

#: The environment variable with the token that clients must send.
TOKEN_VARIABLE = "FSDPO_SERVE_TOKEN"
KEEP_ALIVE_SECONDS = 75  #: Seconds after which an idle connection is closed.
BACKLOG_CONNECTIONS = 2048  #: Connections that wait for the server to accept them.
_SERVER_PANEL = "Server"
_PACKAGES = ("starlette", "uvicorn")  #: Packages of the extra ``serve``.


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Options):
    r"""Serve a process reward model over HTTP: question and steps in, one reward per step out.

    Attributes:
        prm: Process reward model: a directory or `org/name[@revision]`.
        host: Address of this machine to listen on; 0.0.0.0 for all.
        port: Port to listen on; 0 for a free one.
        max_body_bytes: Maximum size of the body of a request.
        max_requests: Maximum number of requests that wait for rewards; others are sent away, and
            come back later.
        stop_timeout: Seconds to finish the requests in flight after Ctrl-C or SIGTERM.
        engine: Engine that runs the reward model.

    Examples:
        fsdpo-data serve --prm runs/prm

        fsdpo-data serve --prm Qwen/Qwen2.5-Math-PRM-7B --dtype bfloat16 \
          --host 0.0.0.0 --port 8001
    """

    prm: str
    host: Annotated[str, Option(panel=_SERVER_PANEL)] = "127.0.0.1"
    port: Annotated[int, Option(panel=_SERVER_PANEL, min=0, max=65535)] = 8000
    max_body_bytes: Annotated[int, Option(panel=_SERVER_PANEL, min=1)] = 2**20
    max_requests: Annotated[int, Option(panel=_SERVER_PANEL, min=1)] = 1024
    stop_timeout: Annotated[float, Option(panel=_SERVER_PANEL, min=0)] = 60.0
    engine: ScorerOptions = ScorerOptions()


def run_server(options: ServeOptions, report: Callable[[str], None]) -> None:
    """Load the model, and answer requests until Ctrl-C or SIGTERM.

    Args:
        options: The options.
        report: Prints a line, such as the address of the server.

    Raises:
        InputError: if the model is not a process reward model, or the address cannot be used.
        UnavailableError: if a library, a GPU or the weights are missing.
    """
    if any(find_spec(package) is None for package in _PACKAGES):
        raise UnavailableError(
            f"the server needs {' and '.join(_PACKAGES)}. Install with: {install_command('serve')}"
        )
    import uvicorn

    from fsdpo_data.serving.app import PrmApp, ServerLimits
    from fsdpo_data.serving.served_model import ServedModel

    token = os.environ.get(TOKEN_VARIABLE, "")
    with _bind(options) as listener:
        model = ServedModel(options.prm, options.engine)
        limits = ServerLimits(
            max_body_bytes=options.max_body_bytes, max_requests=options.max_requests
        )
        config = uvicorn.Config(
            PrmApp(model, limits, token).make_app(),
            http="h11",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(options.stop_timeout)),
        )
        listener.listen(BACKLOG_CONNECTIONS)
        host, port = listener.getsockname()[:2]
        report(f"serving {model.ref.name} on http://{f'[{host}]' if ':' in host else host}:{port}")
        if not token:
            report(f"anybody who reaches this address gets rewards; {TOKEN_VARIABLE} is not set")
        # uvicorn stops gracefully on these signals, then sends them again to the old handlers.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listener])
    report("stopped")


def _bind(options: ServeOptions) -> socket.socket:
    """Return a socket with an address. Mistakes show before the model is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        return listener
    except OSError as error:
        raise InputError(
            f"cannot listen on {options.host} port {options.port}: {error.strerror or error}. "
            "Choose another `host` or `port`.",
            field="ServeOptions.port",
            value=options.port,
        ) from None
