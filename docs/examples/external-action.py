#!/usr/bin/env python3
"""A service that runs an external action of a job: one command per host, each rank reported as its command ends.

    external-action.py JOB ACTION LEASE HOST[,HOST...] COMMAND [ARGUMENT...]

LEASE is in seconds; the command gets the host's name as its last argument. Needs nothing but Python 3, and to be root or in
the group that controller.toml names. Of an action with resources (a rabbit) a service reports `resources=["rabbit1"]` alike.
"""
import json, os, socket, subprocess, sys, time

SOCKET = os.environ.get("PERILOG_SOCKET", "/run/perilog/controller.sock")


def call(method, **parameters):
    """A call over Varlink. While the controller is away, or says `unavailable`, it is said again: a report that comes twice is one."""
    request = {"method": "io.perilog.Controller." + method, "parameters": parameters}
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as controller:
                controller.settimeout(30)
                controller.connect(SOCKET)
                controller.sendall(json.dumps(request).encode() + b"\0")
                reply = b""
                while not reply.endswith(b"\0"):
                    part = controller.recv(65536)
                    if not part:
                        raise ConnectionError("the controller is gone")
                    reply += part
        except OSError:
            time.sleep(0.5)
            continue
        reply = json.loads(reply[:-1])
        parameters = reply.get("parameters", {})
        if "error" not in reply:
            return parameters
        if parameters.get("code") != "unavailable":
            sys.exit(f"{method}: {parameters.get('text', reply['error'])}")
        time.sleep(0.5)


job, action, lease, hosts, *command = sys.argv[1:]
begun = call("ActionStart", job=job, action=action, lease=lease + "s", targets=hosts)
mine = {"job": job, "action": action, "attempt": begun["attempt"]}
running = {host: subprocess.Popen([*command, host]) for host in hosts.split(",")}
renew_at = 0
while running:
    for host, process in list(running.items()):
        status = process.poll()
        if status is not None:
            end = {"outcome": "failed", "message": f"{command[0]} ended with {status}"} if status else {"outcome": "ok"}
            call("ActionReport", **mine, **end, targets=host)
            del running[host]
    if running and time.monotonic() >= renew_at:
        if call("ActionRenew", **mine)["cancelling"]:
            for process in running.values():
                process.terminate()
        renew_at = time.monotonic() + float(lease) / 3
    time.sleep(0.1)
