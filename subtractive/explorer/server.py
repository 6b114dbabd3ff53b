"""The web application: a static page and its answers, for the person at this machine alone.

Whoever does not know the random token in the address sees nothing. The name of the host is
checked, so that no other site can reach the server by a name of its own; nothing is sent that
would let another site read an answer; and the page may load and do nothing but its own.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from subtractive.explorer.answers import Answer, Answers
from subtractive.explorer.turns import Stale, Turns

Endpoint = Callable[[Request, object], Awaitable[Response]]

HOSTS = ("127.0.0.1", "localhost")
MOST_BYTES = 1_000_000
GLANCE = 0.01  # seconds between two looks whether somebody still waits for a slow answer
NOBODY = 499  # the status of an answer that nobody reads
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets requests pass that name this host and know the token, and adds headers to answers."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 to those who may not pass."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        refusal = self.refusal(Request(scope))
        answer: ASGIApp = self.app if refusal is None else PlainTextResponse(refusal, 403)
        await answer(scope, receive, send_with_headers)

    def refusal(self, request: Request) -> str | None:
        """Why a request may not pass, if so."""
        host = request.headers.get("host", "")
        name, _, _ = host.partition(":")
        if name not in HOSTS:
            return "This server answers to 127.0.0.1 and localhost only."
        if request.headers.get("origin", f"http://{host}") != f"http://{host}":
            return "This server answers to its own page only."
        told = request.url.path.split("/")[1]
        if not secrets.compare_digest(told.encode(), self.token.encode()):
            return "Open the address that the explorer printed: its token is missing or wrong."
        return None


def make_app(answers: Answers, token: str) -> Starlette:
    """The application; all its addresses begin with the token."""
    turns = Turns()
    quick, slow = asyncio.Lock(), asyncio.Lock()  # one computation at a time, or all become slow

    async def draw(request: Request, body: object) -> Response:
        with turns.urgent():
            async with quick:
                if await request.is_disconnected():
                    return Response(status_code=NOBODY)
                return await run_in_threadpool(_compute, answers.curves, body)

    def later(answer: Callable[[Mapping[str, Any]], Answer]) -> Endpoint:
        async def endpoint(request: Request, body: object) -> Response:
            async with slow:
                return await _unless_stale(turns, request, answer, body)

        return endpoint

    static = StaticFiles(directory=str(files("subtractive.explorer") / "static"), html=True)
    endpoints = {
        "page": later(lambda _: answers.page()),
        "curves": draw,
        "selected": later(answers.selected),
        "summary": later(answers.summary),
        "samples": later(answers.samples),
        "joint": later(answers.joint),
    }
    routes = [
        Route(f"/{token}/api/{name}", _with_body(endpoint), methods=["POST"])
        for name, endpoint in endpoints.items()
    ]
    page = Mount(f"/{token}", static)
    return Starlette(routes=[*routes, page], middleware=[Middleware(Guard, token=token)])


def _with_body(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def read_and_answer(request: Request) -> Response:
        try:
            body = await _read_json(request)
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        return await endpoint(request, body)

    return read_and_answer


async def _unless_stale(
    turns: Turns, request: Request, answer: Callable[[Mapping[str, Any]], Answer], body: object
) -> Response:
    """Compute an answer in the pauses of urgent ones, and stop when nobody waits for it."""
    if await request.is_disconnected():  # the page has a newer question
        return Response(status_code=NOBODY)
    stale = threading.Event()

    def compute() -> Response:
        try:
            with turns.patient(stale):
                return _compute(answer, body)
        except Stale:
            return Response(status_code=NOBODY)

    computing = asyncio.ensure_future(run_in_threadpool(compute))
    while not computing.done():
        await asyncio.wait({computing}, timeout=GLANCE)
        if await request.is_disconnected():
            stale.set()
    return await computing


def _compute(answer: Callable[[Mapping[str, Any]], Answer], body: object) -> Response:
    try:
        if not isinstance(body, dict):
            raise ValueError("a request is a JSON object.")
        return _json(answer(body))
    except (ValueError, ArithmeticError) as error:
        return _json({"error": str(error)}, 422)


async def _read_json(request: Request) -> object:
    """The body of a request, unless it is long."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise ValueError(f"a request has at most {MOST_BYTES:,} bytes.")
    try:
        return json.loads(content or b"{}")
    except ValueError:
        raise ValueError("a request is a JSON object.") from None


def _json(answer: Answer, status: int = 200) -> Response:
    content = json.dumps(answer, allow_nan=False, separators=(",", ":"))
    return Response(content, status, media_type="application/json")
