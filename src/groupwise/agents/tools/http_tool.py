"""Tools that call HTTP APIs: only named hosts, with limits on time and size, and without revealing secrets.

    HttpTool("weather", "https://api.example.com/v1/{city}", parameters={"properties": {"city": {"type": "string"}}, …},
             headers={"Authorization": "Bearer {WEATHER_KEY}"})

Braces in the URL stand for an argument, braces in a header for an environment variable. Arguments that the URL does not
mention become the query of a GET or DELETE, or the JSON body of any other request.
"""

import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import SplitResult, quote, quote_plus, urlencode, urljoin, urlsplit

from groupwise.agents.tools.function_tool import Tool, ToolError, TypedArguments, fields, shortened
from groupwise.errors import ConfigError

METHODS = ("GET", "DELETE", "POST", "PUT", "PATCH")
IN_QUERY = ("GET", "DELETE")
BRACES = re.compile(r"\{(\w*)\}")
REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 3
GRACE = 0.5  # seconds that a connection outlives its call, so that the call's own timeout is the one reported


class HttpTool(Tool):
    """A tool that makes one request.

    Args:
      name, description: what the model sees.
      url: the address; {name} stands for an argument, anywhere after the host.
      method: GET, DELETE, POST, PUT or PATCH.
      parameters: the JSON schema of the arguments, an object.
      headers: what to send; {NAME} stands for an environment variable, whose value is never shown.
      timeout: seconds a request may take.
      allowed_hosts: hosts other than the URL's own that a redirect may lead to.
      allow_private: whether a host may be on this machine or its private network.
      max_bytes: how much of an answer is read.
    """

    def __init__(
        self, name: str, url: str, *, method: str = "GET", description: str = "",
        parameters: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None, timeout: float = 10.0,
        allowed_hosts: Sequence[str] = (), allow_private: bool = False, max_bytes: int = 100_000,
    ) -> None:  # fmt: skip
        schema = {"type": "object", "properties": {}, **(parameters or {})}
        arguments = TypedArguments(name, fields(schema, f"the schema of {name}"), schema)
        defaults = {key: inner["default"] for key, inner in schema["properties"].items() if "default" in inner}
        hosts = (_host_of(name, url, schema), *map(str.lower, allowed_hosts))
        rules = HttpRules(hosts, allow_private, timeout + GRACE, max_bytes)
        if method.upper() not in METHODS:
            raise ConfigError(f"the tool {name} has the method {method!r}", hint=f"Methods are {', '.join(METHODS)}.")
        endpoint = HttpEndpoint(name, url, method.upper(), defaults, dict(headers or {}), rules)
        endpoint.secrets()  # so that a missing one is reported now
        super().__init__(name, description, arguments, endpoint.call, timeout)


