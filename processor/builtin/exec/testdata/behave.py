#!/usr/bin/env python3
"""Behaves as its params say, mostly badly: for the tests of the protocol."""
import json
import os
import signal
import subprocess
import sys
import time


def say(**line):
    print(json.dumps(line), flush=True)


def note_pid(params):
    with open(params["pids"], "a") as f:
        f.write(f"{os.getpid()}\n")


def do(task):
    id, p = task["id"], task.get("params") or {}
    what = p.get("do")
    if "pids" in p:
        note_pid(p)
    if what == "echo":
        return task
    if what == "pid":
        return os.getpid()
    if what == "env":
        return dict(os.environ)
    if what == "garbage":
        print(p["text"], flush=True)
    if what == "say":
        for line in p["lines"]:
            line.setdefault("id", id)
            say(**line)
    if what == "long":
        print("x" * p["bytes"], flush=True)
    if what == "exit":
        print("Traceback: the last words", file=sys.stderr, flush=True)
        os._exit(p["code"])
    if what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "close":
        os.close(1)
        time.sleep(60)
    if what == "after":  # dies once its answer is out
        say(type="result", id=id, value="done")
        os._exit(p["code"])
    if what == "twice":
        say(type="result", id=id, value=1)
        return 2
    if what == "map":
        if task["step"] == "root":
            for i in range(p["n"]):
                say(type="map", id=id, name="n", items=[i * p["batch"] + j for j in range(p["batch"])])
            return None
        return task["item"]
    if what == "flood":
        for i in range(p["n"]):
            say(type="map", id=id, name="n", items=["x" * 1000])
            with open(p["count"], "w") as f:
                f.write(str(i + 1))
    if what == "checkpoint":
        at = task.get("checkpoint") or 0
        say(type="checkpoint", id=id, value=at + 1)
        if at < 2:
            say(type="error", id=id, message=f"at {at}", retry_after_ms=1)
            return ...
        return at
    if what == "wait":  # for the cancel
        if "ready" in p:
            open(p["ready"], "w").close()
        say(type="log", id=id, text="waiting")
        line = json.loads(sys.stdin.readline())
        say(type="log", id=id, text=f"{line['type']} {line['reason']}")
        say(type="error", id=id, message="canceled")
        return ...
    if what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sub = subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
        with open(p["pids"], "a") as f:
            f.write(f"{sub.pid}\n")
        if "ready" in p:
            open(p["ready"], "w").close()
        say(type="log", id=id, text="waiting")
        while True:
            time.sleep(1)
    if what == "stderr":
        for i in range(p["n"]):
            print(f"line {i}", file=sys.stderr)
        sys.stderr.flush()
        say(type="log", id=id, text="said all")
    if what == "early":  # a reduce that reads nothing
        return "early"
    return p.get("result")


if os.environ.get("BEHAVE_HELLO"):
    print(os.environ["BEHAVE_HELLO"], flush=True)
    if os.environ.get("BEHAVE_EXIT"):
        print("bad luck", file=sys.stderr, flush=True)
        sys.exit(3)
else:
    say(type="hello", protocol=1, processors=[
        {"name": "plain"}, {"name": "reduce", "reduce": True}, {"name": "all", "reduce": True, "pre": True, "post": True},
        {"name": "frame", "pre": True, "post": True},
    ])
for raw in sys.stdin:
    task = json.loads(raw)
    if task["type"] != "task":
        continue
    if task["step"] == "pre":
        say(type="log", id=task["id"], text="pre")
        say(type="result", id=task["id"])
        continue
    if task["step"] in ("reduce", "post") and (task.get("params") or {}).get("do") != "early":
        got = []
        for raw in sys.stdin:
            line = json.loads(raw)
            if line["type"] == "end":
                break
            got.append(line.get("value", line.get("value_base64")) if line["type"] == "value" else line["index"])
        value = sum(got) if all(isinstance(x, int) for x in got) else got
        say(type="result", id=task["id"], value={"all": value, "n": len(got), "total": line["total"], "failed": line["failed"]})
        continue
    v = do(task)
    if v is not ...:
        say(type="result", id=task["id"], value=v)
