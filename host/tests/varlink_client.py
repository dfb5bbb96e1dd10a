"""A Varlink client in plain Python: what a site's own tools would do. Usage: varlink_client.py SOCKET."""
import json
import os
import socket
import sys


class Varlink:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, method, parameters=None, **flags):
        message = {"method": method, "parameters": parameters or {}, **flags}
        self.socket.sendall(json.dumps(message).encode() + b"\0")

    def receive(self):
        data = bytearray()
        while (byte := self.file.read(1)) != b"\0":
            assert byte, "the server closed the connection"
            data += byte
        return json.loads(data)

    def call(self, method, parameters=None):
        self.send(method, parameters)
        return self.receive()


path = sys.argv[1]
v = Varlink(path)

info = v.call("org.varlink.service.GetInfo")["parameters"]
assert info["interfaces"] == ["org.varlink.service", "test.clock"], info
assert (info["product"], info["version"]) == ("test", "1"), info
for interface in info["interfaces"]:
    text = v.call("org.varlink.service.GetInterfaceDescription", {"interface": interface})
    assert f"interface {interface}\n" in text["parameters"]["description"], text

v.send("test.clock.Tick", {"count": 100}, more=True)
ticks = []
while True:
    reply = v.receive()
    ticks.append(reply["parameters"]["n"])
    if not reply.get("continues"):
        break
assert ticks == list(range(100)), ticks

assert v.call("test.clock.Tock")["error"] == "org.varlink.service.MethodNotFound"
wrong = v.call("test.clock.Tick", {"count": "many"})
assert wrong["error"] == "org.varlink.service.InvalidParameter", wrong
assert wrong["parameters"]["parameter"].startswith("count:"), wrong

if os.getuid() == 0:
    # As another user, with groups that only the kernel can know of.
    os.setgroups([4, 24])
    os.setgid(65534)
    os.setuid(65534)
    other = Varlink(path)
    who = other.call("test.clock.Who")["parameters"]
    assert who == {"uid": 65534, "gid": 65534, "pid": os.getpid(), "groups": [4, 24]}, who
    # One user gets no more than their share: connections that are busy keep their seats, the newest get those of the idle.
    many = [Varlink(path) for _ in range(8)]
    for client in many:
        try:
            # More than the socket holds: who is served stays busy.
            client.send("test.clock.Tick", {"count": 1_000_000}, more=True)
        except (ConnectionError, BrokenPipeError):
            pass
    served = 0
    for client in many:
        try:
            served += "error" not in client.receive()
        except (AssertionError, ConnectionError):
            pass
    assert served == 5, served
print("ok")
