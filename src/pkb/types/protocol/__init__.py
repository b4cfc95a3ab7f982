"""Every message between the judge and a rank: frozen dataclasses, with bounds, and the one codec that checks them.

    limits.py     numbers and names that both sides must agree on
    codec.py      bytes <-> messages; whatever is not exactly a message within its bounds is `Malformed`
    trees.py      descriptions of arguments and outputs
    replies.py    what a rank says
    commands.py   what a rank is told; each command names the replies that answer it
    settings.py   what a side is started with
    status.py     what a rank is doing, in memory that the judge reads without asking

One command, one reply, over `pkb.types.channel`. A reply of a candidate's rank is a claim: the codec bounds it, and the judge
then decides what it is worth.
"""
