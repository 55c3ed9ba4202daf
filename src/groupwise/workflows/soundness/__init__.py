"""Soundness: every case can finish, finishes cleanly, and every task can happen.

    net.py         blocks and graphs as Petri nets, with markings as bit masks
    reduction.py   rules that make a net smaller without changing its soundness
    or_joins.py    when an or-join may fire
    check.py       the verdict: structure, reduction, then every reachable marking

Open `check.py` first.
"""