def _host_of(name: str, url: str, schema: Mapping[str, Any]) -> str:
    """Return the host of a URL template, and refuse templates that cannot be used."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if parts.scheme not in ("http", "https") or not host or "{" in parts.netloc or "@" in parts.netloc:
        raise ConfigError(
            f"the tool {name} cannot use the URL {BRACES.sub('{…}', url.rpartition('@')[2])!r}",
            hint="Start with http:// or https:// and a host; put arguments after it and passwords into headers.",
        )
    required = schema.get("required", ())
    for argument in BRACES.findall(url):
        inner = schema["properties"].get(argument)
        if inner is None or not (argument in required or "default" in inner):
            message = f"the URL of the tool {name} needs {argument!r}, which is not a required parameter"
            raise ConfigError(message, hint="Add it to the schema's properties, and to required or with a default.")
    return host


@dataclass(frozen=True, slots=True)
class HttpRules:
    """What a request may do."""

    hosts: tuple[str, ...]
    private: bool
    seconds: float
    max_bytes: int

    def addresses(self, url: SplitResult) -> list[str]:
        """Look up the addresses to connect to, once, so that none can change between the check and the connection."""
        host = (url.hostname or "").lower()
        if url.scheme not in ("http", "https") or host not in self.hosts:
            raise ToolError(f"the host {host!r} is not allowed, only {', '.join(self.hosts)}")
        try:
            found = socket.getaddrinfo(host, url.port or port_of(url), type=socket.SOCK_STREAM)
        except OSError:
            raise ToolError(f"the host {host!r} was not found") from None
        addresses = [str(entry[4][0]) for entry in found]
        if not self.private and not all(map(is_public, addresses)):
            raise ToolError(f"the host {host!r} is on a private network, which is not allowed")
        return addresses


def port_of(url: SplitResult) -> int:
    return 443 if url.scheme == "https" else 80


NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052; the local 64:ff9b:1::/48 is reserved, so never public
ISATAP = 0x5EFE  # RFC 5214: the interface identifier 0000:5efe:a.b.c.d, or 0200:5efe:a.b.c.d


def is_public(address: str) -> bool:
    """Return whether an address is on the public Internet, and so is every IPv4 address that is embedded in it.

    The deprecated forms ::a.b.c.d and ::ffff:0:a.b.c.d are reserved addresses, which nothing public has.
    """
    known = ipaddress.ip_address(address.partition("%")[0])
    inner = _embedded(known) if isinstance(known, ipaddress.IPv6Address) else ()
    if isinstance(known, ipaddress.IPv6Address) and (known.ipv4_mapped or known in NAT64):
        return all(map(_is_routed, inner))
    return _is_routed(known) and all(map(_is_routed, inner))


def _embedded(address: ipaddress.IPv6Address) -> tuple[ipaddress.IPv4Address, ...]:
    """The IPv4 addresses to which a packet for this address may be sent: mapped, NAT64, 6to4, Teredo, ISATAP."""
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in NAT64 or int(address) >> 32 & 0xFDFFFFFF == ISATAP:  # whatever the bit for "universal" says
        return (last,)
    return tuple(filter(None, (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()))))


def _is_routed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = None

    def redirected(self, status: int, target: str) -> Self:
        """Return the request to follow a redirect with; headers, which may hold secrets, go only to the same host."""
        there = replace(self, url=urljoin(self.url, target))
        # As browsers do; 307 and 308 repeat the request unchanged.
        if status in (301, 302, 303) and self.method != "GET":
            there = replace(there, method="GET", body=None)
        here, new = urlsplit(self.url), urlsplit(there.url)
        if here.scheme == "https" and new.scheme != "https":
            raise ToolError("the server redirects to an unencrypted address")
        same = (here.scheme, here.netloc) == (new.scheme, new.netloc)
        return there if same else replace(there, headers={})


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    reason: str
    kind: str
    body: bytes = field(repr=False)
    cut: bool
    location: str = ""

    def value(self) -> str:
        """Return what the model sees; an HTTP error is raised as `ToolError`."""
        if self.status >= 400:
            raise ToolError(f"HTTP {self.status} {self.reason}: {shortened(self.text(), 300)}".rstrip(": "))
        return self.text() if self.body else f"HTTP {self.status} {self.reason}"

    def text(self) -> str:
        if b"\0" in self.body or self.kind.partition("/")[0] in ("image", "audio", "video", "font"):
            return f"({len(self.body)} bytes of {self.kind or 'an unknown type'}, not text)"
        text = self.body.decode("utf8", "replace")
        if self.cut:
            return f"{text}… (cut after {len(self.body)} bytes)"
        try:
            return json.dumps(json.loads(text), ensure_ascii=False)  # without indentation
        except (ValueError, RecursionError):
            return text


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """Where and how to send requests. It stores no secret: environment variables are read for every call."""

    name: str
    url: str
    method: str
    defaults: Mapping[str, Any]
    headers: Mapping[str, str] = field(repr=False)
    rules: HttpRules

    def call(self, /, **arguments: Any) -> str:
        secrets = self.secrets()
        try:
            return hidden(self._answer({**self.defaults, **arguments}, secrets), secrets)
        except ToolError as error:
            raise ToolError(hidden(str(error), secrets)) from None
        except TimeoutError:
            raise ToolError(f"no answer within {self.rules.seconds - GRACE:g} s") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ToolError(hidden(f"the request failed: {type(error).__name__} {error}", secrets)) from None

    def secrets(self) -> dict[str, str]:
        """Read the environment variables that the headers name."""
        names = {name for value in self.headers.values() for name in BRACES.findall(value)}
        found = {name: os.environ.get(name, "").strip() for name in sorted(names)}
        wrong = [name for name, value in found.items() if not value or not value.isascii() or not value.isprintable()]
        if wrong:
            raise ConfigError(
                f"the tool {self.name} needs the environment variable {wrong[0]}, which is not set to printable text",
                hint=f"export {wrong[0]}=…",
            )
        return found

    def _answer(self, arguments: Mapping[str, Any], secrets: Mapping[str, str]) -> str:
        request = self._request(arguments, secrets)
        for _ in range(MOST_REDIRECTS + 1):
            answer = fetch(request, self.rules)
            if answer.status not in REDIRECTS or not answer.location:
                return answer.value()
            request = request.redirected(answer.status, answer.location)
        raise ToolError(f"the server redirects more than {MOST_REDIRECTS} times")

    def _request(self, arguments: Mapping[str, Any], secrets: Mapping[str, str]) -> HttpRequest:
        placed = set(BRACES.findall(self.url))
        url = BRACES.sub(lambda found: in_url(found[1], arguments[found[1]]), self.url)
        rest = {name: value for name, value in arguments.items() if name not in placed and value is not None}
        headers = {name: BRACES.sub(lambda found: secrets[found[1]], value) for name, value in self.headers.items()}
        if self.method not in IN_QUERY:
            return HttpRequest(self.method, url, headers, json.dumps(rest).encode())
        query = urlencode({name: as_query(value) for name, value in rest.items()}, doseq=True)
        joint = "&" if urlsplit(url).query else "?"
        return HttpRequest(self.method, f"{url}{joint}{query}" if query else url, headers)


def in_url(name: str, value: Any) -> str:
    """Quote an argument as one piece of a URL path, so that it cannot change the path."""
    text = value if isinstance(value, str) else json.dumps(value)
    if text in ("", ".", ".."):
        raise ToolError(f"{name} cannot be {text!r}")
    return quote(text, safe="")


def as_query(value: Any) -> Any:
    if isinstance(value, list):
        return [as_query(item) for item in value]
    return value if isinstance(value, str) else json.dumps(value)


def hidden(text: str, secrets: Mapping[str, str]) -> str:
    """Replace secrets in a text, also where they are quoted for a URL or JSON."""
    for name, value in secrets.items():
        for form in (value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1]):
            text = text.replace(form, f"[{name}]")
    return text


def fetch(request: HttpRequest, rules: HttpRules) -> HttpAnswer:
    """Send one request to a checked address and return the answer."""
    url = urlsplit(request.url)
    plug = plugged(url, rules)
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            socket.socket.shutdown(plug, socket.SHUT_RDWR)

    # A server that sends a byte now and then never triggers the socket's timeout, so a timer ends the exchange.
    clock = threading.Timer(rules.seconds, end)
    clock.daemon = True
    clock.start()
    try:
        return _exchange(request, url, plug, rules)
    except (OSError, ValueError, ToolError, http.client.HTTPException):
        if late.is_set():
            raise TimeoutError from None
        raise
    finally:
        clock.cancel()
        plug.close()


def _exchange(request: HttpRequest, url: SplitResult, plug: socket.socket, rules: HttpRules) -> HttpAnswer:
    kinds = {"https": http.client.HTTPSConnection, "http": http.client.HTTPConnection}
    connection = kinds[url.scheme](str(url.hostname), url.port or port_of(url))
    # Already connected to the checked address, so that http.client does not look the name up again.
    connection.sock = plug
    sent = {"User-Agent": "groupwise", "Accept-Encoding": "identity", "Connection": "close"}
    if request.body is not None:
        sent["Content-Type"] = "application/json"
    target = url.path or "/"
    target = f"{target}?{url.query}" if url.query else target
    connection.request(request.method, target, request.body, {**sent, **request.headers})
    with connection.getresponse() as response:
        body = read(response, rules.max_bytes)
        cut = len(body) > rules.max_bytes
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip()
        location = response.getheader("Location") or ""
        return HttpAnswer(response.status, response.reason, kind, body[: rules.max_bytes], cut, location)


def read(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Read the body, up to one byte more than the limit."""
    promised = response.length
    wanted = limit + 1 if promised is None else min(limit + 1, promised)
    body = b""
    while len(body) < wanted and (piece := response.read1(min(65536, wanted - len(body)))):
        body += piece
    if promised is not None and len(body) < wanted:
        raise ToolError(f"the connection broke off after {len(body)} of {promised} bytes")
    return body


def plugged(url: SplitResult, rules: HttpRules) -> socket.socket:
    """Connect to the first of a host's addresses that accepts."""
    problem: OSError | None = None
    for address in rules.addresses(url):
        try:
            plug = socket.create_connection((address, url.port or port_of(url)), rules.seconds)
        except OSError as error:
            problem = problem or error
            continue
        if url.scheme == "http":
            return plug
        # The certificate is checked against the name, although we connect to an address.
        return ssl.create_default_context().wrap_socket(plug, server_hostname=url.hostname)
    raise problem or OSError("no address")
