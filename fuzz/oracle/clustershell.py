#!/usr/bin/env python3
"""Prints what ClusterShell makes of random hostlists and idsets: `fuzz/oracle/clustershell.txt`.

Usage: clustershell.py [SEED [COUNT]] (needs ClusterShell, of Debian's python3-clustershell or PyPI).

A line is KIND, TEXT, and the names or ids in their order, between tabs. `hosts`: a list of names; ClusterShell keeps no
order among sets, so each expression is expanded by itself. `ids`: an idset, sorted. `!`: ClusterShell refuses the text.
"""

import random
import sys

from ClusterShell import __version__
from ClusterShell.NodeSet import NodeSet, NodeSetParseError
from ClusterShell.RangeSet import RangeSet


def number(dice, width):
    value = dice.choice([0, 1, 7, 8, 9, 10, 11, 98, 99, 100, dice.randrange(1200)])
    return str(value).zfill(width)


def item(dice):
    """An id or an ascending range, of one width."""
    width = dice.choice([1, 1, 1, 2, 3, 4])
    begin = number(dice, width)
    if dice.random() < 0.5:
        return begin
    end = str(int(begin) + dice.randrange(0, 12))
    # A range of ids that are padded has ends of the same width.
    return begin + "-" + (end.zfill(len(begin)) if begin[0] == "0" and begin != "0" else end)


def expression(dice):
    prefix = dice.choice(["n", "node-", "rack1n", "a.b", "x_", "n0"])
    kind = dice.random()
    if kind < 0.2:
        return prefix + number(dice, dice.choice([1, 2, 3]))
    if kind < 0.3:
        return prefix.rstrip("0123456789") + "login"
    items = ",".join(item(dice) for _ in range(dice.randrange(1, 5)))
    return prefix + "[" + items + "]" + dice.choice(["", "", "-ib", ".site"])


def expanded(text):
    """The names of an expression, in the order of its items, each item by itself."""
    if "[" not in text:
        return list(NodeSet(text))
    prefix, rest = text.split("[")
    items, suffix = rest.split("]")
    return [name for each in items.split(",") for name in NodeSet(prefix + "[" + each + "]" + suffix)]


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    dice = random.Random(seed)
    print(f"# ClusterShell {__version__}, seed {seed}: fuzz/oracle/clustershell.py")
    for _ in range(count):
        expressions = [expression(dice) for _ in range(dice.randrange(1, 4))]
        try:
            names = ",".join(name for text in expressions for name in expanded(text))
        except NodeSetParseError:
            names = "!"
        print("hosts", ",".join(expressions), names, sep="\t")
    for _ in range(count):
        items, begins = [], [dice.randrange(300) for _ in range(dice.randrange(1, 6))]
        for begin in sorted(begins) if dice.random() < 0.7 else begins:
            items.append(str(begin) if dice.random() < 0.4 else f"{begin}-{begin + dice.randrange(30)}")
        text = ",".join(items)
        print("ids", text, str(RangeSet(text)), sep="\t")


main()
