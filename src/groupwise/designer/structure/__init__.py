"""What requirements fix before the first decision: what is placed where as one piece, and who can do what.

A *region* is ordered by itself into stages and lanes: the whole case, a branch of an outcome, the rounds of a loop, the
work between two rounds. A *unit* is placed as one piece: an activity, activities in a chain, the options of a branch as
a single choice or one by one, an outcome with a region for each branch, a loop with its two regions.

Where an outcome may end the case, and whoever goes on does so in one way, it is the *gate* of its region: the last
unit. Whatever the decision does not wait for is in the region of the cases that go on, and may be moved up
(`Unit.early`), so that it is done before the decision. Where cases of several branches go on together, or another round
may follow, the outcome is a *barrier*: nothing runs beside it, and the case ends inside of it.

An outcome between whose activities other work must come becomes several units, which ask for the same result.

items.py     what is inside what, and what comes before what
layout.py    the region of every item; open this first
duties.py    people with skills, separation and binding of duties
"""
