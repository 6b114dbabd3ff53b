"""Starting the explorer: a server on this machine, and a browser that shows its page."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager

from subtractive.explorer.answers import Answers
from subtractive.tables.containers import AnyTable
from subtractive.tables.table_density import TableQueries

try:
    import uvicorn

    from subtractive.explorer.server import make_app
except ImportError as error:  # an extra
    raise ImportError(
        f"the explorer needs a package that is not here ({error}): "
        "pip install 'subtractive[explore]'."
    ) from error

LOCAL = "127.0.0.1"


def explore(
    model: TableQueries, table: AnyTable = None, *, port: int = 0, open_browser: bool = True
) -> None:
    """Show a model in the browser, and answer its page until Ctrl-C.

    Every column has its density drawn. Select an interval or some categories, and the densities of
    all other columns, the probability of the selection, means, intervals, the joint density of a
    pair and a few samples follow. With a table, the same selection of its rows is drawn behind.
    The server listens on 127.0.0.1 only, at a free port, or at ``port``.

    >>> sub.explore(model, table)                                             # doctest: +SKIP
    the explorer is at http://127.0.0.1:40123/Zq3.../ (Ctrl-C ends it)
    """
    serve(Answers.of(model, table, None), port=port, open_browser=open_browser)


def serve(answers: Answers, *, port: int = 0, open_browser: bool = True) -> None:
    """Run the server until it is interrupted."""
    with running(answers, port=port) as (address, thread):
        print(f"the explorer is at {address} (Ctrl-C ends it)", flush=True)
        try:
            if open_browser:
                webbrowser.open(address)
            while thread.is_alive():
                thread.join(0.5)
        except KeyboardInterrupt:
            print("the explorer has ended.")


@contextmanager
def running(answers: Answers, *, port: int = 0) -> Iterator[tuple[str, threading.Thread]]:
    """The address of a server that runs in a thread, and the thread."""
    token = secrets.token_urlsafe(24)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOCAL, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ValueError(
            f"port {port} cannot be used ({error}): leave it out for a free one."
        ) from error
    config = uvicorn.Config(make_app(answers, token), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    # What the first samples import takes seconds: not while someone waits for them.
    threading.Thread(target=answers.samples, args=({},), daemon=True).start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://{LOCAL}:{listening.getsockname()[1]}/{token}/", thread
    finally:
        server.should_exit = True
        thread.join(5)
        listening.close()
