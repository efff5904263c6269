"""One chat request: sent until it is answered, refused, or out of retries.

It uses httpx, not the openai package: the retries of that package would hide what the throttle has
to see (status, Retry-After), and it reads a body of any length for any time.
"""

from __future__ import annotations

import email.utils
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from tasks.engines.deadline import within
from tasks.engines.endpoint import ChatEndpoint, without
from tasks.engines.throttle import Outcome, Throttle
from tasks.engines.usage import UNKNOWN, Usage, reported

OVERLOADED = {408, 429, 503, 504, 529}
HOPELESS = {401, 402, 404, 405, 407}  # every request will fail; a 403 may concern only one
NO_MONEY = "insufficient_quota"
MOST_BYTES = 1 << 24
FIRST_WAIT_S = 1.0
NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.WriteError,
    httpx.WriteTimeout,
)
LOCAL = {"127.0.0.1", "localhost", "::1"}


class NotAnswered(Exception):
    """A request without a usable reply.

    `kind`: `again` may succeed later; `never` will always be refused; `hopeless` will always be
    refused, as will every other request; `stopped` was not sent. `usage` is what may be billed
    nevertheless; None if nothing is.
    """

    def __init__(
        self,
        kind: Literal["again", "never", "hopeless", "stopped"],
        why: str,
        usage: Usage | None = None,
    ):
        super().__init__(why)
        self.kind = kind
        self.usage = usage


@dataclass(frozen=True)
class ChatReply:
    """A reply. `model` is the model that replied, according to the endpoint."""

    text: str
    finish_reason: Literal["stop", "length"]
    usage: Usage
    model: str | None


class _Trouble(Exception):
    """An attempt that failed and may be repeated.

    `usage` is what may be billed for it; None if nothing is.
    """

    def __init__(
        self, outcome: Outcome, why: str, retry_after_s: float = 0, usage: Usage | None = None
    ):
        super().__init__(why)
        self.outcome: Outcome = outcome
        self.retry_after_s = retry_after_s
        self.usage = usage


