"""A chat endpoint that misbehaves as a test tells it to, and counts its requests."""

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, TypeVar

FAULTS = (
    "429",
    "500",
    "503",
    "529",
    "reset",
    "cut",
    "cut length",
    "html",
    "no json",
    "no choices",
    "no text",
    "deep",
)
"""What `say` may return in place of a reply; `slow` besides, which takes longer than any client
waits, and `echo`."""


def completion(text: Any, **changes: Any) -> dict[str, Any]:
    """A valid body: 10 tokens in the prompt, 2 in the reply."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    return {
        "object": "chat.completion",
        "model": "judge-2026",
        "choices": [choice],
        "usage": usage,
        **changes,
    }


class ChatServer:
    """`say(prompt, n)` returns what the n-th request (from 1) with this prompt gets: a text, a
    body, (status, body, headers), or one of `FAULTS`."""

    def __init__(self, say: Callable[[str, int], Any]):
        self.say, self.requests, self.asked, self.times = say, [], Counter(), []
        self.over = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.answer(self, request)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size, daemon_threads = 256, True

            def handle_error(self, *_: Any) -> None:
                pass  # a client that gave up

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def answer(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        prompt = request["messages"][-1]["content"]
        with self._lock:
            self.requests.append(request)
            self.times.append(time.monotonic())
            self.asked[prompt] += 1
            said = self.say(prompt, self.asked[prompt])
        if said in FAULTS or said in ("slow", "echo"):
            self.misbehave(handler, said)
        elif isinstance(said, tuple):
            self.send(handler, *said)
        else:
            self.send(handler, 200, said if isinstance(said, dict) else completion(said))

    def misbehave(self, handler: BaseHTTPRequestHandler, fault: str) -> None:
        whole = json.dumps(completion("<score>1</score>")).encode()
        if fault.isdigit():
            self.send(handler, int(fault), {"error": {"message": "busy"}})
        elif fault == "echo":
            self.send(handler, 400, {"error": f"what is {handler.headers['Authorization']}?"})
        elif fault == "slow":
            self.over.wait(3600)
        elif fault == "reset":
            handler.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            handler.close_connection = True
        elif fault == "cut length":
            self.send(handler, 200, whole[:20], length=len(whole))
        else:
            texts = {
                "cut": whole[:40],
                "html": b"<html>hello</html>",
                "no json": b'{"choices": [',
                "deep": b"[" * 99999,
            }
            bodies = {
                "no choices": {"choices": []},
                "no text": {"choices": [{"message": {}, "finish_reason": "stop"}]},
            }
            self.send(
                handler,
                200,
                texts.get(fault) or bodies[fault],
                kind="text/html" if fault == "html" else None,
            )

    def send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        body: Any,
        headers: dict[str, str] | None = None,
        length: int | None = None,
        kind: str | None = None,
    ) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind or "application/json")
        handler.send_header("Content-Length", str(length or len(content)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)
        handler.close_connection = length is not None


Server = TypeVar("Server", bound=ChatServer)


@contextmanager
def serving(say: Callable[[str, int], Any], kind: type[Server] = ChatServer) -> Iterator[Server]:
    server = kind(say)
    threading.Thread(
        target=server._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    try:
        yield server
    finally:
        server.over.set()
        server._server.shutdown()
        server._server.server_close()


@contextmanager
def trickling(begin: bytes, piece: bytes) -> Iterator[str]:
    """Yield the address of a server that answers with `begin` and then repeats `piece` without end.

    It stops when the client is gone.
    """

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            with suppress(OSError):
                self.request.sendall(begin)
                while True:
                    self.request.sendall(piece)
                    time.sleep(0.01)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
