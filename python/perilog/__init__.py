"""Calls of perilog's daemons, over Varlink on their local sockets. Needs Python 3.9 and nothing else.

    import perilog

    controller = perilog.Controller()
    print(controller.status()["online"])
    end = controller.run_to_end("prolog", job="f1", nodes="n[0-3]")
    print(end["verdict"], end["by_outcome"])

Every call has a connection of its own, so an object may be shared by threads and outlives its daemon. Methods here have
the names of the interfaces in /usr/share/perilog/varlink; `call` and `stream` take every one of them. What the objects
have in them is said in /usr/share/doc/perilog/api.md. Members that are new must be ignored.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any, Optional

__all__ = [
    "Agent",
    "Away",
    "Busy",
    "Client",
    "Controller",
    "Error",
    "InvalidParameter",
    "Object",
    "PermissionDenied",
    "Refused",
]

Object = dict[str, Any]

# As the daemons have it.
_LARGEST_REQUEST = 1024 * 1024
_LARGEST_REPLY = 64 * 1024 * 1024
_PIECE = 65536
# Seconds between two tries to reach a daemon that is away.
_PAUSE = 0.5


class Error(Exception):
    """A call was answered with an error; `name` is its full name, `parameters` what came with it."""

    def __init__(self, name: str, parameters: Object) -> None:
        super().__init__(parameters.get("text") or ": ".join([name, *map(str, parameters.values())]))
        self.name = name
        self.parameters = parameters


class Refused(Error):
    """The daemon refuses. A controller's `code` is stable: no-such-job, conflict, invalid, unavailable... (api.md)."""

    @property
    def code(self) -> str:
        return str(self.parameters.get("code", ""))


class PermissionDenied(Error):
    """Not for this user."""


class Busy(Error):
    """The daemon has no free connection for this call: ask again."""


class InvalidParameter(Error):
    """A parameter is missing, or of another type."""