class ChatClient:
    """Sends the requests of many threads to one endpoint, through one throttle.

    The key never appears in a message or reply.
    """

    def __init__(self, endpoint: ChatEndpoint):
        self.endpoint = endpoint
        self._key = endpoint.key()
        self.throttle = Throttle(endpoint)
        host = urlsplit(endpoint.url).hostname
        self._http = httpx.Client(
            timeout=endpoint.timeout_s,
            limits=httpx.Limits(max_connections=endpoint.max_concurrency),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            trust_env=host not in LOCAL,  # a proxy leads outside, not to this machine
        )

    def ask(self, body: dict[str, Any], again: Callable[[Usage], None]) -> ChatReply:
        """The reply to a request, given its JSON body.

        Between attempts it waits for a random share of 1, 2, 4, ... seconds, in addition to
        Retry-After. `again` is called before a retry with what may be billed for the failed
        attempt; an exception from it ends the request. Raises NotAnswered if the request is
        refused, is charged without a reply, fails `retries` + 1 times, or is not sent because the
        throttle was stopped.
        """
        estimate = len(json.dumps(body["messages"])) // 4 + 64
        why = ""
        usage: Usage | None = None
        for attempt in range(self.endpoint.retries + 1):
            if usage is not None:
                again(usage)
            started = self.throttle.enter(estimate)
            if started is None:
                raise NotAnswered("stopped", "not sent")
            try:
                reply = self._attempt(body)
            except _Trouble as trouble:
                self.throttle.leave(trouble.outcome, started, pause_s=trouble.retry_after_s)
                why = without(self._key, str(trouble))
                usage = trouble.usage
                longest = min(FIRST_WAIT_S * 2**attempt, self.endpoint.max_wait_s)
                if attempt < self.endpoint.retries:
                    # in addition to Retry-After, which applies to all requests
                    self.throttle.sleep(random.uniform(0, longest))
            except BaseException:
                self.throttle.leave("served", started)
                raise
            else:
                used = reply.usage.num_tokens
                beyond_estimate = used - estimate if used else 0
                self.throttle.leave("served", started, beyond_estimate)
                return reply
        raise NotAnswered("again", f"after {self.endpoint.retries + 1} attempts: {why}", usage)

    def _attempt(self, body: dict[str, Any]) -> ChatReply:
        try:
            status, headers, content = self._post(body)
        except httpx.TimeoutException as slow:
            why = f"{type(slow).__name__} within {self.endpoint.timeout_s:g} s"
            raise _Trouble("overload", why, usage=_usage_without_response(slow)) from None
        except httpx.HTTPError as broken:
            why = f"{type(broken).__name__}: {broken}"
            raise _Trouble("fault", why, usage=_usage_without_response(broken)) from None
        if status != 200:
            self._refuse(status, headers, self._shown(_plain(content), 300))
        try:
            response = json.loads(content)
        except (ValueError, RecursionError):
            why = f"no JSON: {self._shown(_plain(content), 100)!r}"
            raise _Trouble("fault", why, usage=UNKNOWN) from None
        return self._read(response, reported(response, body))

    def _post(self, body: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body of a response, read within the limits of time and bytes.

        A response that trickles in must not keep its place forever.
        """
        content = bytearray()
        with self._http.stream(
            "POST",
            f"{self.endpoint.url}/chat/completions",
            json=body,
            extensions=within(self.endpoint.timeout_s),
        ) as response:
            for part in response.iter_bytes():
                content += part
                if len(content) > MOST_BYTES:
                    raise httpx.DecodingError(f"a body of over {MOST_BYTES} bytes")
            return response.status_code, response.headers, bytes(content)

    def _refuse(self, status: int, headers: httpx.Headers, text: str) -> None:
        """Raise the error for a status other than 200."""
        why = f"status {status}: {text}"
        if status in HOPELESS or (status == 429 and NO_MONEY in text) or 300 <= status < 400:
            self.throttle.stop()
            raise NotAnswered("hopeless", without(self._key, why))
        if status >= 500 or status in OVERLOADED or status in (409, 425) or status < 300:
            wait = retry_after_s(headers, time.time())
            if wait > self.endpoint.max_wait_s:
                raise NotAnswered("again", without(self._key, f"asks to wait {wait:.0f} s; {why}"))
            raise _Trouble("overload" if status in OVERLOADED else "fault", why, wait)
        raise NotAnswered("never", without(self._key, why))

    def _read(self, response: Any, usage: Usage) -> ChatReply:
        """The reply in a body.

        A request whose response has none may be retried, unless it is charged; a request that the
        model refused to answer may not.
        """
        try:
            choice = response["choices"][0]
            model = response.get("model")
            text = choice["message"]["content"]
            reason = choice.get("finish_reason")
            refusal = choice["message"].get("refusal")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise self._useless("no reply", response, usage) from None
        if reason == "content_filter" or (refusal and not text):
            why = f"refused: {without(self._key, _text(refusal or reason))[:300]}"
            raise NotAnswered("never", why, usage)
        if text is None and reason == "length":
            text = ""  # the reasoning took all tokens
        if not isinstance(text, str):
            raise self._useless("no text", choice, usage)
        return ChatReply(
            text=without(self._key, _text(text)),
            finish_reason="length" if reason == "length" else "stop",
            usage=usage,
            model=without(self._key, _text(model))[:200] if isinstance(model, str) else None,
        )

    def _useless(self, what: str, content: Any, usage: Usage) -> Exception:
        """The error for a body without a reply. A request known to be charged is not retried at
        once: each attempt may cost as much as a reply."""
        why = f"{what} in {self._shown(json.dumps(content), 100)}"
        if usage.num_tokens:
            return NotAnswered("again", why, usage)
        return _Trouble("fault", why, usage=usage)

    def _shown(self, text: str, most: int) -> str:
        """The beginning of a text from the endpoint, without the key. The key is masked before the
        text is cut, because a part of it would not be recognised."""
        return without(self._key, text)[:most]

    def close(self) -> None:
        """Send no further requests, and close the connections."""
        self.throttle.stop()
        self._http.close()


def retry_after_s(headers: httpx.Headers, now: float) -> float:
    """The seconds to wait per Retry-After, a number or a date; 0 if it is missing or unreadable.

    >>> retry_after_s(httpx.Headers({"Retry-After": "7"}), now=0)
    7.0
    >>> retry_after_s(httpx.Headers({"Retry-After": "soon"}), now=0)
    0.0
    >>> retry_after_s(httpx.Headers({"Retry-After": "Thu, 01 Jan 1970 00:01:30 GMT"}), now=60)
    30.0
    """
    value = headers.get("retry-after", "")
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = email.utils.parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return 0.0
    if math.isnan(wait):
        return 0.0
    return max(0.0, wait)


def _plain(content: bytes) -> str:
    return " ".join(content.decode("utf-8", "replace").split())


def _text(value: Any) -> str:
    """The value as text that can be stored: JSON may contain unpaired surrogates."""
    return str(value).encode("utf-8", "replace").decode()


def _usage_without_response(problem: httpx.HTTPError) -> Usage | None:
    """What may be billed for a request without a whole response; None if it was never sent."""
    return None if isinstance(problem, NOT_SENT) else UNKNOWN
