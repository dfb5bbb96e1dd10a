"""A Varlink client without a library: varlink.py SOCKET METHOD PARAMETERS [more] [uid=N]; prints one reply per line.

`stall`: asks and never reads. `closes=N`: leaves after N replies.
"""
import json
import os
import signal
import socket
import sys

path, method, parameters, *options = sys.argv[1:]
chosen = dict(option.partition("=")[::2] for option in options)
if "uid" in chosen:
    os.setgroups([])
    os.setgid(int(chosen["uid"]))
    os.setuid(int(chosen["uid"]))
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
name = method if "." in method else "io.perilog.Controller." + method
request = {"method": name, "parameters": json.loads(parameters)}
if "more" in chosen:
    request["more"] = True
connection.sendall(json.dumps(request).encode() + b"\0")
if "stall" in chosen:
    print("stalled", flush=True)
    signal.pause()
left = int(chosen.get("closes", "-1"))
buffer = b""
while left != 0:
    while b"\0" not in buffer:
        data = connection.recv(65536)
        if not data:
            sys.exit("closed")
        buffer += data
    message, _, buffer = buffer.partition(b"\0")
    reply = json.loads(message)
    print(json.dumps(reply), flush=True)
    left -= 1
    if not reply.get("continues"):
        break
