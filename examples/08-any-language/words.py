#!/usr/bin/env python3
"""Lesson 8: processors in Python. `fanjet worker --exec` starts this program and speaks
JSON lines with it; the protocol is one page, processor/builtin/exec/PROTOCOL.md."""
import collections
import json
import sys


def say(**line):
    print(json.dumps(line), flush=True)


def shout(task):
    return task["params"]["word"].upper() + "!"


def words(task):
    match task["step"]:
        case "root":  # emit the sub-tasks: a line each, on whatever worker is free
            say(type="map", id=task["id"], name="line", items=task["params"]["text"].splitlines())
            return None
        case "sub":
            return collections.Counter(task["item"].split())
        case "reduce":  # the values follow as lines
            total = collections.Counter()
            for line in map(json.loads, sys.stdin):
                if line["type"] == "end":
                    break
                total.update(line["value"])
            top = min(total, key=lambda word: (-total[word], word))
            return {"distinct": len(total), "top": top, "times": total[top]}


say(type="hello", protocol=1, processors=[{"name": "words", "reduce": True}, {"name": "shout"}])
for task in map(json.loads, sys.stdin):
    if task["type"] != "task":
        continue
    try:
        say(type="result", id=task["id"], value={"words": words, "shout": shout}[task["processor"]](task))
    except Exception as e:
        say(type="error", id=task["id"], message=f"{type(e).__name__}: {e}")
