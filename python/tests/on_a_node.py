"""Asks real daemons through the module `perilog`, step by step; a test on nodes (tests/tests/python_calls_the_daemons.rs) says which."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import perilog


def refused(kind: type[perilog.Error], ask: Callable[[], object]) -> perilog.Error:
    try:
        answer = ask()
    except kind as error:
        return error
    raise AssertionError(f"not refused: {answer}")


def looks() -> None:
    controller = perilog.Controller()
    assert controller.status()["online"] == 1
    assert [node["state"] for node in controller.nodes()] == ["online"]
    assert controller.why("n0")["node"]["host"] == "n0"
    unknown = refused(perilog.Refused, lambda: controller.show("unknown"))
    assert isinstance(unknown, perilog.Refused) and unknown.code == "no-such-job" and str(unknown)
    missing = refused(perilog.InvalidParameter, lambda: controller.call("Why"))
    assert str(missing) == "org.varlink.service.InvalidParameter: missing field `node`", missing
    method = refused(perilog.Error, lambda: controller.call("Dance"))
    assert method.name == "org.varlink.service.MethodNotFound", method.name
    try:
        controller.call("Show", job="x" * (1 << 20))
    except ValueError:
        pass
    else:
        raise AssertionError("a request that is too large was sent")


def changes() -> None:
    controller = perilog.Controller()
    # The prolog draws its status, and a failed one has drained the node.
    for drain in controller.drains():
        controller.undrain(str(drain["hosts"]))
    assert controller.drain("n0", "a look inside") == 1
    assert [(drain["hosts"], drain["reason"]) for drain in controller.drains()] == [("n0", "a look inside")]
    assert controller.undrain("n0") == 1
    controller.job_add("kept", nodes="n0", userid=1500)
    assert controller.job_finish("kept")["ranks"] == "0"
    names = [event["name"] for event in controller.events("kept")]
    assert names[0] == "attempt" and "job-finish" in names, names
    # The log may have grown since, by the end of the epilog.
    again = [event["name"] for event in controller.events("kept", after=1)]
    assert again[: len(names) - 1] == names[1:], (names, again)


def follows() -> None:
    for event in perilog.Controller().all_events(follow=True):
        print(json.dumps(event), flush=True)
        if event["name"] == "verdict" and event["job"] == "j":
            break
    oldest = list(perilog.Controller().all_events())
    assert list(perilog.Controller().all_events(after=oldest[2]["spot"])) == oldest[3:]
    assert not list(perilog.Controller().all_events(after="now"))
    lost = refused(perilog.Refused, lambda: next(perilog.Controller().all_events(after="1-0:1")))
    assert isinstance(lost, perilog.Refused) and lost.code == "conflict", lost


def runs() -> None:
    print(json.dumps(perilog.Controller().run_to_end("prolog", job="j", nodes="n0")), flush=True)


def stranger() -> None:
    controller = perilog.Controller()
    assert controller.status()["nodes"] == 1
    refused(perilog.PermissionDenied, lambda: controller.drain("n0", "a prank"))


def away() -> None:
    error = refused(perilog.Away, lambda: perilog.Controller().status())
    assert "/run/perilog/controller.sock" in str(error), error


def agent() -> None:
    agent = perilog.Agent()
    assert agent.status()["host"] == "n0"
    print(agent.execute("epilog", job="own")["status"])


if __name__ == "__main__":
    steps = {step.__name__: step for step in (looks, changes, follows, runs, stranger, away, agent)}
    steps[sys.argv[1]]()
