#!/usr/bin/env python3
"""Counts words, as a program for Fanjet: protocol 1.

The root task emits the lines of a text, each line is counted on any worker, and the reduce adds up.
The standard library is all it takes.
"""
import collections
import json
import re
import sys

sys.stdin.reconfigure(encoding="utf-8")
sys.stdout.reconfigure(encoding="utf-8")


def say(**line):
    print(json.dumps(line), flush=True)


def root(task):
    lines = task["params"]["text"].splitlines()
    for i in range(0, len(lines), 100):
        say(type="map", id=task["id"], name="line", items=lines[i : i + 100])
    say(type="log", id=task["id"], level="info", text=f"{len(lines)} lines to count")


def sub(task):
    return collections.Counter(re.findall(r"\w+", task["item"].lower()))


def reduce(task):
    sum, seen = collections.Counter(), 0
    for raw in sys.stdin:
        line = json.loads(raw)
        if line["type"] == "end":
            break
        sum.update(line["value"])
        seen += 1
        say(type="progress", id=task["id"], done=seen)
    return dict(sorted(sum.items()))


say(type="hello", protocol=1, processors=[{"name": "words", "reduce": True}])
for raw in sys.stdin:
    task = json.loads(raw)
    if task["type"] != "task":
        continue  # a cancel that came too late, or what was left unread
    try:
        step = {"root": root, "sub": sub, "reduce": reduce}[task["step"]]
        say(type="result", id=task["id"], value=step(task))
    except Exception as e:
        say(type="error", id=task["id"], message=f"{type(e).__name__}: {e}")