class Away(Error):
    """No daemon listens, or the connection was cut. The call may have been carried out; the same again is the same (api.md)."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__("", {"text": f"{path}: {why}"})


_ERRORS = {"Refused": Refused, "PermissionDenied": PermissionDenied, "Busy": Busy, "InvalidParameter": InvalidParameter}


def _error(reply: Object) -> Error:
    name = str(reply["error"])
    kind = _ERRORS.get(name.rpartition(".")[2], Error)
    return kind(name, reply.get("parameters") or {})


class Client:
    """Calls of one interface at one socket. `timeout`: seconds to wait for each part of a reply; None is no limit."""

    def __init__(self, path: str, interface: str, timeout: Optional[float] = 60) -> None:
        self.path = path
        self.interface = interface
        self.timeout = timeout

    def call(self, method: str, **parameters: Any) -> Object:
        """Returns the one reply. Parameters that are None are left out."""
        for reply in self._replies(method, parameters, more=False, timeout=self.timeout):
            return reply
        raise Away(self.path, "ended the connection")

    def stream(self, method: str, **parameters: Any) -> Iterator[Object]:
        """Yields each reply, until the last; without a limit, for the next may be long in coming."""
        return self._replies(method, parameters, more=True, timeout=None)

    def _replies(self, method: str, parameters: Object, more: bool, timeout: Optional[float]) -> Iterator[Object]:
        given = {name: value for name, value in parameters.items() if value is not None}
        request: Object = {"method": f"{self.interface}.{method}", "parameters": given}
        if more:
            request["more"] = True
        message = json.dumps(request).encode() + b"\0"
        if len(message) > _LARGEST_REQUEST:
            raise ValueError(f"a request of {len(message)} bytes, at most {_LARGEST_REQUEST} are taken")
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(timeout)
                connection.connect(self.path)
                connection.sendall(message)
                for reply in self._read(connection):
                    if "error" in reply:
                        raise _error(reply)
                    yield reply.get("parameters") or {}
                    if not reply.get("continues"):
                        return
        except OSError as error:
            raise Away(self.path, error.strerror or str(error)) from error

    def _read(self, connection: socket.socket) -> Iterator[Object]:
        """Yields what ends with a NUL byte."""
        waiting = bytearray()
        while True:
            piece = connection.recv(_PIECE)
            if not piece:
                raise Away(self.path, "ended the connection")
            # What waits has no end in it.
            before, end, piece = piece.partition(b"\0")
            waiting += before
            if len(waiting) > _LARGEST_REPLY:
                raise ValueError(f"a reply of more than {_LARGEST_REPLY} bytes")
            while end:
                yield json.loads(waiting)
                waiting[:], end, piece = piece.partition(b"\0")


class Controller(Client):
    """The controller: root and the group of `[api]` may everything, others may look if the site says so."""

    def __init__(self, path: str = "/run/perilog/controller.sock", timeout: Optional[float] = 60) -> None:
        super().__init__(path, "io.perilog.Controller", timeout)

    def status(self) -> Object:
        return dict(self.call("Status")["status"])

    def nodes(self, nodes: Optional[str] = None) -> list[Object]:
        return self._all("nodes", "Nodes", nodes=nodes)

    def why(self, node: str) -> Object:
        return dict(self.call("Why", node=node)["why"])

    def show(self, job: str) -> Object:
        return dict(self.call("Show", job=job)["job"])

    def ps(self, older_than: Optional[str] = None, held: bool = False) -> list[Object]:
        """Returns what has not ended."""
        return self._all("rows", "Ps", older_than=older_than, held=held)

    def drains(self, nodes: Optional[str] = None) -> list[Object]:
        """Returns the drains, of `nodes` or of all hosts: each is of `hosts`, a hostlist."""
        return self._all("drains", "Drains", nodes=nodes)

    def _all(self, name: str, method: str, **parameters: Any) -> list[Object]:
        """Returns the entries of a list that comes in pages."""
        pages = self._replies(method, parameters, more=True, timeout=self.timeout)
        return [entry for page in pages for entry in page[name]]

    def drain(self, nodes: str, reason: str) -> int:
        """Returns for how many hosts it is news."""
        return int(self.call("Drain", nodes=nodes, reason=reason)["tasks"])

    def undrain(self, nodes: str) -> int:
        return int(self.call("Undrain", nodes=nodes)["tasks"])

    def job_add(self, job: str, **terms: Any) -> Object:
        """Adds a job: `nodes` or `R`, `userid`, `tolerate`, `keep` and the other parameters of JobAdd."""
        return self.call("JobAdd", job=job, **terms)

    def job_finish(self, job: str, **what: Any) -> Object:
        """Drops the job's hold on `targets` and `resources`, or on all; what follows the job, its epilog, has them now."""
        return self.call("JobFinish", job=job, **what)

    def job_cancel(self, job: str, why: Optional[str] = None) -> Object:
        return self.call("JobCancel", job=job, why=why)

    def run(self, action: str, job: str, **how: Any) -> Object:
        """Starts an action, or attaches to it: `nodes`, `attempt`, `targets`, `userid`, `env`, `timeout`, `known`."""
        return self.call("Run", job=job, action=action, **how)

    def events(self, job: str, after: int = 0, follow: bool = False) -> Iterator[Object]:
        """Yields the events of a job past a sequence; with `follow` also those to come, over restarts of the controller."""
        while True:
            try:
                for reply in self.stream("Events", job=job, after=after, follow=follow):
                    for event in reply["events"]:
                        after = event["sequence"]
                        yield event
                return
            except (Away, Busy):
                if not follow:
                    raise
                time.sleep(_PAUSE)

    def all_events(self, after: Optional[str] = None, follow: bool = False) -> Iterator[Object]:
        """Yields the events of all jobs, each with its `job` and `spot`, past the spot of an earlier one ("now": from now
        on); with `follow` also those to come, over restarts of the controller, without a gap or a double."""
        while True:
            try:
                for reply in self.stream("EventsOfAll", after=after, follow=follow):
                    for event in reply["events"]:
                        after = event["spot"]
                        yield event
                    after = reply.get("spot") or after
                if not follow:
                    return
            except (Away, Busy):
                if not follow:
                    raise
            except Refused as error:
                if not follow or error.code != "unavailable":
                    raise
            time.sleep(_PAUSE)

    def run_to_end(self, action: str, job: str, **how: Any) -> Object:
        """Runs an action and returns the context of its `verdict` event; waits for a controller that is away meanwhile.

        A controller whose store was restored may have forgotten the job, and this waits on: `perilog run` would notice.
        """
        begun = self.run(action, job, **how)
        for event in self.events(job, begun["events_after"], follow=True):
            end: Object = event.get("context") or {}
            if event["name"] == "verdict" and (end["action"], end["attempt"]) == (action, begun["attempt"]):
                return end
        raise Away(self.path, "ended the log")


class Agent(Client):
    """The agent of this node: root may everything, others `status` if the site says so."""

    def __init__(self, path: str = "/run/perilog/agent.sock", timeout: Optional[float] = 60) -> None:
        super().__init__(path, "io.perilog.Agent", timeout)

    def status(self) -> Object:
        return self.call("Status")

    def execute(self, action: str, job: str, **how: Any) -> Object:
        """Starts a task of the node's own, or attaches to it, and returns its last reply: `status` is what to exit with."""
        last: Object = {}
        for last in self.stream("Exec", job=job, action=action, **how):
            pass
        return last
